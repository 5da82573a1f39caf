"""Who sees what, and the score each makes of it.

everyone     all messages of all nodes and the final models: reads the noised gradients off the messages (`recovery`)
messages     the same without the final models
some         what a coalition receives and sends itself: other nodes' noise is in the way, so it filters (`filter`)
final        the final models alone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gossamer.errors import UserError
from gossamer.studies.audit.attacker import Attacker
from gossamer.studies.audit.recovery import Draw, Look, Recovery, Sign, Step, recovery_of
from gossamer.topology.schedule import Topology


@dataclass(frozen=True)
class View:
    """An observer by its name on the command line."""

    name: str
    members: tuple[int, ...] = ()  # of a coalition

    @property
    def sees_all(self) -> bool:
        return self.name in ("all", "messages")

    def describe(self) -> str:
        if self.name == "messages":
            return "everyone's messages: all that is sent in any round, without the final models"
        if self.sees_all:
            return "everyone: all messages of all nodes in every round, and the final models"
        if self.name == "final":
            return "the final models of all nodes, and nothing else"
        who = ", ".join(map(str, self.members))
        kind = f"node {who}, a neighbour" if self.name == "neighbour" else f"nodes {who} together"
        return f"{kind}: what reaches them, and their own state"


def parse_view(text: str, topology: Topology) -> tuple[View, int | None]:
    """The observer and, unless it sees everything, the node it looks at."""
    nodes = topology.nodes
    if text in ("all", "messages"):
        return View(text), None
    if text == "final":
        return View("final"), 0
    rounds = range(min(topology.period or 8, 64))
    arcs = [tuple(map(int, arc)) for t in rounds for arc in topology.edges(t)]
    if text == "neighbour":
        listeners = sorted({receiver for sender, receiver in arcs if sender == 0})
        if not listeners:
            raise UserError("--observer neighbour: node 0 sends to nobody here; use --observer final.")
        return View("neighbour", (listeners[0],)), 0
    kind, _, listed = text.partition(":")
    if kind == "coalition" and listed:
        try:
            members = tuple(sorted({int(part) for part in listed.split(",")}))
        except ValueError:
            members = (-1,)
        if members[0] < 0 or members[-1] >= nodes or len(members) == nodes:
            raise UserError(
                f"--observer {text} must list some but not all of the nodes 0 … {nodes - 1}, for example coalition:1,2."
            )
        outside = [i for i in range(nodes) if i not in members]
        heard = {sender for sender, receiver in arcs if receiver in members}
        return View("coalition", members), next((i for i in outside if i in heard), outside[0])
    raise UserError(
        f"--observer {text} is not known; it can be all, messages, neighbour, final or coalition:1,2."
    )


class Everyone:
    """Reads every draw that can be read off the messages and, if it sees them, the models; hands it to `note`."""

    def __init__(
        self, algorithm: Any, note: Callable[[Draw | Sign | Step], None], *, sees_models: bool = True
    ):
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
