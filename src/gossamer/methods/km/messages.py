"""Noise on the messages themselves: DP-dKM's Algorithm 1, lines 7 and 8.

There the answers about records stay on their node un-noised, and what is perturbed is the iterate a node sends. Its
sensitivity is a belief about the whole trajectory (Theorem 1), which nothing here enforces: events say ∞.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from gossamer.accounting.releases import Event, release
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.arithmetic import Arithmetic
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
        mechanism: str,
        scale: Tensor,
        arithmetic: Arithmetic,
        stream: Stream,
        book: Book,
        nodes: Sequence[int],
        adjacency: str,
        start: int = 0,
    ):
        self._exchange, self._mechanism, self._scale, self._arithmetic = (
            exchange,
            mechanism,
            scale,
            arithmetic,
        )
        self._stream, self._book, self._nodes, self._adjacency = stream, book, list(nodes), adjacency
        self._sent = start  # messages on file: a run that goes on draws no noise twice

    @property
    def bytes_sent(self) -> int:
        return self._exchange.bytes_sent

    def __call__(self, t: int, x: Tensor) -> Any:
        k, self._sent = self._sent, self._sent + 1
        self._log(k, self._mechanism, x.shape[1])
        sent = x.clone()
        self._arithmetic.add(self._stream, self._nodes, k, sent, self._scale, self._scale)
        return self._exchange(t, sent)

    def publish(self, dimension: int) -> None:
        """Line 11: the last iterates are given out as they are, without noise."""
        self._log(self._sent, "none", dimension)

    def _log(self, k: int, mechanism: str, dimension: int) -> None:
        for i, node in enumerate(self._nodes):
            sigma = 0.0 if mechanism == "none" else float(self._scale[i])
            parts = () if mechanism == "none" else self._arithmetic.parts(i, sigma, dimension)
            self._book.append(
                node,
                Event(
                    k,
                    release(
                        mechanism,
                        sigma=sigma,
                        sensitivity=float("inf"),
                        sampling="full",
                        rate=1.0,
                        adjacency=self._adjacency,
                        pass_number=None,
                        **dict(parts),
                    ),
                ),
            )


class Unreleased:
    """The book of answers that never leave their node: nothing is spent on them."""

    def append(self, node: int, event: Event) -> None:
        pass
