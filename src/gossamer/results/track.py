"""Where a run's public figures may go besides its directory. Another tracker: one class, one line in TRACKERS.

Trackers must not cost a run: what they need is checked before it begins, and one that fails later is left behind with
a sentence. They get the public part of a metrics line, and the privacy statement in words and figures.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

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


_MLFLOW_EXPERIMENT = "gossamer"  # unless MLFLOW_EXPERIMENT_NAME names another
# MLflow's own: seven tries of two minutes each would hold up a run for as long as its server is gone.
_MLFLOW_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MLFLOW_TAG = 4000  # characters of a tag, with some to spare


def _mlflow_ready() -> None:
    """Is there a server that answers?"""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise UserError(
            "--track mlflow needs to know where to; start `mlflow server` and set MLFLOW_TRACKING_URI, for example to "
            "http://127.0.0.1:5000."
        )
    try:
        _mlflow_experiment(_mlflow_client())
    except Exception as error:  # whatever its library may raise
        raise UserError(
            f"--track mlflow: no server answers at MLFLOW_TRACKING_URI = {_without_password(uri)} "
            f"({type(error).__name__}); start it, or leave --track out."
        ) from None


class MLflow:
    """By its own client: one MLflow run per run, on the server that MLFLOW_TRACKING_URI names.

    The client is told everything itself. MLflow's fluent interface would add the user's name, the program's path and
    the state of a git repository; its default is a database in the current folder.
    """

    def __init__(self, directory: Path, facts: dict[str, Any]):
        from mlflow.entities import Param

        self._client, self._began = _mlflow_client(), int(time.time() * 1000)
        made = self._client.create_run(
            _mlflow_experiment(self._client), start_time=self._began, run_name=directory.name
        )
        self._id = made.info.run_id
        self._ended = False
        params = [Param(name, str(text)[:_MLFLOW_TAG]) for name, text in facts.items()]
        self._client.log_batch(self._id, params=params)

    def metrics(self, row: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        at = row["round"]
        # Rounds in place of a clock: how long one took is not public, see `public`.
        figures = [Metric(name, value, self._began + at, at) for name, value in scalars(row).items()]
        for start in range(0, len(figures), 500):  # the server takes 1000 at a time
            self._client.log_batch(self._id, metrics=figures[start : start + 500])

    def end(self, facts: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(f"certificate.{name}", text[:_MLFLOW_TAG]) for name, text in facts.items()]
        self._client.log_batch(
            self._id, tags=[*tags, RunTag("mlflow.note.content", facts["privacy"][:_MLFLOW_TAG])]
        )
        self._ended = True

    def close(self) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if self._ended else "KILLED")


def _mlflow_client() -> Any:
    for name, value in _MLFLOW_PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])


def _mlflow_experiment(client: Any) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _MLFLOW_EXPERIMENT
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found is not None else client.create_mlflow_experiment(name))


def _without_password(uri: str) -> str:
    """Without a user's name and password."""
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


_WANDB_PROJECT = "gossamer"  # unless WANDB__WANDB_PROJECT names another
_WANDB_LOCAL = ("offline", "dryrun", "disabled")


def _wandb_ready() -> None:
    """Nothing is asked where nothing is sent; else the server must know who we are."""
    import wandb

    if os.environ.get("WANDB_MODE") in _WANDB_LOCAL:
        return
    try:
        known = wandb.login(prompt=False, verify=True, timeout=20)
    except Exception as error:  # whatever its library may raise
        raise UserError(_WANDB_LOGIN.format(type(error).__name__)) from None
    if not known:
        raise UserError(_WANDB_LOGIN.format("no key"))


_WANDB_LOGIN = (
    "--track wandb cannot log in ({}); run `wandb login` first, or set WANDB_MODE=offline to keep its files in the run "
    "directory."
)


class WeightsAndBiases:
    """By its own library; its files are under `wandb/` in the run directory.

    With WANDB_MODE=offline nothing is sent, and `wandb sync` may do it later. Everything that the library would collect
    by itself is off: the command's words, the terminal's output, the git repository, the host, how busy it is.
    """

    def __init__(self, directory: Path, facts: dict[str, Any]):
        import wandb

        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        quiet = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            disable_job_creation=True,
            host="not-sent",
            program="gossamer",
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            finish_timeout=60,
            finish_timeout_raises=True,
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _WANDB_PROJECT,
            name=directory.name,
            dir=directory,
            config={name: str(text) for name, text in facts.items()},
            settings=quiet,
        )
        self._ended = False

    def metrics(self, row: dict[str, Any]) -> None:
        at = row["round"]
        # Rounds in place of a clock: how long one took is not public, see `public`.
        self._run.log({**scalars(row), "_timestamp": float(at)}, step=at)

    def end(self, facts: dict[str, str]) -> None:
        self._run.summary.update({f"certificate.{name}": text for name, text in facts.items()})
        self._ended = True

    def close(self) -> None:
        self._run.finish(exit_code=0 if self._ended else 1)


@dataclass(frozen=True)
class Known:
    library: str
    extra: str  # of pyproject.toml
    opener: OpenTracker
    check: Callable[[], None] = lambda: None  # raises where what it needs is not there


TRACKERS = {
    "tensorboard": Known("tensorboard", "track", TensorBoard),
    "mlflow": Known("mlflow", "mlflow", MLflow, _mlflow_ready),
    "wandb": Known("wandb", "wandb", WeightsAndBiases, _wandb_ready),
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
    known.check()
    return lambda directory, facts: Unhurt(name, lambda: known.opener(directory, facts))


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
