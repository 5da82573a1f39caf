"""Noise on the messages themselves: DP-dKM's Algorithm 1, lines 7 and 8.

There the answers about records stay on their node un-noised, and what is perturbed is the iterate a node sends. Its
sensitivity is a belief about the whole trajectory (Theorem 1), which nothing here enforces: releases say ∞.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.accounting.releases import Event, Release
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Mechanism, Participation
from gossamer.mechanism.noise.base import Silent
from gossamer.mechanism.reader import Book


class Exchange(Protocol):
    bytes_sent: int

    def __call__(self, t: int, *tensors: Any) -> Any: ...


class NoisyMessages:
    """mix(t, x) = W x̃, x̃ = x + noise: an exchange around an exchange. One event per node and message."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        noise: Mechanism,
        scale: Tensor,
        stream: Stream,
        book: Book,
        nodes: Sequence[int],
        adjacency: str,
        start: int = 0,
    ):
        self._exchange, self._noise, self._scale = exchange, noise, scale
        self._stream, self._book, self._nodes = stream, book, list(nodes)
        self._part = Participation("full", 1.0, adjacency)
        self._everyone = torch.ones(len(self._nodes), dtype=torch.bool)
        self._sent = start  # messages on file: a run that goes on draws no noise twice

    @property
    def bytes_sent(self) -> int:
        return self._exchange.bytes_sent

    @bytes_sent.setter
    def bytes_sent(self, count: int) -> None:
        self._exchange.bytes_sent = count

    def __call__(self, t: int, x: Tensor) -> Any:
        k, self._sent = self._sent, self._sent + 1
        alike: dict[Release, list[int]] = {}
        for i, node in enumerate(self._nodes):
            release = self._noise.release(
                i, float(self._scale[i]), 1.0, x.shape[1], self._part, enforced=False
            )
            alike.setdefault(release, []).append(node)
        self._book.write([(nodes, Event(draw=k, release=release)) for release, nodes in alike.items()])
        sent = x.clone()
        unit = torch.ones_like(self._scale)
        self._noise.add(
            self._stream, self._nodes, k, sent, multiplier=self._scale, bound=unit, active=self._everyone
        )
        return self._exchange(t, sent)

    def publish(self, dimension: int) -> None:
        """Line 11: the last iterates are given out as they are, without noise."""
        plain = Silent().release(0.0, float("inf"), dimension, self._part, float("inf"))
        self._book.write([(self._nodes, Event(draw=self._sent, release=plain))])


class Unreleased:
    """The book of answers that never leave their node: nothing is spent on them."""

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        pass
