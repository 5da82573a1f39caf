"""The families of noise: each one says of itself what its releases do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.support.mechanism import levels
from tests.support.refusals import expect_refusal

from gossamer.mechanism.noise import Participation, families

PART = Participation("full", 1.0, "add-remove")
OPTIONS: dict[str, dict[str, Any]] = {"truncated-generalised": {"shape": 3.0}}


@pytest.mark.parametrize("name", list(families))
def test_a_family_is_what_it_says_of_its_releases(name: str) -> None:
    noise = families.parse({"kind": name, **OPTIONS.get(name, {})})
    noise = noise.for_node_count(2) if noise.cancels else noise  # of such only that says what it hides
    end = 3.0 if noise.truncated else math.inf
    release = noise.release(2.0, 0.5, 10, PART, end)
    assert release.kind == noise.released_as.kind
    assert release.noise_multiplier == pytest.approx(4.0 * noise.kept)
    assert getattr(release, "bound", math.inf) == pytest.approx(2.0 * end)
    assert noise.without_proof is None
    assert noise.for_node_count(7).release(2.0, 0.5, 10, PART, end) == release
    made = noise.make(levels(4.0, 2), np.full(2, end))
    assert made.release(1, 4.0, 0.5, 10, PART, enforced=True) == release


def test_an_unknown_family_is_refused_with_those_that_there_are() -> None:
    with expect_refusal(
        key="privacy.noise.family.kind", value="cauchy", names="truncated-laplace truncated-gaussian", remedy=True
    ):
        families.parse({"kind": "cauchy"})
