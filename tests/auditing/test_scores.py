"""What an attacker knows of the mechanism."""

from __future__ import annotations

import pytest
from tests.support.audits import on_axes, outlined

from gossamer.auditing.scores import Attacker


@pytest.mark.parametrize(
    ("family", "deviation"), [("gaussian", 1.0), ("truncated-gaussian", 1.0), ("laplace", 2**0.5)]
)
def test_the_filter_is_told_a_standard_deviation(family: str, deviation: float) -> None:
    parts = on_axes(
        outlined(privacy__noise__family={"kind": family}, privacy__sampling={"kind": "full"}, rounds=2)
    )
    attacker = Attacker(parts, 1e4, False)
    released = parts.noise.levels(0) * parts.clip().at(0, 1).reference.double() / parts.plans[0].lot
    assert float(attacker.linear_spread(0)[0]) == pytest.approx(deviation * float(released[0]), rel=1e-5)
