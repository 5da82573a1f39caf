"""Which way a mean is taken, what is refused, and that a round is the central one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.configurations import configured, outlined

from gossamer.algorithms.means import WITHOUT_NOISE, FilterMean, WindowMean
from gossamer.algorithms.wrappers import Centre, ExactMean, FinalGossip, TailAverage, exchanges_before
from gossamer.auditing.stacked import Tally
from gossamer.errors import UserError
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.training.assemble import assemble
from gossamer.training.exact import takes_exact_means
from gossamer.training.outline import outline

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
    assert outlined(**EXACT).plan.notes[-1] == (
        "Every gradient is the exact mean over all nodes, by 3 exchanges; all nodes hold the same model to the last bit."
    )
    assert (
        "1 exchange; models of two nodes differ by rounding"
        in outlined(**EXACT, topology__kind="complete").plan.notes[-1]
    )


def test_the_grid_follows_the_least_noise() -> None:
    o = outlined(
        **EXACT,
        privacy__epsilon=None,
        privacy__noise={"multiplier": 2.0},
        privacy__clip={"kind": "constant", "bound": 0.5},
    )
    mean: Any = o.algorithm.mean  # type: ignore[attr-defined]
    least = min(2.0 * 0.5 / node.lot for node in o.plan.nodes)
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
    o = outline(config)
    assert not takes_exact_means(o.config)
    assert not isinstance(o.algorithm, ExactMean)
    assert o.bytes_per_round == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"topology__dropout": 0.1}, "topology.dropout = 0.1 loses messages"),
        ({"topology__kind": "ring", "topology__slow": {"share": 0.5, "every": 2}}, "topology.slow loses messages"),
        ({"topology__kind": "directed-ring"}, "use 'one-peer-exponential'"),
        ({"topology__kind": "exponential"}, "use 'one-peer-exponential'"),
        (
            {"topology__kind": "resampled", "topology__base": {"kind": "erdos-renyi", "p": 0.5}, "topology__every": 2},
            "links that stay",
        ),
        ({"algorithm__kind": "dp-dinno", "topology__kind": "ring"}, "exchanges sums over neighbours, not means"),
        ({"algorithm__kind": "without-replacement"}, "has no rounds of gossip"),
        (
            {
                "algorithm__kind": "dp-dkm", "topology__kind": "ring", "model__kind": "linear", "data__positive": 3,
                "loss": {"kind": "logistic"}, "mode": "paper", "privacy__noise__multiplier": 2.0, "algorithm__lr": 0.5,
                "privacy__epsilon": None, "privacy__clip": {"kind": "assumed", "bound": 0.1},
            },
            "pays for one message a round",
        ),
        ({"algorithm__mixes": "nearly"}, "algorithm.mixes = 'nearly' must be a whole number or 'exact'"),
    ],
)  # fmt: skip
def test_what_has_no_exact_mean_is_refused_in_a_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        outlined(**{**EXACT, **changes})
    assert str(refused.value).count(". ") == 0


def test_rounds_are_those_of_one_node_with_the_mean_gradient() -> None:
    """Against plain arithmetic: x ← x − η · (mean of the nodes' private gradients at x), the noise known by its seed."""
    parts = assemble(outlined(**EXACT, privacy__noise__source="seeded", algorithm__kind="dp-dsgd"))
    o = parts.outline
    state = run(
        o.algorithm,
        o.algorithm.init(parts.x0.clone()),
        parts.reader(Tally()),
        SimulatedExchange(o.topology),
        rounds=3,
    )
    again, x = parts.reader(Tally()), parts.x0.double()
    for t in range(3):
        mean = again(x.float()).double().mean(0, keepdim=True)
        x = x - o.method.bare().lr(t) * mean
    torch.testing.assert_close(state.x.double(), x.expand_as(state.x), rtol=0, atol=1e-6)
