"""Releases about which nothing can be proven, whoever looks and however much noise they claim."""

import pytest

from gossamer.accounting.observers import EVERYONE, FINAL_MODELS, coalition
from gossamer.accounting.releases import OwnNormGaussian, RawDecision, Unnoised

COMMON = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}
REASONS = [
    (OwnNormGaussian(sigma=1e6, **COMMON), "own gradient norm"),
    (RawDecision(**COMMON), "raw losses"),
    (Unnoised(**COMMON), "without noise"),
]


@pytest.mark.parametrize(("release", "word"), REASONS, ids=lambda value: getattr(value, "kind", None))
@pytest.mark.parametrize("observer", [EVERYONE, FINAL_MODELS, coalition((1, 2), target=0)])
def test_no_observer_gets_a_price(release, word, observer):
    for adjacency in ("add-remove", "replace-one"):
        assert word in release.seen_by(observer).unpriceable(adjacency)
    assert release.by_norm("add-remove") is None
    assert release.density is None
    with pytest.raises(ValueError, match=f"kind '{release.kind}'"):
        release.pair("add-remove")


def test_only_what_has_noise_has_a_multiplier():
    assert [release.noise_multiplier for release, _ in REASONS] == [1e6, 0.0, 0.0]
