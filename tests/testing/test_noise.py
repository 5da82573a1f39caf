"""Every noise of ours adds what it states, and each way of not doing so is caught."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer.mechanism.noise import Levels, Mechanism, families
from gossamer.mechanism.noise.base import Place
from gossamer.mechanism.noise.gaussian import Gaussian, GaussianNoise
from gossamer.mechanism.noise.shaped import Laplace
from gossamer.testing import check_noise

SLOW = ("truncated-gaussian", "truncated-generalised")  # inverted numerically


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in families._kinds])
def test_our_noises_pass(kind: str) -> None:
    noise = families.parse({"kind": kind, **({"shape": 3.0} if kind == "truncated-generalised" else {})})
    check_noise(noise, end=4.0 if noise.truncated else math.inf)


class Boasting(Gaussian):
    def release(self, sigma: float, *rest: Any) -> Any:
        return super().release(2 * sigma, *rest)


@dataclass(frozen=True)
class Drawn(GaussianNoise):
    how: str = ""

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        if self.how == "thin":
            super().draw(at, sums, 0.8 * scale, ready)
        elif self.how == "one draw":
            super().draw(at._replace(draw=0), sums, scale, ready)
        elif self.how == "own":
            sums += torch.randn_like(sums) * scale[:, None].to(sums)
        elif self.how == "alike":
            row = torch.zeros(1, sums.shape[1])
            super().draw(at._replace(nodes=at.nodes[:1]), row, scale[:1], ready)
            sums += row
        elif self.how == "stops":
            super().draw(at, sums, scale if bool((scale > 0).all()) else 0 * scale, ready)


@dataclass(frozen=True, kw_only=True)
class Broken(Gaussian):
    how: str

    def make(self, levels: Levels, ends: Any) -> Mechanism:
        return Drawn(levels, how=self.how)


class ThinLaplace(Laplace):
    def make(self, levels: Levels, ends: Any) -> Mechanism:
        made: Any = super().make(levels, ends)

        class Thin(type(made)):  # type: ignore[misc]
            def draw(self, at: Any, sums: Any, scale: Any, ready: Any) -> None:
                super().draw(at, sums, 0.8 * scale, ready)

        return Thin(made.levels, made.noise, made.ends)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        (Boasting(), "plans 2 sensitivities of noise and puts 1 on file"),
        (Broken(how="thin"), "states noise of 1, and 0.8"),
        (Broken(how="none"), "states noise of 1, and 0 is left"),
        (Broken(how="one draw"), "uses noise of one draw again in the next"),
        (Broken(how="own"), "draws from elsewhere than the stream"),
        (Broken(how="alike"), "is left of it to who sees the other nodes' sums"),
        (Broken(how="stops"), "adds nothing once one node's budget is spent"),
        (ThinLaplace(), "where its release states .* it adds less than it states"),
    ],
)
def test_a_broken_noise_is_caught(noise: Any, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_noise(noise)


def test_what_is_left_of_correlated_noise_must_be_stated() -> None:
    """Correlated over nodes it is still each node's full size; whoever sees the others knows most of it."""
    together = 0.1 * torch.eye(4) + 0.9

    class Correlated(Gaussian):
        honest = True

        def make(self, levels: Levels, ends: Any) -> Mechanism:
            made = GaussianNoise(levels, together)
            if not self.honest:
                made.__dict__["_left"] = [1.0] * 4
            return made

        def release(self, sigma: float, *rest: Any) -> Any:
            one = super().release(sigma, *rest)
            return replace(one, sigma=one.sigma * 0.3) if self.honest else one

    class Dishonest(Correlated):
        honest = False

    check_noise(Correlated())
    with pytest.raises(AssertionError, match="state what is left, or add more"):
        check_noise(Dishonest())
