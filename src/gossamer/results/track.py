"""Trackers of a run's public figures. Another tracker: one class, one line in TRACKERS.

A tracker must not cost a run: what it needs is checked before the run begins, and one that fails later is dropped with
a sentence. It gets the public part of a metrics line, and the privacy statement in words and figures.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, statement
from gossamer.results.headline import on_hold_out


class Tracker(ABC):
    library: ClassVar[str]  # its name, too
    extra: ClassVar[str]  # of pyproject.toml

    @classmethod
    def check(cls) -> None:
        """Raise if what it needs is not there."""
        if find_spec(cls.library) is None:
            need = f"--track {cls.library} needs its library; pip install 'gossamer[{cls.extra}]' brings it."
            raise UserError(need)

    @abstractmethod
    def __init__(self, directory: Path, facts: dict[str, Any]): ...

    @abstractmethod
    def metrics(self, row: dict[str, Any]) -> None:
        """Take one evaluation, as `public` leaves it."""

    @abstractmethod
    def end(self, facts: dict[str, str]) -> None:
        """Take what the certificate states, once the run has ended; not called where it was stopped."""

    @abstractmethod
    def close(self) -> None: ...


# (run directory, facts about the run) → what has the methods `metrics`, `end` and `close` of a tracker
OpenTracker = Callable[[Path, dict[str, Any]], Any]


def public(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl without what must stay here: a tracker may well send things away."""
    # How long a round took follows the sizes of its lots, and with them how many records there are.
    row = {key: value for key, value in row.items() if key not in ("not_private", "seconds")}
    if "hold_out" in row:  # not declared public
        row = {key: value for key, value in row.items() if not on_hold_out(key)}
    return row


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return name → figure; of a list each node's, as `name/node`."""
    figures = {key: value for key, value in row.items() if key != "round"}
    for name, value in row.items():
        if isinstance(value, list):
            figures |= {f"{name}/{i}": each for i, each in enumerate(value)}
    return {name: float(value) for name, value in figures.items() if isinstance(value, (int, float))}


def privacy_facts(figures: Mapping[str, Any]) -> dict[str, str]:
    """No ε without δ, adjacency, unit and observer."""
    epsilons = {key: epsilon_text(figures[key]) for key in ("epsilon_proven", "epsilon_claimed")}
    terms = {key: str(figures[key]) for key in ("adjacency", "unit", "observer")}
    return {**epsilons, "delta": f"{figures['delta']:g}", **terms}


def certified_facts(certificate: Mapping[str, Any]) -> dict[str, str]:
    """Return what is tracked when the run has ended; what other runs spent on the same records stays here."""
    lines = statement({**certificate, "budget": None})
    return {**privacy_facts(certificate), "privacy": "\n".join(lines), "issued": str(certificate["issued"])}


class TensorBoard(Tracker):
    """Event files under `tensorboard/` in the run directory; `tensorboard --logdir runs` shows them."""

    library, extra = "tensorboard", "track"

    def __init__(self, directory: Path, facts: dict[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"))
        self._write(facts)

    def _write(self, facts: Mapping[str, Any], prefix: str = "") -> None:
        for name, text in facts.items():
            self._writer.add_text(prefix + name, str(text))

    def metrics(self, row: dict[str, Any]) -> None:
        at = row["round"]
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, at, walltime=at)  # rounds in place of a clock, see `public`
        self._writer.flush()

    def end(self, facts: dict[str, str]) -> None:
        self._write(facts, "certificate/")

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


class MLflow(Tracker):
    """By its own client: one MLflow run per run, on the server that MLFLOW_TRACKING_URI names.

    The client gets all as arguments. MLflow's fluent interface would add the user's name, the program's path and
    the state of a git repository; its default is a database in the current folder.
    """

    library, extra = "mlflow", "mlflow"

    @classmethod
    def check(cls) -> None:
        """Is there a server that answers?"""
        super().check()
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            example = "MLFLOW_TRACKING_URI, for example to http://127.0.0.1:5000"
            raise UserError(f"--track mlflow needs a server; start `mlflow server` and set {example}.")
        try:
            _mlflow_experiment(_mlflow_client())
        except Exception as error:  # its library may raise anything
            where = f"MLFLOW_TRACKING_URI = {_without_password(uri)} ({type(error).__name__})"
            raise UserError(f"--track mlflow: no server answers at {where}; start it.") from None

    def __init__(self, directory: Path, facts: dict[str, Any]):
        from mlflow.entities import Param

        self._client, self._began = _mlflow_client(), int(time.time() * 1000)
        experiment = _mlflow_experiment(self._client)
        run = self._client.create_run(experiment, start_time=self._began, run_name=directory.name)
        self._id, self._ended = run.info.run_id, False
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
        tags.append(RunTag("mlflow.note.content", facts["privacy"][:_MLFLOW_TAG]))
        self._client.log_batch(self._id, tags=tags)
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
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def _without_password(uri: str) -> str:
    """Without a user's name and password."""
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


TRACKERS: dict[str, type[Tracker]] = {one.library: one for one in (TensorBoard, MLflow)}


def find_tracker(name: str) -> OpenTracker:
    """Return the tracker of that name, its library and its server checked before the run begins."""
    if name not in TRACKERS:
        raise UserError(f"--track {name} is not a tracker I know; use {', '.join(TRACKERS)}.")
    TRACKERS[name].check()
    return lambda directory, facts: SafeTracker(name, lambda: TRACKERS[name](directory, facts))


class SafeTracker:
    """A tracker that is dropped with a sentence if it fails: the run continues without it."""

    def __init__(self, name: str, opener: Callable[[], Tracker]):
        self._name = name
        self._tracker: Tracker | None = self._try(opener)

    def metrics(self, row: dict[str, Any]) -> None:
        self._call("metrics", row)

    def end(self, facts: dict[str, str]) -> None:
        self._call("end", facts)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *arguments: Any) -> None:
        if self._tracker is not None:
            self._try(lambda: getattr(self._tracker, method)(*arguments))

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # a tracker's library may raise anything
            self._tracker = None
            what = f"gossamer: --track {self._name} failed ({type(error).__name__})"
            print(f"{what}; the run continues without it, all figures are in its directory.", file=sys.stderr)
