"""Observers and units of privacy, the same for plan, proof, audit and certificate.

Proofs are complete for `EVERYONE`. The others see less of the same releases, so they may be priced as everyone, which
is an upper bound; a release whose noise depends on who keeps which secret asks `members`.

A unit is one record, one person with all of its records, or one node with all of its. The accountants price sums of
which one unit moves each by the sensitivity at most; what a unit is, is decided where records are clipped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gossamer.errors import UserError
from gossamer.options.plugins import broken_plugins, load_plugins

UNIT = "one record of one node"  # what an ε protects by default: see `Unit`


@dataclass(frozen=True)
class Observer:
    """An adversary: what it sees and whose secrets it holds.

    name               as on the command line
    description        in words, for certificates and tables
    sees_all           sees every message of every round
    sees_models        sees the final models
    members            the nodes whose secrets it holds: their state, and the noise they know of
    colluders          of how many nodes, whichever, it holds the secrets; None: as many as was planned for
    target             the node whose records it is after; None: it looks at all of them
    needs_exact_means  it is priced by `accounting/network.py`, for runs with exact means only
    """

    name: str
    description: str
    sees_all: bool = False
    sees_models: bool = False
    members: tuple[int, ...] = ()
    colluders: int | None = None
    target: int | None = None
    needs_exact_means: bool = False


EVERYONE = Observer("all", "everyone: all messages of all nodes in every round, and the final models", True, True)
MESSAGES = Observer("messages", "everyone's messages: all that is sent in any round, without the final models", True)
FINAL_MODELS = Observer("final", "the final models of all nodes, and nothing else", sees_models=True, target=0)
OUTSIDER = Observer(
    "outsider",
    "an outsider: the common model after every round, and nothing else",
    sees_models=True,
    needs_exact_means=True,
)


def colluders(count: int) -> Observer:
    """Everyone, with all that `count` of the nodes know, whichever these are: noise that nodes share asks how many."""
    if count == 0:
        words = "everyone but the nodes themselves: all messages of all nodes in every round, and the final models"
    else:
        who = "any one node" if count == 1 else f"any {count} of the nodes together"
        words = f"{who}, with all they know (secrets, noise, records): all messages of all nodes, and the final models"
    return Observer(f"all+{count}", words, True, True, colluders=count)


def coalition(members: Sequence[int], target: int) -> Observer:
    """Some nodes together, after the records of another one."""
    listed = ", ".join(map(str, members))
    words = f"nodes {listed} together: what reaches them, and their own state"
    return Observer(f"coalition:{listed.replace(' ', '')}", words, members=tuple(members), target=target)


def one_node(node: int) -> Observer:
    """One node of a run with exact means, and all that reaches it."""
    words = f"node {node}: the sums that reach it in every exact mean, and its own state"
    return Observer(f"node:{node}", words, members=(node,), needs_exact_means=True)


def against_all(planned: Iterable[Observer]) -> Observer:
    """The observer that several figures hold against together: the fewest colluders that any was planned for."""
    counts = [one.colluders for one in planned if one.colluders is not None]
    return colluders(min(counts)) if counts else EVERYONE


Arcs = Sequence[tuple[int, int]]  # (sender, receiver) of the run
Parse = Callable[[str, int, Arcs], Observer]  # (text behind the colon, nodes, arcs) → the observer
_PARSERS: dict[str, tuple[str, Parse]] = {}


def register(name: str, example: str = "") -> Callable[[Parse], Parse]:
    """Register the decorated function for `--observer name`, or `name:…`, or for `name+` `name+…`."""

    def add(parse: Parse) -> Parse:
        if name in _PARSERS:
            raise ValueError(f"an observer {name!r} is there already")
        _PARSERS[name] = example or name, parse
        return parse

    return add


def parse_observer(text: str, nodes: int, arcs: Iterable[tuple[int, int]]) -> Observer:
    """Return the observer of a name on the command line; `arcs` are all (sender, receiver) of the run.

    >>> from gossamer.accounting.observers import parse_observer
    >>> parse_observer("coalition:1,2", nodes=4, arcs=[(0, 1), (3, 2)]).description
    'nodes 1, 2 together: what reaches them, and their own state'
    """
    head, plus, count = text.partition("+")
    name, _, rest = (head + plus, plus, count) if plus else text.partition(":")
    if name not in _PARSERS:
        load_plugins()
    if name not in _PARSERS or bool(rest) != any(sign in _PARSERS[name][0] for sign in ":+"):
        known = ", ".join(example for example, _ in _PARSERS.values())
        raise UserError(" ".join([f"--observer {text} is not known; it can be {known}.", *broken_plugins()]))
    return _PARSERS[name][1](rest, nodes, list(arcs))


def refuse_without_exact_means(observer: Observer, *, bit_equal: bool) -> None:
    """Refuse a node's own view where gradients are taken at points that it does not know to the last bit."""
    if observer.needs_exact_means and not bit_equal:
        raise UserError(
            f"--observer {observer.name} needs gradients at points that all nodes know to the last bit; use "
            "algorithm.mixes = 'exact' with topology.kind = 'one-peer-exponential', or --observer all."
        )


for _fixed in (EVERYONE, MESSAGES, FINAL_MODELS, OUTSIDER):
    register(_fixed.name)(lambda rest, nodes, arcs, _observer=_fixed: _observer)  # type: ignore[misc]


@register("all+", "all+2")
def _colluders(rest: str, nodes: int, arcs: Arcs) -> Observer:
    if not (rest.isascii() and rest.isdigit() and len(rest) < 7 and int(rest) < nodes):
        raise UserError(
            f"--observer all+{rest} must be a number of nodes whose secrets it holds, 0 … {nodes - 1} here, "
            "for example all+1."
        )
    return colluders(int(rest))


@register("neighbour")
def _neighbour(rest: str, nodes: int, arcs: Arcs) -> Observer:
    listener = min((receiver for sender, receiver in arcs if sender == 0), default=None)
    if listener is None:
        raise UserError("--observer neighbour: node 0 sends to nobody here; use --observer final.")
    words = f"node {listener}, a neighbour: what reaches them, and their own state"
    return Observer("neighbour", words, members=(listener,), target=0)


@register("node", "node:3")
def _node(rest: str, nodes: int, arcs: Arcs) -> Observer:
    if not rest.isdecimal() or int(rest) >= nodes:
        raise UserError(f"--observer node:{rest} must name one of the nodes 0 … {nodes - 1}, as node:0.")
    return one_node(int(rest))


@register("coalition", "coalition:1,2")
def _coalition(rest: str, nodes: int, arcs: Arcs) -> Observer:
    try:
        members = sorted({int(part) for part in rest.split(",")})
    except ValueError:
        members = [-1]
    if members[0] < 0 or members[-1] >= nodes or len(members) == nodes:
        raise UserError(
            f"--observer coalition:{rest} must list some but not all of the nodes 0 … {nodes - 1}, "
            "for example coalition:1,2."
        )
    outside = [i for i in range(nodes) if i not in members]
    audible = {sender for sender, receiver in arcs if receiver in members}
    return coalition(members, next((i for i in outside if i in audible), outside[0]))


RECORD, PERSON, NODE = "record", "person", "node"


@dataclass(frozen=True)
class Unit:
    """`column`: the one that says whose a record is."""

    kind: str = RECORD
    column: str | None = None

    finest: ClassVar[tuple[str, ...]] = (RECORD, PERSON, NODE)

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

    To protect a person is to protect each of its records, but a record more or less is another person in place of the
    one before: such a change is a replacement, under either adjacency. Of persons by different columns only records
    are common.
    """
    different = sorted(set(units), key=lambda words: Unit.finest.index(kind_of(words)))
    if len(different) == 1:
        return different[0], False
    finest, second = map(kind_of, different[:2])
    return UNIT if finest == RECORD or finest == second == PERSON else different[0], True
