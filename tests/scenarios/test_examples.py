"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where a dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


def test_own_module_on_own_table(tmp_path: Path) -> None:
    outcome = load("own_module").main(tmp_path, rounds=60)
    assert outcome.result["accuracy_mean"] > 0.85
    assert outcome.result["epsilon_proven"] <= 4.0
    assert outcome.certificate["public_constants"][0]["records"] == 110


def test_a_lasso_path_is_drawn_and_says_what_all_of_it_costs() -> None:
    """On made-up data: the example's own set has to be fetched."""
    example = load("lasso_path")
    short = {"rounds": 5, "evaluation.metric": "hold-out", "evaluation.every": 5}
    models, accuracies, cost = example.path("dp-dkm/logistic", [1.0, 0.001], short)
    assert [len(model) for model in models] == [10, 10]
    assert not any(models[0])  # so large a penalty leaves nothing
    assert any(models[1])
    assert "ε = 0.5 for each point, 0.7" in cost
    picture = example.draw(models, accuracies, [1.0, 0.001], cost)
    assert picture.count("<polyline") == 10


def test_an_operator_of_ones_own_solves_what_scikit_learn_solves() -> None:
    import torch
    from sklearn.linear_model import Lasso

    from gossamer.algorithms.base import Exponential
    from gossamer.methods.km.algorithm import KM
    from gossamer.methods.km.operators import OPERATORS
    from gossamer.methods.km.proximal import L1
    from gossamer.runtime.loop import run

    OPERATORS["davis-yin"] = load("own_operator").DavisYin
    try:
        generator = torch.Generator().manual_seed(0)
        a = torch.randn(60, 6, dtype=torch.float64, generator=generator)
        y = a @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
        algorithm = KM(lr=Exponential(1.0), operator="davis-yin", gamma=0.5, penalty=L1(weight=0.1))
        assert algorithm.draws == 1
        state = run(
            algorithm, algorithm.init(torch.zeros(1, 6, dtype=torch.float64)), lambda x: (x @ a.T - y) @ a / 60,
            lambda t, x: x, rounds=800,
        )  # fmt: skip
        theirs = Lasso(alpha=0.1, positive=True, fit_intercept=False, tol=1e-12).fit(a, y).coef_
        torch.testing.assert_close(algorithm.model(state)[0], torch.from_numpy(theirs), atol=1e-6, rtol=0)
    finally:
        del OPERATORS["davis-yin"]
