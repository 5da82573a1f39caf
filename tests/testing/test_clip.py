"""Every clip of ours keeps its bound, and each way of not doing so is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from gossamer.mechanism.clipping import ClipStep, PublicBound, clips
from gossamer.testing import check_clip

OURS: dict[str, dict[str, Any]] = {
    "constant": {"bound": 0.7}, "decaying": {"start": 2.0, "ratio": 5.0}, "sequence": {"values": [3.0, 1.0]},
    "normalised": {}, "quantile": {}, "assumed": {"bound": 1.0}, "record-ball": {}, "none": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", list(clips._kinds))
def test_our_clips_pass(kind: str) -> None:
    check_clip(clips.parse({"kind": kind, **OURS[kind]}))


@dataclass(kw_only=True)
class Own(PublicBound):
    weigh: Callable[[Tensor], Tensor] = field(default=lambda norms: (1 / norms.clamp_min(1e-30)).clamp_max(1.0))
    reference: float = 1.0

    def make(self, draws: int, lots: Tensor, largest: Tensor) -> Any:
        return replace(self)

    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(self.weigh, torch.full((nodes,), self.reference), enforced=True)


class SaysNo(Own):
    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(self.weigh, torch.ones(nodes), enforced=False)


class LetsGoLater(Own):
    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(self.weigh if k < 5 else torch.ones_like, torch.ones(nodes), enforced=True)


class FollowsInSecret(Own):
    def follow(self, norms: Tensor, *rest: Any) -> None:
        self.reference = 1.0 + float(norms.mean())


class Forgets(FollowsInSecret):
    follows_records: ClassVar[bool] = True


class DrawsItsBound(Own):
    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(self.weigh, 1 + torch.rand(nodes), enforced=True)


BROKEN = [
    (Own(weigh=torch.ones_like), r"a record's vector of length .* times the bound"),
    (Own(weigh=lambda norms: 2 / (norms + 1)), "times the bound after its weight"),
    (Own(weigh=lambda norms: 1 / norms), "finite weight of at least 0: also 0"),
    (Own(reference=0.0), "must be a positive number for each of the 3 nodes"),
    (SaysNo(), "says that it enforces its bound, and its draw 0 says that it does not"),
    (LetsGoLater(), "in draw 5 a record's vector"),
    (FollowsInSecret(), "moves its bound by the records' norms, and follows_records is not set"),
    (Forgets(), r"another bound after a checkpoint; state\(\) must hold"),
    (DrawsItsBound(), "says another bound the second time"),
]


@pytest.mark.parametrize(("clip", "says"), BROKEN)
def test_a_broken_clip_is_caught(clip: Any, says: str) -> None:
    check_clip(Own())
    with pytest.raises(AssertionError, match=says):
        check_clip(clip)
