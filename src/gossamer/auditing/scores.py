"""The score each observer (`accounting/observers.py`) makes of what it sees.

everyone     all messages of all nodes and the final models: reads the noised gradients off the messages (`recovery`)
messages     the same without the final models
some         what a coalition receives and sends itself: other nodes' noise is in the way, so it filters (`filter`)
final        the final models alone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gossamer.accounting.observers import Observer, parse_observer, refuse_without_exact_means
from gossamer.auditing.attacker import Attacker
from gossamer.auditing.recovery import Draw, Look, Recovery, Sign, Step, recovery_of
from gossamer.topology.exact import WindowTopology
from gossamer.topology.schedule import Topology

Note = Callable[[Draw | Sign | Step], None]


def observer_of(text: str, topology: Topology) -> Observer:
    """An observer by its name on the command line, on this graph."""
    rounds = range(min(topology.period or 8, 64))
    arcs = [(int(sender), int(receiver)) for t in rounds for sender, receiver in topology.edges(t)]
    found = parse_observer(text, topology.nodes, arcs)
    refuse_without_exact_means(found, bit_equal=isinstance(topology, WindowTopology))
    return found


class MessageReader:
    """Reads every draw that can be read off the messages and, if it sees them, the models; hands it to `note`."""

    def __init__(self, algorithm: Any, note: Note, *, sees_models: bool = True):
        self._make, self._algorithm, self._note = recovery_of(algorithm), algorithm, note
        self._sees_models = sees_models
        self._recovery: Recovery | None = None

    def start(self, state: Any) -> None:
        self._recovery = self._make(self._algorithm, state)
        next(self._recovery)

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None:
        self._take(Look(t, sent, received))

    def end(self, state: Any) -> None:
        if self._sees_models:
            self._take(Look(-1, (self._algorithm.model(state),), ()))

    def _take(self, look: Look) -> None:
        assert self._recovery is not None
        for found in self._recovery.send(look):
            self._note(found)


class Evidence:
    """The sum of all log-likelihood ratios: (m, d) scores."""

    def __init__(self, attacker: Attacker):
        self._attacker = attacker
        self.scores: Any = 0.0

    def __call__(self, found: Draw | Sign | Step) -> None:
        self.scores = self.scores + self._attacker.log_ratio(found).double()


class NoisedLengths:
    """‖noised gradient‖ of the first rows, draw by draw: what data-dependent noise gives away."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.norms: list[Tensor] = []

    def __call__(self, found: Draw | Sign | Step) -> None:
        if isinstance(found, Draw):
            self.norms.append(found.value[: self._rows].norm(dim=1))


def visible_senders(topology: Topology, members: Sequence[int], t: int) -> list[int]:
    """Whose messages of round t a coalition holds: its in-neighbours' and its own."""
    heard = {int(sender) for sender, receiver in topology.edges(t) if int(receiver) in members}
    return sorted(heard | set(members))
