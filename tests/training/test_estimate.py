"""What a run would take, before anything of it is allocated."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.refusals import expect_refusal

from gossamer.data.arrays import is_mapped, zeros
from gossamer.methods import method_of
from gossamer.training import estimate as module
from gossamer.training.data import DataCache, DataFacts, facts_of
from gossamer.training.estimate import (
    MOST_SECONDS,
    estimate,
    refuse_long_pricing,
    size_of,
)

FACTS = DataFacts(None, (64,), 10, None, [100] * 8)
MEASURE = Path(__file__).parents[2] / "benchmarks" / "memory.py"


def test_models_graphs_and_records_add_up() -> None:
    config = configured(privacy__sampling={"kind": "poisson", "lot": 10.0})
    algorithm = method_of(config).algorithm()
    found = estimate(config, algorithm, hosted=8, facts=FACTS)
    models = next(bytes_ for part, bytes_ in found.memory.items() if part.startswith("model.kind"))
    assert models == 8 * ((module.POINT + module.VECTOR) * 650 + 8 * 10 * 64)
    assert found.total == pytest.approx(module.ITSELF + sum(found.memory.values()))
    half = estimate(config.model_copy(update={"rounds": 150}), algorithm, hosted=8, facts=FACTS)
    assert found.seconds == pytest.approx(2 * half.seconds)


@pytest.mark.parametrize(
    ("kind", "vectors"), [("dp-dsgd", 1), ("dp-dsgt", 3), ("dp-dinno", 4), ("without-replacement", 1)]
)
def test_an_algorithm_pays_for_what_it_keeps(kind: str, vectors: int) -> None:
    config = configured(algorithm__kind=kind)
    found = estimate(config, method_of(config).algorithm(), hosted=8, facts=FACTS)
    models = next(bytes_ for part, bytes_ in found.memory.items() if part.startswith("model.kind"))
    lot = config.privacy.sampling.lot_of(100, 0)[1]
    assert models == 8 * ((module.POINT + vectors * module.VECTOR) * 650 + 8 * lot * 64)


def test_records_that_were_loaded_count_with_their_copies() -> None:
    config = configured(data={"kind": "synthetic-classification", "n": 1000, "features": 8})
    facts = facts_of(config, None, DataCache(), None)
    assert facts.dataset is not None
    assert config.data.bytes_read >= module.RECORDS * facts.dataset.x_train.nbytes
    facts = replace(facts, dataset=None)
    found = estimate(config, method_of(config).algorithm(), hosted=8, facts=facts)
    assert found.memory["data.kind = 'synthetic-classification'"] == config.data.bytes_read


def test_mapped_records_do_not_count() -> None:
    config = configured(data={"kind": "synthetic-classification", "n": 1000, "features": 8})
    facts = facts_of(config, None, DataCache(), None)
    assert facts.dataset is not None
    memory = {}
    for x in (zeros("t", (10**6, 8), mapped=True), np.zeros((10**6, 8), np.float32)):
        held = replace(facts, dataset=replace(facts.dataset, x_train=x))
        needs = estimate(config, method_of(config).algorithm(), hosted=8, facts=held)
        memory[is_mapped(x)] = needs.memory["data.kind = 'synthetic-classification'"]
    assert memory[False] - memory[True] > module.RECORDS * 31e6


def test_draws_that_would_take_minutes_to_price_are_refused() -> None:
    for changes, most in (({}, "30,000"), ({"algorithm__kind": "const-d2p"}, "200,000")):
        config = configured(rounds=1_000_000, **changes)
        with expect_refusal(key="rounds", value="1000000", names=[most, "1,000,000"]):
            refuse_long_pricing(config, config.rounds)
        refuse_long_pricing(config, 30_000)
    refuse_long_pricing(configured(privacy__sampling={"kind": "full"}, rounds=1_000_000), 1_000_000)


def test_a_model_is_counted_without_being_made() -> None:
    """Four terabytes of it."""
    config = configured(model={"kind": "mlp", "hidden": [1_000_000, 1_000_000]})
    found = size_of(config, (64,), 10)
    assert found.parameters == 64 * 10**6 + 10**6 + 10**12 + 10**6 + 10**7 + 10
    assert found.footprint.widest_layer == 4 * (10**6 + 10**6)


def test_a_users_own_module_is_counted_too() -> None:
    own = torch.nn.Linear(64, 10)
    found = size_of(configured(), (64,), 10, own)
    assert found.parameters == 650
    assert found.footprint.gradient > size_of(configured(), (64,), 10).footprint.gradient


@pytest.mark.slow
@pytest.mark.parametrize("word", ["MLP 2000, 2000, 2 ranks", "record by record, full", "width 16", "complete"])
def test_a_run_takes_no_more_than_was_estimated(word: str) -> None:
    """A few lines of the table in docs/performance.md, measured again."""
    done = subprocess.run([sys.executable, str(MEASURE), "--only", word], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("|") >= 5, "no line has that name"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"nodes": 900_000, "topology__kind": "complete"},
            "topology.kind complete 900000",
        ),
        (
            {"model": {"kind": "mlp", "hidden": [1_000_000, 1_000_000]}},
            "model.kind mlp parameters",
        ),
        (
            {"data": {"kind": "synthetic-classification", "n": 10**9, "features": 10**4}},
            "data.kind synthetic-classification",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence_at_once(changes: dict[str, Any], words: str) -> None:
    with expect_refusal(names=f"{words} --force"):
        outlined(**changes)


def test_a_month_is_too_long_and_force_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = module.Estimate({"model": 1.0}, 2 * MOST_SECONDS)
    with monkeypatch.context() as patched:
        patched.setattr(module, "estimate", lambda *_arguments, **_known: slow)
        with expect_refusal(key="run", names="60 --force", remedy=True):
            outlined()
    monkeypatch.setattr(module, "free_memory", lambda: 1000.0)
    monkeypatch.setattr(module, "resident", lambda: 0.0)
    with expect_refusal(key="data.kind", names="1"):
        outlined()
    from gossamer.training.plan import Plan

    assert Plan.of(configured(), force=True).privacy.nodes


def test_more_than_any_machine_is_refused_by_the_key() -> None:
    for key, value in (("nodes", 2147483648), ("rounds", 10**18), ("data__train_rows", 10**10)):
        with expect_refusal(names="most", remedy=True):
            configured(**{key: value})
