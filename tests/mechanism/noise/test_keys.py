"""Secrets of pairs: both ends derive the same key, nobody else does, and public keys that are none are refused."""

from __future__ import annotations

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.support.refusals import expect_refusal

from gossamer.accounting.secrets import Secrets
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import pairwise
from gossamer.mechanism.noise.pairwise import pair_streams


def two_sides(monkeypatch, contexts=("run 0", "run 0")):
    """Node 0 here and node 1 there, with the private keys that each makes."""
    private = [X25519PrivateKey.generate(), X25519PrivateKey.generate()]
    public = [key.public_key().public_bytes_raw().hex() for key in private]
    streams = []
    for node, context in enumerate(contexts):
        monkeypatch.setattr(pairwise.X25519PrivateKey, "generate", lambda node=node: private[node], raising=False)
        streams.append(pair_streams([node], Secrets.complete(2), lambda own: public, context)[0, 1])
    return streams


def first(stream: Stream) -> list[float]:
    out = torch.zeros(8)
    stream.normal_rows(5, [0], 0, out[None], 1.0)
    return out.tolist()


@pytest.fixture
def known_keys(monkeypatch):
    stand_in = type("Known", (), {"generate": staticmethod(X25519PrivateKey.generate)})
    monkeypatch.setattr(pairwise, "X25519PrivateKey", stand_in)
    return monkeypatch


def test_both_ends_draw_the_same_masks(known_keys) -> None:
    one, other = two_sides(known_keys)
    assert first(one) == first(other)
    assert not one.is_seeded


def test_another_run_or_another_start_has_other_masks(known_keys) -> None:
    one, other = two_sides(known_keys, ("run 0", "run 1"))
    assert first(one) != first(other)


def test_every_pair_of_a_hosted_node_has_a_stream_of_its_own() -> None:
    public = [X25519PrivateKey.generate().public_key().public_bytes_raw().hex() for _ in range(6)]

    def join(own: list[str]) -> list[str]:
        public[2:4] = own
        return public

    made = pair_streams(range(2, 4), Secrets.complete(6), join, "run 0")
    assert sorted(made) == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (2, 4), (2, 5), (3, 4), (3, 5)]
    assert len({tuple(first(stream)) for stream in made.values()}) == 9


@pytest.mark.parametrize(
    ("stated", "words"),
    [("00" * 32, "node 1"), (None, "nodes state")],
)
def test_keys_that_are_none_are_refused(stated, words) -> None:
    def join(own: list[str]) -> list[str]:
        return [own[0], stated or own[0]]

    with expect_refusal(names=words):
        pair_streams([0], Secrets.complete(2), join, "run 0")
