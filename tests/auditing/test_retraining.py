"""Retraining: odd records are detected without noise, batches are saved, and workers train the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.audits import outlined, verdict_of
from tests.support.refusals import expect_refusal
from torch import nn

from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, Observer
from gossamer.auditing.api import AuditRequest
from gossamer.auditing.attacks import attack_of
from gossamer.auditing.bounds import Coins
from gossamer.auditing.canaries import CANARIES
from gossamer.auditing.trainings import SCORES, Retraining, ScoreFile, batch_stream, train_elsewhere
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.mechanism.noise.base import COINS
from gossamer.studies.jobs import Engine, Outcome
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan


@pytest.mark.parametrize(
    ("kind", "observer"), [("blank", FINAL_MODELS), ("mislabelled", EVERYONE), ("extreme", FINAL_MODELS)]
)
def test_retraining_finds_an_odd_record_without_noise_to_hide_it(kind: str, observer: Observer) -> None:
    """ε = 200 is next to no noise: an odd record shows in a hundred trainings."""
    o = outlined(privacy__epsilon=200.0, privacy__sampling={"kind": "full"}, data__train_rows=80)
    verdict = verdict_of(Retraining(assemble(o), kind, observer), o, runs=100)
    assert verdict.violated == ()
    assert verdict.epsilon > 0.5


@pytest.mark.parametrize(("kind", "value"), [("blank", -0.5), ("extreme", 1.5)])
def test_a_constant_canary_goes_through_the_steps_of_a_record(kind: str, value: float) -> None:
    """Zeros among normalised images are not the normalised zeros: an attack with the former has hardly any power."""
    steps = [{"kind": "affine", "mean": 0.25, "deviation": 0.5}, {"kind": "average-pool", "size": 2}]
    parts = assemble(outlined(data__train_rows=80, data__transform=steps))
    canary = CANARIES[kind](parts)
    assert canary.x.shape == parts.dataset.x_train.shape[1:]
    assert canary.x.dtype == torch.float32
    torch.testing.assert_close(canary.x, torch.full_like(canary.x, value))


def test_coins_of_trainings_are_drawn_from_the_secret_stream() -> None:
    """They once took turns: an attacker who counts would have known them all."""
    o = outlined(rounds=1, data__train_rows=80, privacy__sampling={"kind": "full"})
    attack = Retraining(assemble(o), "blank", FINAL_MODELS)
    drawn = [attack.batch(number, 100).heads for number in (0, 1)]
    for number, heads in enumerate(drawn):
        # Of their own purpose, so the noise stays as it was.
        stream = batch_stream(o.config, number)
        np.testing.assert_array_equal(heads, stream.uniform_bits_rows(COINS, [0], 0, 100)[0] & np.uint64(1))
        assert 30 <= heads.sum() <= 70  # but for a chance of 4e-5 each
    assert not np.array_equal(*drawn)
    secret = outlined(rounds=1, data__train_rows=80, privacy__noise__source="system")
    system = Retraining(assemble(secret), "blank", FINAL_MODELS)
    assert not np.array_equal(system.batch(0, 60).heads, system.batch(0, 60).heads)


@pytest.mark.slow
def test_retraining_continues_where_it_stopped(tmp_path: Path) -> None:
    config = resolve(
        recipes.read("quickstart"),
        {"rounds": 3, "data.train_rows": 80, "privacy.noise.source": "seeded"},
    )
    how: dict[str, Any] = {"observer": "final", "canary": "blank"}
    whole = AuditRequest(config=config, runs=150, **how).run_into(tmp_path / "whole")
    AuditRequest(config=config, runs=100, **how).run_into(tmp_path / "parts")
    parts = AuditRequest(config=config, runs=150, **how).run_into(tmp_path / "parts")
    assert parts["audit"]["bounds"] == whole["audit"]["bounds"]
    lines = (tmp_path / "parts" / SCORES).read_text().splitlines()
    assert len(lines) == 3  # what it belongs to, 100 trainings, 50 more: the first hundred was not run again
    with expect_refusal(names="audit", remedy=True):
        AuditRequest(config=config, runs=150, observer="final", canary="mislabelled").run_into(tmp_path / "parts")


def test_a_torn_line_of_scores_is_not_believed(tmp_path: Path) -> None:
    config = resolve(recipes.read("quickstart"))
    saved = ScoreFile(tmp_path, config)
    saved.save(0, Coins(np.zeros(2), np.array([True, False]), np.arange(2), 2, 1.0, 1.0))
    with (tmp_path / SCORES).open("a") as file:
        file.write('{"runs": 2, "scor')
    again = ScoreFile(tmp_path, config)
    assert again.runs == 2
    again.save(1, Coins(np.ones(2), np.array([True, False]), np.arange(2), 2, 1.0, 1.0))
    assert ScoreFile(tmp_path, config).runs == 4


def test_a_batch_that_grows_does_not_count_twice(tmp_path: Path) -> None:
    """150 trainings, then 300: the batch of 50 is trained again as one of 100, and the third is another batch."""
    config = resolve(recipes.read("quickstart"))

    def found(runs: int, score: float) -> Coins:
        return Coins(np.full(runs, score), np.arange(runs) % 2 == 0, np.arange(runs), runs, 1.0, 1.0)

    saved = ScoreFile(tmp_path, config)
    for number, runs, score in ((0, 100, 0.0), (1, 50, 1.0), (1, 100, 2.0)):
        assert saved.get(number, runs) is None
        saved.save(number, found(runs, score))
    again = ScoreFile(tmp_path, config)
    for number, runs, score in ((0, 100, 0.0), (1, 50, 1.0), (1, 100, 2.0)):
        batch = again.get(number, runs)
        assert batch is not None
        assert set(batch.scores) == {score}
    assert again.get(2, 100) is None


ATTACK = ("final", "blank", 1, False)


def config(**changes: Any) -> Any:
    short = {"rounds": 2, "data.train_rows": 40, "nodes": 4, "privacy.noise.source": "seeded"}
    return resolve(recipes.read("quickstart"), short | changes)


class Inline:
    """An executor that does every job at once, in this process."""

    def __init__(self, failing: int | None = None):
        self.done: list[int] = []
        self._failing = failing

    def submit(self, job: Any) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        number = job.args[1]
        if number == self._failing:
            future.set_result(Outcome("no room"))
            return future
        future.set_result(job())
        self.done.append(number)
        return future


class InlineEngine(Engine):
    def __init__(self, executor: Any):
        super().__init__()
        self._executor = executor

    @contextmanager
    def open(self) -> Iterator[Executor]:
        yield self._executor


def train(executor: Any, folder: Path) -> list[tuple[int, int]]:
    progress: list[tuple[int, int]] = []
    saved = ScoreFile(folder, config())
    train_elsewhere(InlineEngine(executor), config(), saved, [6, 4], ATTACK, lambda *n: progress.append(n))
    return progress


def test_batches_are_those_of_this_process_and_kept_as_they_come(tmp_path: Path) -> None:
    with expect_refusal(key="batch", value="1"):
        train(Inline(failing=1), tmp_path)
    again = Inline()
    assert train(again, tmp_path) == [(10, 10)]
    assert again.done == [1]  # the first was kept
    kept = ScoreFile(tmp_path, config())
    attack = attack_of(Plan.of(config()), "final", "blank")
    for number, runs in enumerate((6, 4)):
        found, here = kept.get(number, runs), attack.batch(number, runs)
        assert found is not None
        assert np.array_equal(found.heads, here.heads)
        assert np.allclose(found.scores, here.scores)


def test_only_trainings_go_elsewhere_and_no_code() -> None:
    there = "dask:tcp://127.0.0.1:1"
    with expect_refusal(key="--engine", value="dask:tcp://127.0.0.1:1", names="--canary"):
        AuditRequest(config=config(), engine=there, canary="release")
    with expect_refusal(key="--engine", value="dask:tcp://127.0.0.1:1", names="--module"):
        AuditRequest(config=config(), engine=there, canary="blank", module=nn.Linear(1, 1))


@pytest.mark.slow
def test_an_audit_at_a_cluster_shows_what_it_shows_here(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    from tests.support.dask_cluster import cluster

    how: dict[str, Any] = {"observer": "final", "canary": "blank", "runs": 150}
    here = AuditRequest(config=config(), **how).run(tmp_path / "here")
    with cluster(tmp_path / "cluster", 2) as there:
        found = AuditRequest(config=config(), engine=there.engine, **how).run(tmp_path / "there")
    assert found["audit"]["coins"] == 150
    assert found["epsilon_audited"] == pytest.approx(here["epsilon_audited"], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted(
        path.name for path in (tmp_path / "here").iterdir()
    )
