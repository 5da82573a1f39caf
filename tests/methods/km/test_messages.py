"""Noise on the messages: what is sent is perturbed, what stays is not, and both are on file."""

from __future__ import annotations

import math

import numpy as np
import torch
from tests.support.mechanism import Book, noise_of

from gossamer.accounting.proven import proven
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.shaped import Laplace
from gossamer.methods.km.messages import NoisyMessages


class Exchange:
    bytes_sent = 0

    def __call__(self, t: int, x: torch.Tensor) -> torch.Tensor:
        return x


def test_noisy_messages_perturb_what_is_sent_and_log_every_message_and_the_bare_end() -> None:
    book = Book()
    messages = NoisyMessages(
        Exchange(), noise=noise_of(1.0, 2, Laplace()), scale=torch.tensor([0.5, 2.0]), stream=Stream.seeded(1),
        book=book, nodes=[0, 1], adjacency="replace-one",
    )  # fmt: skip
    x = torch.zeros(2, 20_000)
    sent = messages(0, x)
    assert float(x.abs().max()) == 0  # the node keeps its own iterate as it was
    np.testing.assert_allclose(sent.abs().mean(1), [0.5, 2.0], rtol=0.05)
    assert not torch.equal(sent, messages(1, x))
    messages.publish(20_000)
    events = [event for _, event in book.events]
    assert [event.release.kind for event in events] == ["laplace"] * 4 + ["none"] * 2
    assert all(math.isinf(event.release.sensitivity) for event in events)
    assert math.isinf(proven(events, 1e-3, "replace-one").epsilon)
