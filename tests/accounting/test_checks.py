"""What no accountant takes for ε or δ."""

import math

import pytest
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import check_delta, check_epsilon


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_delta_lies_strictly_between_0_and_1(delta):
    with expect_refusal("delta", delta, remedy=True):
        check_delta(delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_is_positive_and_finite(epsilon):
    with expect_refusal("epsilon", epsilon, remedy=True):
        check_epsilon(epsilon)


def test_what_can_be_asked_for_passes():
    for value in (5e-324, 0.5, 1 - 1e-16):
        check_delta(value)
        check_epsilon(value)
    check_epsilon(1e300)
