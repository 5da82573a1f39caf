"""A run over processes of this machine: how many, the job of each, and that a rank reads it as it was meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.models.networks import Own
from gossamer.training import ranks
from gossamer.training.request import RunRequest


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"runtime__ranks": 3}, 3),
        ({"runtime__blocks": [1, 3, 4]}, 3),
        ({}, 5),
        ({"nodes": 2, "topology__kind": "complete"}, 2),
        ({"baseline": "central"}, 1),
    ],
)
def test_how_many_processes(changes: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert ranks.how_many(configured(runtime__kind="processes", **changes)) == count


def test_a_job_reaches_its_rank_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = configured(runtime__kind="processes", runtime__ranks=2, runtime__timeout=7.0, seed=4)
    request = RunRequest(
        "quickstart", [], out=tmp_path / "r", data_dir=tmp_path, track="tensorboard", quiet=True
    )
    sent: dict[str, Any] = {}

    def launch(command: list[str], count: int, *, timeout: float, job: dict[str, Any]) -> dict[str, Any]:
        sent.update(command=command, count=count, timeout=timeout, job=job)
        return {"accuracy_mean": 1.0}

    monkeypatch.setattr(ranks, "launch", launch)
    assert ranks.run_on_ranks(config, request) == {"accuracy_mean": 1.0}
    assert (sent["count"], sent["timeout"]) == (2, 7.0)
    assert sent["command"][-1] == "gossamer.training.ranks"
    seen: list[Any] = []
    needed: list[int] = []

    def run_here(config: Any, request: Any, on_round: Any) -> dict[str, Any]:
        seen.append((config, request))
        on_round(1)
        return {}

    monkeypatch.setattr(ranks, "run_here", run_here)
    ranks.run_rank(sent["job"], lambda: needed.append(1))
    ((found, asked),) = seen
    assert found == config
    assert (asked.out, asked.resume, asked.data_dir) == (tmp_path / "r", None, tmp_path)
    assert (asked.track, asked.quiet) == ("tensorboard", True)
    assert needed == [1]


def test_mistakes_show_before_anything_is_started_and_a_stop_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def launch(*parts: Any, **rest: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks, "launch", launch)
    with pytest.raises(UserError, match=r"runtime\.blocks lists 2 blocks for 3 ranks"):
        ranks.run_on_ranks(configured(runtime__ranks=3, runtime__blocks=[4, 4]), RunRequest(None, []))
    with pytest.raises(KeyboardInterrupt, match="continue with `gossamer run --resume"):
        ranks.run_on_ranks(configured(runtime__ranks=2), RunRequest(None, [], out=tmp_path / "r"))


def test_ranks_run_no_code_that_a_run_directory_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They get tables, which do not say who named the code: the parent refuses."""
    config = configured(runtime__kind="processes", runtime__ranks=2)
    named = config.model_copy(update={"model": Own(path="net.py:make").withheld()})
    monkeypatch.setattr(ranks, "launch", lambda *_, **__: pytest.fail("ranks were started"))
    with pytest.raises(UserError, match=r"is not run unless you say so"):
        ranks.run_on_ranks(named, RunRequest(None, [], resume=tmp_path))
