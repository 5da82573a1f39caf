"""Engines are alike to those who use them."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path

import pytest
from tests.support.configurations import configured

from gossamer.studies.engine.job import Engine, Executor, Job
from gossamer.studies.engine.local import Local, Processes


def test_every_engine_and_executor_has_the_same_methods() -> None:
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    from gossamer.studies.engine.cluster import Cluster, Workers

    for protocol, kinds in ((Engine, (Local, Cluster)), (Executor, (Processes, Workers))):
        for name in (name for name in vars(protocol) if not name.startswith("_")):
            wanted = list(signature(getattr(protocol, name)).parameters)
            assert all(list(signature(getattr(kind, name)).parameters) == wanted for kind in kinds)


def test_a_job_is_json_and_nothing_else() -> None:
    config = configured()
    job = Job("run", config.model_dump(exclude_none=True), Path("place"))
    assert type(config).model_validate(json.loads(json.dumps(job.config))) == config
