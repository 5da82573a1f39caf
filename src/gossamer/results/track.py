"""Where a run's public figures may go besides its directory. Another tracker: one class, one line in TRACKERS.

Trackers must not cost a run: what they need is checked before it begins, and one that fails later is left behind with
a sentence. They get the public part of a metrics line, and the privacy statement in words and figures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, statement
from gossamer.results.headline import on_hold_out


class Tracker(Protocol):
    def metrics(self, row: dict[str, Any]) -> None:
        """One evaluation, as `public` leaves it."""
        ...

    def end(self, facts: dict[str, str]) -> None:
        """What the certificate states, once the run has ended; not called where it was stopped."""
        ...

    def close(self) -> None: ...


OpenTracker = Callable[[Path, dict[str, Any]], Tracker]  # (run directory, facts about the run) → a tracker


def public(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl without what must stay here: a tracker may well send things away."""
    # How long a round took follows the sizes of its lots, and with them how many records there are.
    row = {key: value for key, value in row.items() if key not in ("not_private", "seconds")}
    if "hold_out" in row:  # not declared public
        row = {key: value for key, value in row.items() if not on_hold_out(key)}
    return row


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """name → figure; of a list each node's, as `name/node`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, (int, float)) and name != "round":
            found[name] = float(value)
        elif isinstance(value, list):
            found |= {
                f"{name}/{i}": float(each) for i, each in enumerate(value) if isinstance(each, (int, float))
            }
    return found


def privacy_facts(figures: Mapping[str, Any]) -> dict[str, str]:
    """No ε without δ, adjacency, unit and observer."""
    return {
        "epsilon_proven": epsilon_text(figures["epsilon_proven"]),
        "epsilon_claimed": epsilon_text(figures["epsilon_claimed"]),
        "delta": f"{figures['delta']:g}",
        "adjacency": str(figures["adjacency"]),
        "unit": str(figures["unit"]),
        "observer": str(figures["observer"]),
    }


def certified_facts(certificate: Mapping[str, Any]) -> dict[str, str]:
    """What goes along when the run has ended. What other runs spent on the same records stays here."""
    said = statement({**certificate, "budget": None})
    return {**privacy_facts(certificate), "privacy": "\n".join(said), "issued": str(certificate["issued"])}


class TensorBoard:
    """Event files under `tensorboard/` in the run directory; `tensorboard --logdir runs` shows them."""

    def __init__(self, directory: Path, facts: dict[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"))
        self._say(facts)

    def _say(self, facts: Mapping[str, Any], prefix: str = "") -> None:
        for name, text in facts.items():
            self._writer.add_text(prefix + name, str(text))

    def metrics(self, row: dict[str, Any]) -> None:
        at = row["round"]
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, at, walltime=at)  # rounds in place of a clock, see `public`
        self._writer.flush()

    def end(self, facts: dict[str, str]) -> None:
        self._say(facts, "certificate/")

    def close(self) -> None:
        self._writer.close()


def _mlflow() -> tuple[Callable[[], None], OpenTracker]:
    from gossamer.results.track_mlflow import MLflow, ready

    return ready, MLflow


def _wandb() -> tuple[Callable[[], None], OpenTracker]:
    from gossamer.results.track_wandb import WeightsAndBiases, ready

    return ready, WeightsAndBiases


def _tensorboard() -> tuple[Callable[[], None], OpenTracker]:
    return lambda: None, TensorBoard


@dataclass(frozen=True)
class Known:
    library: str
    extra: str  # of pyproject.toml
    load: Callable[[], tuple[Callable[[], None], OpenTracker]]  # (is all there that it needs?, the tracker)


TRACKERS = {
    "tensorboard": Known("tensorboard", "track", _tensorboard),
    "mlflow": Known("mlflow", "mlflow", _mlflow),
    "wandb": Known("wandb", "wandb", _wandb),
}


def find_tracker(name: str) -> OpenTracker:
    """The tracker of that name, its library and its server checked before the run begins."""
    if name not in TRACKERS:
        raise UserError(f"--track {name} is not a tracker I know; use {', '.join(TRACKERS)}.")
    known = TRACKERS[name]
    if find_spec(known.library) is None:
        raise UserError(
            f"--track {name} needs {known.library}; pip install 'gossamer[{known.extra}]' brings it."
        )
    ready, opener = known.load()
    ready()
    return lambda directory, facts: Unhurt(name, lambda: opener(directory, facts))


class Unhurt:
    """A tracker whose failure is a sentence: the run goes on without it."""

    def __init__(self, name: str, opener: Callable[[], Tracker]):
        self._name, self._trackers = name, list[Tracker]()  # one, or none after it failed
        self._try(lambda: self._trackers.append(opener()))

    def metrics(self, row: dict[str, Any]) -> None:
        for tracker in self._trackers[:]:
            self._try(partial(tracker.metrics, row))

    def end(self, facts: dict[str, str]) -> None:
        for tracker in self._trackers[:]:
            self._try(partial(tracker.end, facts))

    def close(self) -> None:
        for tracker in self._trackers[:]:
            self._try(tracker.close)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a tracker's library may raise
            self._trackers.clear()
            print(
                f"gossamer: --track {self._name} failed ({type(error).__name__}); the run goes on without it, and all "
                "figures are in its directory.",
                file=sys.stderr,
            )
