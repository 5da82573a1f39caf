"""From the words of the command line to a configuration, and to who carries it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import RunDirectory
from gossamer.runtime.group import Alone, prints
from gossamer.training.api import configuration, join_group, start


def begun(folder: Path) -> Path:
    run = RunDirectory.create(folder)
    run.write_config(configured(rounds=7).model_dump())
    words = {"run": "0" * 16, "name": "r", "started": "2026-01-01T00:00:00Z", "key": "0" * 64}
    run.write_json("manifest.json", {**words, "data": {}, "files": {}, "ledgers_here": [[0, 7]]})
    return folder


def test_settings_of_the_command_win_over_the_recipe() -> None:
    config = configuration("quickstart", ["rounds=9", "privacy.epsilon=2.5"], runtime="processes")
    assert (config.rounds, config.privacy.epsilon, config.runtime.kind) == (9, 2.5, "processes")
    assert configuration(None).name == "quickstart"


def test_a_run_that_has_begun_keeps_its_settings_but_for_the_runtime(tmp_path: Path) -> None:
    place = begun(tmp_path / "r")
    config = configuration(None, ["runtime.timeout=9.0"], resume=place)
    assert (config.rounds, config.runtime.timeout) == (7, 9.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recipe": "quickstart"}, "--resume recipe --out"),
        ({"out": Path("new")}, "--resume recipe --out"),
        (
            {"overrides": ["rounds=9"]},
            "--set rounds run",
        ),
        ({"resume": Path("nowhere")}, "--resume nowhere"),
    ],
)
def test_what_cannot_change_is_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with expect_refusal(names=says):
        configuration(**{"recipe": None, "resume": begun(tmp_path / "r"), **changes})


def test_the_runtime_and_torchrun_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with join_group(configured()) as group:
        assert isinstance(group, Alone)
        assert group.nodes == range(8)
    with join_group(configured(baseline="central")) as group:
        assert group.nodes == range(1)
    with expect_refusal(key="runtime.kind", value="processes", remedy=True) as refused:
        join_group(configured(runtime__kind="processes"))
    assert (refused.value.key, refused.value.value) == ("runtime.kind", "processes")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "9")
    with expect_refusal(key="runtime.kind", value="simulator", names="--runtime processes", remedy=True) as refused:
        join_group(configured())
    assert (refused.value.key, refused.value.value) == ("runtime.kind", "simulator")
    with expect_refusal(key="runtime.ranks", value="9", names="8"):
        join_group(configured(runtime__kind="processes"))


@pytest.mark.parametrize(
    ("first", "first_here", "spread", "speaks"),
    [
        (True, True, False, True),
        (False, False, False, False),
        (False, True, True, True),
        (False, False, True, False),
    ],
)
def test_one_process_of_every_machine_speaks(first: bool, first_here: bool, spread: bool, speaks: bool) -> None:
    group = Alone(3)
    vars(group).update(first=first, first_here=first_here, spread=spread)
    assert prints(group) is speaks


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
def test_the_number_of_ranks(changes: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    monkeypatch.setattr("gossamer.training.api.launch", lambda _words, ranks, **_options: started.append(ranks))
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in changes.items()]
    start(None, overrides, runtime="processes")
    assert started == [count]


def test_mistakes_show_before_ranks_start_and_a_stop_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Any] = []

    def launch(arguments: list[str], ranks: int, *, timeout: float) -> Any:
        started.append((arguments, ranks, timeout))
        raise KeyboardInterrupt

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gossamer.training.api.launch", launch)
    with expect_refusal(key="runtime.blocks", names="2 3"):
        start(None, ["runtime.ranks=3", "runtime.blocks=[4,4]"], runtime="processes")
    assert not started
    words = ["run", "--runtime", "processes"]
    with pytest.raises(KeyboardInterrupt, match="continue with `gossamer run --resume"):
        start(None, ["runtime.ranks=2", "runtime.timeout=7"], runtime="processes", arguments=words)
    ((arguments, ranks, timeout),) = started
    assert (arguments[:3], arguments[3], ranks, timeout) == (words, "--out", 2, 7.0)
