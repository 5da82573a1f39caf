"""Who looks on, and what is protected: the same observer and unit for plan, proof, audit and certificate.

Proofs are complete for `Everyone`. The others see less of the same releases, so they may be priced as everyone, which
is an upper bound; a release whose noise depends on who keeps which secret asks `members`.

A unit is one record, one person with all of its records, or one node with all of its. The accountants price sums of
which one unit moves each by the sensitivity at most; what a unit is, is decided where records are clipped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gossamer.errors import UserError
from gossamer.options.plugins import broken_plugins, load_plugins

UNIT = "one record of one node"  # what an ε protects if nothing else is said: see `units`


class Observer(Protocol):
    """What an accountant and an attacker ask of an observer."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether it sees every message of every round."""
        ...

    @property
    def sees_models(self) -> bool:
        """Whether it sees the final models."""
        ...

    @property
    def members(self) -> tuple[int, ...]:
        """The nodes whose secrets it holds: their state, and whatever noise they know of."""
        ...

    @property
    def colluders(self) -> int | None:
        """Of how many nodes, whichever, it holds the secrets; None if that is not said: as many as was planned for."""
        ...

    @property
    def target(self) -> int | None:
        """The node whose records it is after; None if it looks at all of them."""
        ...

    def describe(self) -> str:
        """In words, for certificates and tables."""
        ...


@dataclass(frozen=True)
class Everyone:
    name: ClassVar[str] = "all"
    sees_all: ClassVar[bool] = True
    sees_models: ClassVar[bool] = True
    members: ClassVar[tuple[int, ...]] = ()
    colluders: ClassVar[int | None] = None
    target: ClassVar[int | None] = None

    def describe(self) -> str:
        return "everyone: all messages of all nodes in every round, and the final models"


@dataclass(frozen=True)
class Colluders:
    """Everyone, and all that some of the nodes know, whichever these are: noise that nodes share asks how many."""

    colluders: int

    sees_all: ClassVar[bool] = True
    sees_models: ClassVar[bool] = True
    members: ClassVar[tuple[int, ...]] = ()
    target: ClassVar[int | None] = None

    @property
    def name(self) -> str:
        return f"all+{self.colluders}"

    def describe(self) -> str:
        if self.colluders == 0:
            return "everyone but the nodes themselves: all messages of all nodes in every round, and the final models"
        whose = "any one node" if self.colluders == 1 else f"any {self.colluders} of the nodes together"
        return f"{whose}, with all they know (secrets, noise, records): all messages of all nodes, and the final models"


@dataclass(frozen=True)
class Messages:
    name: ClassVar[str] = "messages"
    sees_all: ClassVar[bool] = True
    sees_models: ClassVar[bool] = False
    members: ClassVar[tuple[int, ...]] = ()
    colluders: ClassVar[int | None] = None
    target: ClassVar[int | None] = None

    def describe(self) -> str:
        return "everyone's messages: all that is sent in any round, without the final models"


@dataclass(frozen=True)
class Neighbour:
    node: int
    target: int

    name: ClassVar[str] = "neighbour"
    sees_all: ClassVar[bool] = False
    sees_models: ClassVar[bool] = False
    colluders: ClassVar[int | None] = None

    @property
    def members(self) -> tuple[int, ...]:
        return (self.node,)

    def describe(self) -> str:
        return f"node {self.node}, a neighbour: what reaches them, and their own state"


@dataclass(frozen=True)
class Coalition:
    members: tuple[int, ...]
    target: int

    sees_all: ClassVar[bool] = False
    sees_models: ClassVar[bool] = False
    colluders: ClassVar[int | None] = None

    @property
    def name(self) -> str:
        return "coalition:" + ",".join(map(str, self.members))

    def describe(self) -> str:
        return f"nodes {', '.join(map(str, self.members))} together: what reaches them, and their own state"


@dataclass(frozen=True)
class FinalModels:
    target: int = 0

    name: ClassVar[str] = "final"
    sees_all: ClassVar[bool] = False
    sees_models: ClassVar[bool] = True
    members: ClassVar[tuple[int, ...]] = ()
    colluders: ClassVar[int | None] = None

    def describe(self) -> str:
        return "the final models of all nodes, and nothing else"


@dataclass(frozen=True)
class NodeView:
    """One node of a run with exact means, and all that reaches it: priced by `accounting/network.py`."""

    node: int

    needs_exact_means: ClassVar[bool] = True
    sees_all: ClassVar[bool] = False
    sees_models: ClassVar[bool] = False
    colluders: ClassVar[int | None] = None
    target: ClassVar[int | None] = None

    @property
    def name(self) -> str:
        return f"node:{self.node}"

    @property
    def members(self) -> tuple[int, ...]:
        return (self.node,)

    def describe(self) -> str:
        return f"node {self.node}: the sums that reach it in every exact mean, and its own state"


@dataclass(frozen=True)
class Outsider:
    """Who sees the models of all rounds of a run with exact means, and no message."""

    needs_exact_means: ClassVar[bool] = True
    name: ClassVar[str] = "outsider"
    sees_all: ClassVar[bool] = False
    sees_models: ClassVar[bool] = True
    colluders: ClassVar[int | None] = None
    members: ClassVar[tuple[int, ...]] = ()
    target: ClassVar[int | None] = None

    def describe(self) -> str:
        return "an outsider: the common model after every round, and nothing else"


EVERYONE = Everyone()


def against_all(planned: Iterable[Observer]) -> Observer:
    """Whom several figures hold against together, each planned for one of these: the fewest colluders of any."""
    counts = [one.colluders for one in planned if one.colluders is not None]
    return Colluders(min(counts)) if counts else EVERYONE


Arcs = Sequence[tuple[int, int]]  # (sender, receiver) of the run
Find = Callable[[str, int, Arcs], Observer]  # (what stands behind the colon, nodes, arcs) → the observer
_FINDERS: dict[str, tuple[str, Find]] = {}


def register(name: str, example: str = "") -> Callable[[Find], Find]:
    """The decorated function finds the observer that `--observer name` means, or `name:…`, or for `name+` `name+…`."""

    def add(find: Find) -> Find:
        if name in _FINDERS:
            raise ValueError(f"an observer {name!r} is there already")
        _FINDERS[name] = example or name, find
        return find

    return add


def parse_observer(text: str, nodes: int, arcs: Iterable[tuple[int, int]]) -> Observer:
    """An observer by its name on the command line; `arcs` are all (sender, receiver) of the run.

    >>> from gossamer.accounting.observers import parse_observer
    >>> parse_observer("coalition:1,2", nodes=4, arcs=[(0, 1), (3, 2)]).describe()
    'nodes 1, 2 together: what reaches them, and their own state'
    """
    head, plus, count = text.partition("+")
    name, _, rest = (head + plus, plus, count) if plus else text.partition(":")
    if name not in _FINDERS:
        load_plugins()
    if name not in _FINDERS or bool(rest) != any(sign in _FINDERS[name][0] for sign in ":+"):
        known = ", ".join(example for example, _ in _FINDERS.values())
        raise UserError(" ".join([f"--observer {text} is not known; it can be {known}.", *broken_plugins()]))
    return _FINDERS[name][1](rest, nodes, list(arcs))


def refuse_without_exact_means(observer: Observer, *, bit_equal: bool) -> None:
    """A node's own view says something only where every gradient is taken at a point that it knows to the last bit."""
    if getattr(observer, "needs_exact_means", False) and not bit_equal:
        raise UserError(
            f"--observer {observer.name} needs gradients at points that all nodes know to the last bit; use "
            "algorithm.mixes = 'exact' with topology.kind = 'one-peer-exponential', or --observer all."
        )


@register("all")
def _all(rest: str, nodes: int, arcs: Arcs) -> Observer:
    return EVERYONE


@register("all+", "all+2")
def _all_and_some(rest: str, nodes: int, arcs: Arcs) -> Observer:
    if not (rest.isascii() and rest.isdigit() and len(rest) < 7 and int(rest) < nodes):
        raise UserError(
            f"--observer all+{rest} must say of how many nodes it holds the secrets, 0 … {nodes - 1} here, "
            "for example all+1."
        )
    return Colluders(int(rest))


@register("messages")
def _messages(rest: str, nodes: int, arcs: Arcs) -> Observer:
    return Messages()


@register("neighbour")
def _neighbour(rest: str, nodes: int, arcs: Arcs) -> Observer:
    listeners = sorted({receiver for sender, receiver in arcs if sender == 0})
    if not listeners:
        raise UserError("--observer neighbour: node 0 sends to nobody here; use --observer final.")
    return Neighbour(listeners[0], target=0)


@register("final")
def _final(rest: str, nodes: int, arcs: Arcs) -> Observer:
    return FinalModels()


@register("node", "node:3")
def _node(rest: str, nodes: int, arcs: Arcs) -> Observer:
    if not rest.isdecimal() or int(rest) >= nodes:
        raise UserError(
            f"--observer node:{rest} must name one of the nodes 0 … {nodes - 1}, for example node:0."
        )
    return NodeView(int(rest))


@register("outsider")
def _outsider(rest: str, nodes: int, arcs: Arcs) -> Observer:
    return Outsider()


@register("coalition", "coalition:1,2")
def _coalition(rest: str, nodes: int, arcs: Arcs) -> Observer:
    try:
        members = tuple(sorted({int(part) for part in rest.split(",")}))
    except ValueError:
        members = (-1,)
    if members[0] < 0 or members[-1] >= nodes or len(members) == nodes:
        raise UserError(
            f"--observer coalition:{rest} must list some but not all of the nodes 0 … {nodes - 1}, "
            "for example coalition:1,2."
        )
    outside = [i for i in range(nodes) if i not in members]
    heard = {sender for sender, receiver in arcs if receiver in members}
    return Coalition(members, target=next((i for i in outside if i in heard), outside[0]))


RECORD, PERSON, NODE = "record", "person", "node"


@dataclass(frozen=True)
class Unit:
    """`column`: the one that says whose a record is."""

    kind: str = RECORD
    column: str | None = None

    finest: ClassVar[tuple[str, ...]] = (RECORD, PERSON, NODE)

    @property
    def many(self) -> str:
        """What is counted and drawn: records, persons, nodes."""
        return f"{self.kind}s"

    def words(self, nodes: int = 1) -> str:
        """In a certificate, where a record or person may be on so many nodes."""
        if self.kind == NODE:
            return "one node, with all of its records"
        if self.kind == PERSON:
            where = "at one node" if nodes == 1 else f"at up to {nodes} nodes"
            return f"one person (column {self.column}) {where}"
        return UNIT if nodes == 1 else f"one record, wherever copies of it are: on up to {nodes} nodes"


ONE_RECORD = Unit()


def kind_of(words: str) -> str:
    """The kind of unit that these words are of."""
    return next((kind for kind in (PERSON, NODE) if words.startswith(f"one {kind}")), RECORD)


def in_common(units: Iterable[str]) -> tuple[str, bool]:
    """(words of a unit that all these runs protect, whether changing it may exchange what one of them protects).

    Whoever protects a person protects each of its records, but a record more or less is another person in place of the
    one before: such a change is a replacement, under either adjacency. Of persons by different columns only records
    are common.
    """
    found = sorted(set(units), key=lambda words: Unit.finest.index(kind_of(words)))
    if len(found) == 1:
        return found[0], False
    finest = kind_of(found[0])
    if finest == PERSON and sum(kind_of(words) == PERSON for words in found) > 1:
        return UNIT, True
    return found[0] if finest != RECORD else UNIT, True
