"""What a method is: everything of a configuration's algorithm that is not its update rule.

Which vector of a record it averages and who reads records, what carries its messages, what it may not be combined with,
how it is priced, what is scored, saved and given out. Most methods are `Gossip`; one that brings parts of its own has a
folder beside it. Nobody outside of `methods` asks which method it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from gossamer.algorithms.base import Algorithm
from gossamer.config.schema import RunConfig
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Clip
from gossamer.mechanism.noise import Mechanism, NoiseKind
from gossamer.mechanism.reader import Book, Records, Vector
from gossamer.mechanism.sampling import Sampler
from gossamer.methods.claims import ClaimRule
from gossamer.runtime.group import CountingExchange, Group
from gossamer.topology.schedule import Topology


@dataclass(frozen=True)
class Hosted:
    """What reading records takes, for the nodes hosted here."""

    nodes: range  # which of all these are
    of: int  # how many there are in all
    records: Records
    sampler: Sampler
    clip: Clip
    noise: Mechanism
    lots: Sequence[float]  # public lot sizes L_i
    divisors: Sequence[float]  # what sums are divided by
    allowance: Sequence[int]  # draws that each node's budget pays for
    adjacency: str
    classes: int | None
    message_scale: Tensor  # (m,) of the noise on the messages, where they carry it
    diagnostics: bool = False


@dataclass(frozen=True)
class Reading:
    """What a reader of records is made of, besides the nodes: one run's own."""

    algorithm: Algorithm
    vector: Callable[[], Vector]
    book: Book
    stream: Stream
    written: Sequence[int] | None = None  # the rows that write events; all, if None


@dataclass(frozen=True)
class Carriage:
    """What an exchange is made of: who carries the messages of which run, from which state on."""

    group: Group
    topology: Topology
    run: str
    reader: Any
    book: Book
    stream: Callable[[], Stream]
    dimension: int
    state: Any
    known_at: Container[int]  # rounds after which all processes know shared values
    bytes_sent: int


class Method(Protocol):
    @property
    def config(self) -> RunConfig: ...

    @property
    def keeps_local_models(self) -> bool:
        """Do nodes keep models that their records move without noise?"""
        ...

    @property
    def takes_resolvents(self) -> bool:
        """Does it ask for resolvents of the loss, which only linear models have?"""
        ...

    @property
    def noise_on_messages(self) -> bool:
        """Is it the messages that carry the noise? Then answers about records have none and stay on their node."""
        ...

    @property
    def noise(self) -> NoiseKind:
        """The noise of its releases, as planned."""
        ...

    def bare(self) -> Any:
        """The update rule alone, with its step sizes and options."""
        ...

    def algorithm(self) -> Algorithm:
        """The update rule with what the configuration puts around it."""
        ...

    def check(self, classes: int | None) -> None:
        """Refuse what does not go together, as far as public facts tell."""
        ...

    @property
    def believed_bound(self) -> str:
        """What must be said where a bound is assumed and not enforced."""
        ...

    def notes(self) -> list[str]:
        """What a reader of the certificate must know."""
        ...

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        """What its paper claims; `records` of all nodes together."""
        ...

    def vector(self, algorithm: Algorithm, module: nn.Module, classes: int | None) -> Vector:
        """What of a record the private mean is of."""
        ...

    def reader(self, hosted: Hosted, how: Reading) -> Any:
        """The private part: what an algorithm's step gets as `grad`."""
        ...

    def exchange(self, hosted: Hosted, how: Carriage) -> CountingExchange:
        """What carries the messages: what a step gets as `mix`."""
        ...

    def noised(
        self, plain: Any, hosted: Hosted, book: Book, stream: Callable[[], Stream], *, start: int = 0
    ) -> Any:
        """An exchange with what is done to a message before it leaves."""
        ...

    def finish(self, exchange: Any, dimension: int) -> None:
        """After the last round: what is given out besides messages is put on file."""
        ...

    def bytes_per_round(self, algorithm: Algorithm, topology: Topology, dimension: int) -> float: ...

    def released(self, algorithm: Algorithm, state: Any, hosted: int) -> Tensor:
        """(m, d) the models that everyone may have."""
        ...

    def scored(self, algorithm: Algorithm, state: Any, reader: Any, hosted: int) -> Tensor:
        """(m, d) the models that are evaluated."""
        ...

    def judges_unreleased(self) -> str | None:
        """Why figures of the evaluated models are not private, where those models never leave their nodes."""
        ...

    def lost_at_a_stop(self) -> bool:
        """Does a node alone know something that a stop with secret noise loses for good?"""
        ...

    def kept(self, state: Any, reader: Any) -> dict[str, Any]:
        """What a checkpoint holds."""
        ...

    def restore(self, state: Any, reader: Any, saved: dict[str, Any]) -> Any:
        """The state that `kept` saw; the reader goes on from there too."""
        ...
