"""Who looks on, for people: ε by observer as a small table, and in words what each figure rests on.

Only where nodes share noise: else there is one figure, the same against everyone, and nothing to add to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Column, Table

from gossamer.results.certificate import epsilon_text
from gossamer.results.epsilon_plot import sparkline

SEES = "every message of every node in every round, and the final models"


def shares_noise(figures: Mapping[str, Any]) -> bool:
    """Does ε depend on how many nodes collude? Not of runs before this was stated, either."""
    return len(figures.get("epsilon_by_colluders") or ()) > 1


def known(colluders: int, nodes: int) -> str:
    """What an observer with so many nodes on its side has beyond what everyone sees."""
    if colluders == 0:
        return "nothing that only nodes know"
    return f"all that {group(colluders, nodes)} {'knows' if colluders == 1 else 'know'}"


def group(colluders: int, nodes: int) -> str:
    if colluders == nodes - 1:
        return "the other node" if colluders == 1 else f"the {colluders} other nodes together"
    return (
        f"any one of the {nodes} nodes"
        if colluders == 1
        else f"any {colluders} of the {nodes} nodes together"
    )


def observer_table(figures: Mapping[str, Any]) -> Table:
    """For a terminal of 80 columns."""
    heading = "by observer, who sees all messages, the final models, and"
    table = Table(Column(""), Column("ε", justify="right"), heading, box=None)
    nodes = nodes_of(figures)
    for row in figures["epsilon_by_observer"]:
        mark, note = ("→", " (planned)") if row["planned"] else ("", "")
        table.add_row(mark, epsilon_text(row["epsilon"]), known(row["colluders"], nodes) + note)
    return table


def curve_line(figures: Mapping[str, Any]) -> str:
    points = figures["epsilon_by_colluders"]
    counts, epsilons = [p["colluders"] for p in points], [p["epsilon"] for p in points]
    if counts != list(range(len(counts))):  # uneven steps would look like a bend
        pairs = (f"{epsilon_text(e)} for {q}" for q, e in zip(counts, epsilons, strict=True))
        return f"ε by the number of colluding nodes: {', '.join(pairs)}"
    ends = f"{epsilon_text(epsilons[0])} … {epsilon_text(epsilons[-1])}"
    return f"ε for 0 … {counts[-1]} colluding nodes  {sparkline(epsilons)}  {ends}"


def explained(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(heading, sentences): who the observer is, what it is taken not to have, and what happens if it has more."""
    nodes, most = nodes_of(figures), figures["epsilon_by_colluders"][-1]
    planned = next(row for row in figures["epsilon_by_observer"] if row["planned"])
    q, stated = planned["colluders"], epsilon_text(planned["epsilon"])
    all_others = f"ε = {epsilon_text(most['epsilon'])}"
    if q == 0:
        who = (
            f"Anyone who is none of the {nodes} nodes. This observer sees {SEES}, and no secret of any node."
        )
    else:
        whose = "the node knows" if q == 1 else "these nodes know"
        apart = "that is, all but" if q == nodes - 1 else "whichever, but not"
        who = (
            f"{_first_up(group(q, nodes))}, {apart} the node that holds the record. This observer sees {SEES}, and all "
            f"that {whose}: secrets, noise and records."
        )
    said = [("who the observer is", who)]
    if q < nodes - 1:
        said.append(
            (
                "what it must not have",
                "The secrets that two of the other nodes share. The figure rests on each staying between the two.",
            )
        )
    whom = "The node that holds the record follows" if q == nodes - 1 else "All other nodes follow"
    done = "adds the noise that is due, draws it anew every time, and tells nobody"
    said.append(
        ("what else it rests on", f"{whom} the protocol: {'it' if q == nodes - 1 else 'each'} {done}.")
    )
    if q == nodes - 1:
        said.append(
            (
                "if more collude",
                "There are no more: only the node that holds the record is left, and its own noise.",
            )
        )
    else:
        many = {0: "any node tells what it knows", 1: "more than one node tells what it knows"}
        said.append(
            (
                "if more collude",
                f"If {many.get(q, f'more than {q} nodes pool what they know')}, ε = {stated} does not hold any more, "
                f"and the larger figure for as many nodes does. At the most it is {all_others}, if all other nodes "
                "stand together: a record is then hidden by its own node's noise alone, which needs nobody's help.",
            )
        )
    return said


def nodes_of(figures: Mapping[str, Any]) -> int:
    return int(figures["epsilon_by_colluders"][-1]["colluders"]) + 1


def _first_up(text: str) -> str:
    return text[0].upper() + text[1:]
