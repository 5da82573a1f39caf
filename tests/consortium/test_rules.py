"""Which methods sites can run, and which are refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tests.support.refusals import expect_refusal

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import Centre, ExactMean, FinalGossip, Mixes, Momentum, Wrapper
from gossamer.consortium.exchange import Rule, Shares, Sums, TrackedAverages, channel_of, rule_of

LR = Exponential(0.1)
PUSH_SUM = PushSum(lr=LR)


def test_methods_have_the_rule_that_they_survive_by() -> None:
    assert isinstance(rule_of(PUSH_SUM), Shares)
    assert isinstance(rule_of(Momentum(Mixes(PUSH_SUM, times=2), beta=0.9)), Shares)
    assert type(rule_of(DSGD(lr=LR))) is Rule
    assert isinstance(rule_of(DSGT(lr=LR)), TrackedAverages)
    assert isinstance(rule_of(DiNNO(lr=LR)), Sums)


class Own(PushSum):
    """A method that changes push-sum in ways nobody here knows."""


@dataclass(frozen=True)
class Around(Wrapper):
    pass


def test_what_is_not_known_to_survive_is_refused_by_name() -> None:
    refused: list[tuple[Any, str]] = [
        (Own(lr=LR), "algorithm.kind peers"),
        (ExactMean(PUSH_SUM, mean=None), "ExactMean PushSum"),
        (Around(PUSH_SUM), "Around PushSum"),
        (FinalGossip(DSGD(lr=LR), last=3, rounds=2), "FinalGossip DSGD"),
    ]
    for algorithm, why in refused:
        with expect_refusal(names=why):
            rule_of(algorithm)


def test_variables_that_are_agreed_upon_apart_have_channels_of_their_own() -> None:
    algorithm = FinalGossip(Centre(Mixes(PUSH_SUM, times=2), size=1, bound=1.0, rounds=3), last=9, rounds=2)
    assert [channel_of(algorithm, 0, call) for call in range(5)] == [1, 1, 1, 0, 0]
    assert [channel_of(algorithm, 4, call) for call in range(2)] == [0, 0]
    assert [channel_of(algorithm, 9, call) for call in range(4)] == [0, 0, 2, 2]


def test_a_new_epoch_counts_anew() -> None:
    state = PUSH_SUM.init(torch.full((1, 2), 6.0))._replace(w=torch.full((1, 1), 3.0))
    renewed = rule_of(PUSH_SUM).renewed(state)
    assert torch.equal(renewed.x, torch.full((1, 2), 2.0))
    assert float(renewed.w) == 1.0
    dsgt = DSGT(lr=LR)
    tracked = dsgt.init(torch.zeros(1, 2))._replace(y=torch.ones(1, 2), g=torch.full((1, 2), 4.0))
    assert torch.equal(rule_of(dsgt).renewed(tracked).y, tracked.g)  # Σ y = Σ g over whoever is there
    dinno = DiNNO(lr=LR)
    dual = dinno.init(torch.zeros(1, 2))._replace(y=torch.ones(1, 2))
    assert not rule_of(dinno).renewed(dual).y.any()
