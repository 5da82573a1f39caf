"""Full lots end to end: the closed form's ε, the mean that is paid for, other heads, and the frontier's table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gossamer import papers
from gossamer.accounting.gaussian import gdp_mu
from gossamer.config import recipes
from gossamer.errors import UserError
from gossamer.kernels.centred_sum import CentredSum
from gossamer.kernels.clipped_sum import clipped_sum
from gossamer.kernels.oracle import per_sample_gradients
from gossamer.methods.objective import per_sample_loss
from gossamer.models.centred import Centred, centre_records
from gossamer.run.api import configure, plan, run
from gossamer.studies.reproduce import frontier
from gossamer.studies.reproduce.command import reproduce

DIGITS: dict[str, Any] = {
    "nodes": 4,
    "rounds": 30,
    "data": {"kind": "digits", "transform": ["unit-norm"]},
    "model": {"kind": "softmax", "bias": False},
    "topology": {"kind": "one-peer-exponential"},
    "algorithm": {"kind": "full-lot"},
    "privacy": {"epsilon": 8.0, "delta": 1e-4},
}


def test_full_lots_are_priced_by_the_closed_form() -> None:
    p = plan(DIGITS).plan
    assert p.nodes[0].factor == pytest.approx(math.sqrt(30) / gdp_mu(8.0, 1e-4), rel=1e-6)
    assert p.figures()["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_the_mean_is_one_more_draw_with_its_share_of_the_budget(share: float) -> None:
    p = plan(DIGITS, {"privacy.centre": share}).plan
    spent = [(p.nodes[0].factor * p.shape(k)) ** -2 for k in range(p.draws)]
    assert p.draws == 31
    assert math.fsum(spent) == pytest.approx(gdp_mu(8.0, 1e-4) ** 2, rel=1e-6)
    assert spent[0] / math.fsum(spent) == pytest.approx(share, rel=1e-6)


def test_a_run_with_a_private_mean_proves_what_was_asked_from_its_ledgers(tmp_path: Path) -> None:
    outcome = run(DIGITS, {"privacy.centre": 0.05}, out=tmp_path / "run")
    assert outcome.certificate["draws"] == [31] * 4
    assert outcome.result["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)
    assert outcome.result["consensus_distance"] < 1e-2
    assert outcome.result["accuracy_mean"] > 0.85  # 0.92 to 0.94 seen
    proofs = [
        json.loads(line)["epsilon_proven"]
        for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert proofs == sorted(proofs)
    assert proofs[-1] == pytest.approx(8.0, rel=1e-6)


def test_centred_sums_are_gradients_at_centred_records() -> None:
    torch.manual_seed(0)
    head, loss = nn.Sequential(nn.Flatten(), nn.Linear(5, 3, bias=False)), per_sample_loss(3)
    x, y = torch.randn(2, 7, 5), torch.randint(0, 3, (2, 7))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 5:] = False
    points = torch.randn(2, 20)
    vector = CentredSum(clipped_sum(head, loss), 5, centre_records)
    start = points.clone()
    start[:, :5] = 0
    sums, norms = vector(start, x, y, mask, lambda n: (0.5 / n).clamp_max(1))
    shares = (0.5 / x.norm(dim=2)).clamp_max(1) * mask
    assert torch.allclose(sums[:, :5], (shares[..., None] * x).sum(1), atol=1e-5)
    assert not sums[:, 5:].any()
    assert torch.allclose(norms, x.norm(dim=2) * mask)
    sums, norms = vector(points, x, y, mask, lambda n: (0.1 / n).clamp_max(1))
    moved = x - points[:, None, :5]
    moved = moved / moved.norm(dim=2, keepdim=True)
    each = per_sample_gradients(head, loss, points[:, 5:].contiguous(), moved, y)
    weights = (0.1 / each.norm(dim=2)).clamp_max(1) * mask
    assert torch.allclose(sums[:, 5:], (weights[..., None] * each).sum(1), atol=1e-5)
    assert not sums[:, :5].any()
    again, _ = vector(points + torch.eye(2, 20), x, y, mask, lambda n: (0.1 / n).clamp_max(1))
    assert not torch.allclose(again, sums)  # another mean, other centred records


def test_a_record_that_is_not_finite_stays_out_of_the_mean() -> None:
    vector = CentredSum(lambda *_, **__: pytest.fail("no gradient yet"), 2, centre_records)
    x = torch.tensor([[[1.0, 2.0], [math.inf, 0.0], [math.nan, 0.0]]])
    sums, _ = vector(
        torch.zeros(1, 3), x, torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool), torch.ones_like
    )
    assert torch.allclose(sums, torch.tensor([[1.0, 2.0, 0.0]]))


def test_the_centred_model_is_its_head_at_centred_records() -> None:
    torch.manual_seed(0)
    model = Centred(nn.Linear(4, 2), 4)
    model.centre.data = torch.randn(4)
    x = torch.randn(3, 4)
    moved = x - model.centre
    assert torch.allclose(model(x), model.head(moved / moved.norm(dim=1, keepdim=True)))


@pytest.mark.parametrize(
    ("kind", "loss", "lr"),
    [
        ("softmax", "cross-entropy", 60.0),
        ("softmax", "logistic", 60.0),
        ("softmax", "squared", 10.0),
        ("mlp", "cross-entropy", 20.0),
        ("mlp", "logistic", 15.0),
        ("mlp", "squared", 5.0),
    ],
)
def test_heads_and_losses_train_on_full_lots(kind: str, loss: str, lr: float, tmp_path: Path) -> None:
    model = {"kind": "mlp", "hidden": [32]} if kind == "mlp" else {"kind": "softmax"}
    changes = {"model": model, "loss": {"kind": loss}, "privacy.epsilon": 100.0, "algorithm.lr": lr}
    assert run(DIGITS, changes, out=tmp_path / "run").result["accuracy_mean"] > 0.6


def test_losses_have_their_closed_forms() -> None:
    outputs, y = torch.tensor([[0.2, -1.0, 0.5]]), torch.tensor([2])

    def loss(kind: str, classes: int | None = 3) -> Any:
        return per_sample_loss(classes, configure(DIGITS, {"loss": {"kind": kind}}))

    assert float(loss("squared")(outputs, y)) == pytest.approx(0.5 * (0.2**2 + 1.0 + 0.5**2))
    logistic = math.log1p(math.exp(0.2)) + math.log1p(math.exp(-1.0)) + math.log1p(math.exp(-0.5))
    assert float(loss("logistic")(outputs, y)) == pytest.approx(logistic)
    assert torch.equal(loss("cross-entropy")(outputs, y), per_sample_loss(3)(outputs, y))
    with pytest.raises(UserError, match="needs classes"):
        loss("logistic", None)


def test_momentum_averaging_and_gossip_go_around_every_method(tmp_path: Path) -> None:
    for kind in ("dp-dsgt", "dyn-d2p"):
        changes = {
            "algorithm": {
                "kind": kind,
                "lr": 1.0,
                "momentum": 0.5,
                "tail_average": 0.3,
                "mixes": 2,
                "final_gossip": 30,
            },
            "privacy.sampling": {"kind": "full"},
        }
        outcome = run({**DIGITS, "topology": {"kind": "ring"}}, changes, out=tmp_path / kind)
        assert outcome.result["consensus_distance"] < 0.05


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy.centre": 1.0}, "privacy.centre"),
        (
            {"privacy.centre": 0.1, "privacy.clip": {"kind": "quantile"}, "algorithm.lr": 1.0},
            "stays the same",
        ),
        ({"privacy.centre": 0.1, "model": {"kind": "mnist-cnn"}}, "rows of numbers"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1, "final_gossip": 3}}, "sums over neighbours"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1, "mixes": 3}}, "sums over neighbours"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1}, "privacy.centre": 0.1}, "agree on a mean"),
        ({"algorithm.momentum": 1.0, "algorithm.lr": 1.0}, "momentum"),
        ({"algorithm.tail_average": 1.5}, "tail_average"),
        ({"algorithm.mixes": 0}, "mixes"),
        ({"algorithm.final_gossip": -1}, "final_gossip"),
        ({"loss": {"kind": "hinge"}}, "loss"),
    ],
)
def test_mistakes_are_one_sentence(changes: dict[str, Any], words: str) -> None:
    recipe = {**DIGITS, "topology": {"kind": "ring"}, "data": {"kind": "digits"}}
    with pytest.raises(UserError, match=words) as caught:
        plan(recipe, changes)
    assert "\n" not in str(caught.value)


def test_every_frontier_recipe_resolves_and_its_table_names_them() -> None:
    named = [name for name in recipes.names() if name.startswith("frontier/")]
    used = {recipe for block in frontier.read("frontier/table").block for recipe in block.recipes.values()}
    assert used == set(named)
    for name in named:
        assert configure(name).privacy.adjacency == "add-remove"


SMALL = """
layout = "frontier"
title = "A small one"
seeds = { small = 2, full = 2 }

[[block]]
title = "digits"
budgets = [4.0, 8.0]
recipes = { "pixels" = "RECIPE", "centred" = "RECIPE" }
set = { rounds = 10 }

[block.printed]
paper = "A paper"
values = ["50", "60"]
recipe = "quickstart"
"""


def test_the_table_is_made_of_runs_and_goes_into_a_file(tmp_path: Path) -> None:
    import tomli_w

    recipe = tmp_path / "digits.toml"
    recipe.write_text(tomli_w.dumps(DIGITS))
    definition = tmp_path / "small.toml"
    definition.write_text(SMALL.replace("RECIPE", str(recipe)))
    page = tmp_path / "page.md"
    mark = f"<!-- {definition} -->"
    page.write_text(f"before\n{mark}\nold\n<!-- end -->\nafter\n")
    found = reproduce(str(definition), out=tmp_path / "out", jobs=1, quiet=True, into=page)
    assert found["failed"] == {}
    first, second = found["rows"]
    assert first["columns"]["pixels"]["epsilon_proven"] == pytest.approx(4.0, rel=1e-6)
    # Twice as far: the ε of 2μ.
    assert gdp_mu(second["replace_one"], 1e-4) == pytest.approx(2 * gdp_mu(8.0, 1e-4), rel=1e-3)
    assert first["paper"]["proven"] > first["paper"]["claimed"] * 0.9
    text = page.read_text()
    assert text.startswith(f"before\n{mark}\n| experiment")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    assert (tmp_path / "out/table.csv").read_text().count("\n") == 3


def test_as_is_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no comparison"):
        reproduce("frontier/table", out=tmp_path / "none", as_is=True)
    definition = tmp_path / "small.toml"
    definition.write_text(SMALL.replace("RECIPE", "frontier/fashion-mnist"))
    (tmp_path / "comparison.json").write_text("{}")
    found = reproduce(str(definition), out=tmp_path, as_is=True, quiet=True)
    assert found["cells_run"] == found["cells_kept"] == 0
    assert "| digits | — | — | — | — | — | 50 | " in (tmp_path / "table.md").read_text()


def test_a_file_without_the_marks_is_refused_before_anything_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(UserError, match="has no lines"):
        reproduce("frontier/table", out=tmp_path / "out", into=page)
    with pytest.raises(UserError, match="cannot be read"):
        reproduce("frontier/table", out=tmp_path / "out", into=tmp_path / "none.md")
    with pytest.raises(UserError, match="frontier/table"):
        reproduce("dyn-d2p/table2", out=tmp_path / "out", into=page)
    assert not (tmp_path / "out").exists()
    assert "frontier/table" in papers.names()
