"""Where a run's public figures may go besides its directory. Another tracker: one class, one line in TRACKERS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gossamer.errors import UserError


class Tracker(Protocol):
    def metrics(self, row: dict[str, Any]) -> None:
        """One evaluation, as `public` leaves it."""
        ...

    def close(self) -> None: ...


OpenTracker = Callable[[Path, dict[str, Any]], Tracker]  # (run directory, facts about the run) → a tracker


def public(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl without what must stay here: a tracker may well send things away."""
    # How long a round took follows the sizes of its lots, and with them how many records there are.
    row = {key: value for key, value in row.items() if key not in ("not_private", "seconds")}
    if "hold_out" in row:  # not declared public
        judged = ("accuracy_", "rmse_", "loss_", "hold_out")
        row = {key: value for key, value in row.items() if not key.startswith(judged)}
    return row


class TensorBoard:
    """Event files under `tensorboard/` in the run directory; `tensorboard --logdir runs` shows them."""

    def __init__(self, directory: Path, facts: dict[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"))
        for name, text in facts.items():
            self._writer.add_text(name, str(text))

    def metrics(self, row: dict[str, Any]) -> None:
        at = row["round"]
        for name, value in row.items():
            if isinstance(value, (int, float)) and name != "round":
                self._writer.add_scalar(name, value, at)
            elif isinstance(value, list):
                for node, each in enumerate(value):
                    self._writer.add_scalar(f"{name}/{node}", each, at)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, tuple[str, OpenTracker]] = {"tensorboard": ("tensorboard", TensorBoard)}


def find_tracker(name: str) -> OpenTracker:
    """The tracker of that name, its library checked before the run begins."""
    from importlib.util import find_spec

    if name not in TRACKERS:
        raise UserError(f"--track {name} is not a tracker I know; use {', '.join(TRACKERS)}.")
    library, opener = TRACKERS[name]
    if find_spec(library) is None:
        raise UserError(f"--track {name} needs {library}; pip install 'gossamer[track]' brings it.")
    return opener
