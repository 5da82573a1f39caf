"""The one door: a configuration becomes what runs, or one sentence says why not, before a record is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.refusals import expect_refusal
from torch import Tensor, nn

import gossamer
from gossamer.algorithms.means import WITHOUT_NOISE, FilterMean, WindowMean
from gossamer.algorithms.wrappers import Centre, ExactMean, FinalGossip, TailAverage, exchanges_before
from gossamer.auditing.trainings import NoLedger
from gossamer.models.layers import Centred
from gossamer.results.console import summary
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.training.api import configure
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan, _takes_exact_means

SILENT = {"rounds": 3, "privacy__noise__schedule": {"kind": "none"}}


def test_models_and_graphs_follow_the_seed_alone() -> None:
    one, same, other = (outlined(**SILENT, model__kind="mlp", seed=seed) for seed in (1, 1, 2))
    first, again, another = (o.stack.flatten(o.module) for o in (one, same, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, another)
    state = torch.random.get_rng_state()
    outlined(**SILENT)
    assert torch.equal(state, torch.random.get_rng_state())  # the caller's randomness is left alone


def test_no_communication_is_a_graph_without_links() -> None:
    alone = outlined(**SILENT, baseline="no-communication")
    assert all(len(list(alone.topology.edges(t))) == 0 for t in range(3))


def test_a_module_of_ones_own_replaces_the_models_and_may_not_mix_records() -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    made = Plan.of(configured(**SILENT), module=own)
    assert made.module is own
    assert made.stack.dim == 640
    with expect_refusal(key="model", names="BatchNorm1d", remedy=True):
        Plan.of(configured(**SILENT), module=nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10)))


def test_a_module_that_looks_at_the_lot_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x / 255 if x.max() > 1 else x)

    with expect_refusal(key="model", names="Looks"):
        Plan.of(configured(**SILENT), module=Looks())
    with expect_refusal(key="model", names="Python"):
        gossamer.run("quickstart", {"rounds": 4}, module=Looks(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_private_mean_goes_in_front_of_the_model_and_of_the_rounds() -> None:
    made = outlined(**SILENT, privacy__centre=0.1, privacy__clip={"kind": "constant", "bound": 1.0})
    assert isinstance(made.module, Centred)
    assert isinstance(made.algorithm, Centre)
    assert made.stack.dim == 64 + 650
    assert made.privacy.draws == 4
    with expect_refusal(key="privacy.centre", value="0.1", names="model.kind shallow-cnn"):
        outlined(
            **SILENT,
            privacy__centre=0.1,
            privacy__clip={"kind": "constant", "bound": 1.0},
            model__kind="shallow-cnn",
        )


SILENT_OUTLINE = {"privacy__noise__schedule": {"kind": "none"}}  # nothing to calibrate


def test_a_rounds_bytes_are_four_for_every_number_over_every_link() -> None:
    """Push-sum sends its model and its weight; on the one-peer graph every node sends to one other a round."""
    made = outlined(rounds=3, **SILENT_OUTLINE)
    d = made.stack.dim
    assert d == 64 * 10 + 10
    assert made.bytes_per_round == 4 * (d + 1) * 8
    assert outlined(rounds=3, **SILENT_OUTLINE, baseline="no-communication").bytes_per_round == 0


def test_the_loss_is_that_of_the_configuration() -> None:
    outputs = torch.tensor([[2.0, -1.0] + [0.0] * 8])
    loss = outlined(rounds=3, **SILENT_OUTLINE).loss(outputs, torch.tensor([0]))
    torch.testing.assert_close(loss, torch.logsumexp(outputs, 1) - 2.0)


def test_seeded_noise_is_said_to_be_so() -> None:
    assert not outlined(rounds=3, **SILENT_OUTLINE).seeded
    assert outlined(rounds=3, **SILENT_OUTLINE, privacy__noise__source="seeded").seeded


def test_a_baseline_runs_something_else_than_was_asked_for() -> None:
    central = outlined(rounds=3, **SILENT_OUTLINE, baseline="central")
    assert (central.asked.nodes, central.config.nodes) == (8, 1)
    assert central.pool is not None
    assert central.pool.records == 1437
    assert len(central.privacy.nodes) == 1
    assert outlined(rounds=3, **SILENT_OUTLINE).pool is None


def test_a_checked_mistake_shows_before_anything_is_planned() -> None:
    with expect_refusal(key="privacy.clip.kind", value="none"):
        outlined(rounds=3, privacy__clip={"kind": "none"})


def test_it_is_the_outline_with_its_figures() -> None:
    made = gossamer.plan("quickstart", {"rounds": 4})
    assert isinstance(made, Plan)
    assert made.result == summary(made)
    assert (made.epsilon_proven, made.epsilon_claimed) == (
        made.result["epsilon_proven"],
        made.result["epsilon_claimed"],
    )
    assert repr(made).startswith("Plan of quickstart: dyn-d2p")
    assert made._repr_html_().startswith("<div")


def test_a_recipe_may_be_a_name_tables_or_a_configuration() -> None:
    config = configure("quickstart", {"rounds": 4})
    by_name = gossamer.plan("quickstart", {"rounds": 4}).result
    assert gossamer.plan(config).result == by_name
    assert gossamer.plan(config.model_dump(exclude_none=True)).result == by_name
    assert gossamer.plan(config, {"rounds": 5}).config.rounds == 5


EXACT = {"algorithm__mixes": "exact", "rounds": 3, "privacy__claim": "none"}


def test_one_peer_graphs_take_windows_and_others_filters() -> None:
    windows: Any = outlined(**EXACT).algorithm
    assert isinstance(windows, ExactMean)
    assert isinstance(windows.mean, WindowMean)
    assert windows.mixes == windows.mean.exchanges == 3
    rings: Any = outlined(**EXACT, topology__kind="ring").algorithm
    assert isinstance(rings.mean, FilterMean)
    assert rings.mean.exchanges == 4
    complete: Any = outlined(**EXACT, topology__kind="complete").algorithm
    assert complete.mean.exchanges == 1


def test_the_plan_says_so() -> None:
    assert outlined(**EXACT).privacy.notes[-1] == (
        "Every gradient is the exact mean over all nodes, by 3 exchanges; all nodes hold one model to the last bit."
    )
    assert (
        "1 exchange; models of two nodes differ by rounding"
        in outlined(**EXACT, topology__kind="complete").privacy.notes[-1]
    )


def test_the_grid_follows_the_least_noise() -> None:
    o = outlined(
        **EXACT,
        privacy__epsilon=None,
        privacy__noise={"multiplier": 2.0},
        privacy__clip={"kind": "constant", "bound": 0.5},
    )
    mean: Any = o.algorithm.mean  # type: ignore[attr-defined]
    least = min(2.0 * 0.5 / node.lot for node in o.privacy.nodes)
    assert 2.0**-25 < mean.grid / (least / 8**0.5) <= 2.0**-22
    assert outlined(**EXACT, baseline="non-private").algorithm.mean.grid == WITHOUT_NOISE  # type: ignore[attr-defined]


def test_final_exchanges_are_left_out_and_other_pieces_stay_inside() -> None:
    made: Any = outlined(
        **EXACT, algorithm__tail_average=0.5, algorithm__final_gossip=20, privacy__centre=0.5,
        privacy__clip={"kind": "constant", "bound": 1.0},
    ).algorithm  # fmt: skip
    assert isinstance(made, ExactMean)
    # By draws: the records' mean is one before round 0.
    assert [exchanges_before(made, t, drawn) for t, drawn in ((0, 0), (1, 2), (2, 3))] == [0, 6, 9]
    assert exchanges_before(made.inner, 2, 3) == 2
    assert isinstance(made.inner, Centre)
    assert made.inner.rounds == 0
    assert isinstance(made.inner.inner, TailAverage)
    assert not isinstance(made.inner.inner.inner, FinalGossip)


@pytest.mark.parametrize("baseline", ["central", "no-communication"])
def test_who_is_alone_exchanges_nothing(baseline: str) -> None:
    config = configured(**EXACT, baseline=baseline)
    o = Plan.of(config)
    assert not _takes_exact_means(o.config)
    assert not isinstance(o.algorithm, ExactMean)
    assert o.bytes_per_round == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"topology__dropout": 0.1}, "topology.dropout 0.1"),
        ({"topology__slow": {"share": 0.5, "every": 2}}, "topology.slow messages"),
        ({"topology__kind": "directed-ring"}, "algorithm.mixes exact one-peer-exponential"),
        ({"topology__kind": "exponential"}, "algorithm.mixes exact one-peer-exponential"),
        (
            {"topology__kind": "resampled", "topology__base": {"kind": "erdos-renyi", "p": 0.5}, "topology__every": 2},
            "algorithm.mixes exact one-peer-exponential",
        ),
        ({"algorithm__kind": "dp-dinno"}, "algorithm.kind dp-dinno"),
        ({"algorithm__kind": "without-replacement"}, "algorithm.kind without-replacement"),
        (
            {
                "algorithm__kind": "dp-dkm", "model__kind": "linear", "data__positive": 3,
                "loss": {"kind": "logistic"}, "mode": "paper", "privacy__noise__multiplier": 2.0, "algorithm__lr": 0.5,
                "privacy__epsilon": None, "privacy__clip": {"kind": "assumed", "bound": 0.1},
            },
            "privacy.noise.on message",
        ),
        ({"algorithm__mixes": "nearly"}, "algorithm.mixes nearly exact"),
    ],
)  # fmt: skip
def test_what_has_no_exact_mean_is_refused_in_a_sentence(changes: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        outlined(**{**EXACT, **changes})


def test_rounds_are_those_of_one_node_with_the_mean_gradient() -> None:
    """Against plain arithmetic: x ← x − η · (mean of the nodes' private gradients at x), the noise known by its seed."""
    parts = assemble(outlined(**EXACT, privacy__noise__source="seeded", algorithm__kind="dp-dsgd"))
    o = parts.plan
    state = run(
        o.algorithm,
        o.algorithm.init(parts.x0.clone()),
        parts.reader(NoLedger()),
        SimulatedExchange(o.topology),
        rounds=3,
    )
    again, x = parts.reader(NoLedger()), parts.x0.double()
    for t in range(3):
        mean = again(x.float()).double().mean(0, keepdim=True)
        x = x - o.method.bare().lr(t) * mean
    torch.testing.assert_close(state.x.double(), x.expand_as(state.x), rtol=0, atol=1e-6)
