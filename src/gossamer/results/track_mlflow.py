"""MLflow, by its own client: one MLflow run per run, on the server that MLFLOW_TRACKING_URI names.

The client is told everything itself. MLflow's fluent interface would add the user's name, the program's path and the
state of a git repository; and its default, a database in the current folder, nobody asked for.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gossamer.errors import UserError
from gossamer.results.track import scalars

EXPERIMENT = "gossamer"  # unless MLFLOW_EXPERIMENT_NAME names another
# MLflow's own: seven tries of two minutes each would hold up a run for as long as its server is gone.
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_LONGEST = 4000  # characters of a tag, with some to spare


def ready() -> None:
    """Is there a server that answers?"""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise UserError(
            "--track mlflow needs to know where to; start `mlflow server` and set MLFLOW_TRACKING_URI, for example to "
            "http://127.0.0.1:5000."
        )
    try:
        _experiment(_client())
    except Exception as error:  # whatever its library may raise
        raise UserError(
            f"--track mlflow: no server answers at MLFLOW_TRACKING_URI = {_shown(uri)} ({type(error).__name__}); start "
            "it, or leave --track out."
        ) from None


class MLflow:
    def __init__(self, directory: Path, facts: dict[str, Any]):
        from mlflow.entities import Param

        self._client, self._began = _client(), int(time.time() * 1000)
        made = self._client.create_run(
            _experiment(self._client), start_time=self._began, run_name=directory.name
        )
        self._id = made.info.run_id
        self._ended = False
        params = [Param(name, str(text)[:_LONGEST]) for name, text in facts.items()]
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

        tags = [RunTag(f"certificate.{name}", text[:_LONGEST]) for name, text in facts.items()]
        self._client.log_batch(
            self._id, tags=[*tags, RunTag("mlflow.note.content", facts["privacy"][:_LONGEST])]
        )
        self._ended = True

    def close(self) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if self._ended else "KILLED")


def _client() -> Any:
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])


def _experiment(client: Any) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found is not None else client.create_experiment(name))


def _shown(uri: str) -> str:
    """Without a user's name and password."""
    parts = urlsplit(uri)
    return uri if "@" not in parts.netloc else parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
