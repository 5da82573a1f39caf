"""What a run would take, before anything of it is allocated."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from tests.support.configurations import configured, outlined

from gossamer.errors import UserError
from gossamer.run import estimate as module
from gossamer.run.estimate import MOST_SECONDS, estimate, refuse_beyond_machine, size_of

GB = 1e9


def test_models_graphs_and_records_add_up() -> None:
    config = configured()
    found = estimate(config, draws=1, hosted=8, parameters=1000, lot=10.0, numbers=64)
    models = next(size for part, size in found.memory.items() if part.startswith("model.kind"))
    assert models == 8 * (24 * 1000 + 8 * 10 * 64)
    assert found.total == pytest.approx(sum(found.memory.values()))
    twice = estimate(config, draws=2, hosted=8, parameters=1000, lot=10.0, numbers=64)
    assert twice.seconds == pytest.approx(2 * found.seconds)


def test_a_model_is_counted_without_being_made() -> None:
    config = configured(model={"kind": "mlp", "hidden": [1_000_000, 1_000_000]})
    tracemalloc.start()
    assert size_of(config, (64,), 10) == 64 * 10**6 + 10**6 + 10**12 + 10**6 + 10**7 + 10
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"nodes": 900_000, "topology__kind": "complete"},
            r"topology\.kind = 'complete' with nodes = 900000 would take",
        ),
        (
            {"model": {"kind": "mlp", "hidden": [1_000_000, 1_000_000]}},
            r"model\.kind = 'mlp' with .* parameters",
        ),
        (
            {"data": {"kind": "synthetic-classification", "n": 10**9, "features": 10**4}},
            r"data\.kind = 'synthetic-classification' would take about",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence_at_once(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=f"{words}.*--force"):
        outlined(**changes)


def test_a_month_is_too_long_and_force_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = module.Estimate({"model": 1.0}, 2 * MOST_SECONDS)
    with pytest.raises(UserError, match=r"at least 60 days.*--force"):
        refuse_beyond_machine(slow)
    monkeypatch.setattr(module, "free_memory", lambda: 1000.0)
    with pytest.raises(UserError, match="this machine has 1 kB free"):
        outlined()
    from gossamer.run.outline import outline

    assert outline(configured(), force=True).plan.nodes


def test_more_than_any_machine_is_refused_by_the_key() -> None:
    for key, value in (("nodes", 2147483648), ("rounds", 10**18), ("data__train_rows", 10**10)):
        with pytest.raises(UserError, match="must be at most"):
            configured(**{key: value})
