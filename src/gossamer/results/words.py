"""Sentences and figures in words about a certificate, for its page, the terminal and the report.

The figure in words is the largest chance of a right guess: of two equally likely cases (the record was used, or not)
an observer of the output of an (ε, δ)-private method tells the right one with probability at most
(e^ε + δ) / (e^ε + 1), even if the observer knows everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, TypeVar

from gossamer.accounting.observers import NODE, kind_of
from gossamer.results.certificate import epsilon_text, site_of

T = TypeVar("T")
_HARDLY = 0.999  # a guess that is right so often leaves hardly anything protected


def day(date: str) -> str:
    """2026-03-09T10:20:30Z → 9 March 2026, 10:20 UTC."""
    return datetime.fromisoformat(date).strftime("%-d %B %Y, %H:%M UTC")


def right_guesses(epsilon: float, delta: float) -> float:
    """Return the largest share of right guesses, of 1, which of two equally likely cases it was."""
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def promise(c: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a certificate's proven promise, rounded against the promise."""
    epsilon, delta = c["epsilon_proven"], c["delta"]
    large, guesses = epsilon >= 13, right_guesses(epsilon, delta)
    return {
        "ratio": f"e to the power of {epsilon_text(epsilon)}" if large else f"{_up(math.exp(epsilon), 3):,g}",
        "one_in": f"one in {1 / delta:,.0f}" if 0 < delta < 1 else "none" if delta == 0 else "always",
        "right": _of_hundred(guesses),
        "hardly": guesses > _HARDLY,
    }


def declared(c: Mapping[str, Any]) -> str:
    """Return what was trained on: the declared number of records or persons."""
    site, kind = site_of(c), kind_of(c["unit"])
    if kind == NODE:
        return "all records of each" if site is None else "all of its records"
    nodes = zip(c["public_constants"], c["epsilon_by_node"], strict=True)
    records = sum(node["records"] for node, entry in nodes if site is None or "stated_by" not in entry)
    return f"{records:,} {kind}s as declared"


def _of_hundred(share: float) -> str:
    """Return per cent, never rounded downwards, and 100 only where nothing smaller can be written."""
    for digits in (1, 2, 4, 6):
        shown = math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f}"
    return "100"


def _up(value: float, digits: int) -> float:
    """Round to so many digits, never downwards."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / step - 1e-9) * step


def spans(entries: Iterable[tuple[int, T]], key: Callable[[T], Any]) -> list[tuple[str, T]]:
    """Group neighbours with equal keys: [("0–6", entry of node 0), ("7", entry of node 7)]."""
    groups = [list(group) for _, group in groupby(entries, key=lambda entry: key(entry[1]))]
    return [(f"{g[0][0]}–{g[-1][0]}" if len(g) > 1 else str(g[0][0]), g[0][1]) for g in groups]


def network_lines(figures: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return (observer, its ε in words), against one node and an outsider; nothing where there is no figure."""
    if not figures:
        return []
    worst = figures["worst_pair"]
    pair = f"worst pair: records of node {worst['node']}, seen by node {worst['observer']}"
    return [
        ("one node, which sees what reaches it", f"ε ≤ {epsilon_text(worst['epsilon'])} ({pair})"),
        ("an outsider, who sees the model of every round", f"ε ≤ {epsilon_text(figures['outsider'])}"),
    ]


def shares_noise(figures: Mapping[str, Any]) -> bool:
    """Does ε depend on how many nodes collude?"""
    return len(figures.get("epsilon_by_colluders") or ()) > 1


def known(colluders: int, nodes: int) -> str:
    """Say what an observer with so many colluding nodes knows beyond what everyone sees."""
    if colluders == 0:
        return "nothing that only nodes know"
    return f"all that {group(colluders, nodes)} {'knows' if colluders == 1 else 'know'}"


def group(colluders: int, nodes: int) -> str:
    if colluders == nodes - 1:
        return "the other node" if colluders == 1 else f"the {colluders} other nodes together"
    if colluders == 1:
        return f"any one of the {nodes} nodes"
    return f"any {colluders} of the {nodes} nodes together"


def nodes_of(figures: Mapping[str, Any]) -> int:
    return int(figures["epsilon_by_colluders"][-1]["colluders"]) + 1


STOPS = "a record can stop the run, which everyone sees and no ε covers:"
_ROUNDING = 1e-6  # of a bound: less is not worth a word


def trials(audit: Mapping[str, Any]) -> str:
    """Say how often the attack was tried, and on what: trainings, or draws of the mechanism without any."""
    runs, seconds = f"{audit['runs']:,}", f"{audit['training_seconds']:.1f} s"
    if not audit.get("trained", True):
        return f"{runs} draws of the mechanism, in one dimension, in {seconds}; no model was trained"
    return f"{runs} trainings in {seconds} ({audit['samples_per_second']:,.0f} records/s)"


def allowed(movement: Mapping[str, Any]) -> str:
    """Say how far a sum may move, and how far float32 alone was measured to move it."""
    rounding = f" + {movement['rounding']:.0e} rounding" if movement["rounding"] > _ROUNDING else ""
    return f"{movement['priced']:g}{rounding}"


def limit_of(c: Mapping[str, Any], key: str) -> float | None:
    """Return the claimed or proven ε that the audited observer is checked against."""
    own = c["audit"].get("held_against") if key == "proven" else None
    limit: float | None = own["epsilon_proven"] if own else c[f"epsilon_{key}"]
    return limit


def verdict(c: Mapping[str, Any]) -> str:
    """Return an audit in a few sentences, a violation first."""
    audit, search = c["audit"], c["audit"].get("sensitivity")
    coins = _verdict_of_coins(c) if audit["bounds"] else []
    others = [_verdict_of_search(search)] if search else []
    others += [_other_observer(c)] if audit.get("held_against") else []
    by_search_alone = search and search["broken"] and not _broken(c)
    return " ".join([*others, *coins] if by_search_alone else [*coins, *others])


def _broken(c: Mapping[str, Any]) -> list[str]:
    return [key for key in c["violated"] if key in ("claimed", "proven")]


def _verdict_of_search(search: Mapping[str, Any]) -> str:
    worst = search["movements"][0] if search["movements"] else None
    if not search["broken"] or worst is None:
        return f"No record of {search['tried']:,} tried moves more than its bound."
    size = "to a value that is not finite" if worst["moved"] is None else f"by {worst['moved']:.4g} bounds"
    what = f"one record moves {worst['place']} {size}, where {worst['priced']:g} is allowed"
    return f"Violation: {what}: no ε printed for this module holds."


def _verdict_of_coins(c: Mapping[str, Any]) -> list[str]:
    """Say which figures the attack contradicts: the whole proven curve, or ε at one δ."""
    audit, tests = c["audit"], c["audit"].get("curve_tests", [])
    attack = f"the attack on {audit['attacked']}" if "attacked" in audit else "the attack"
    shown = f"{attack} shows ε ≥ {epsilon_text(c['epsilon_audited'])} at {audit['confidence']:.4g} confidence"
    broken = _broken(c)
    by_curve = bool(tests) and "proven" in broken
    sentences = []
    if by_curve:
        broken.remove("proven")
        proven = f"what is proven at {audit['confidence']:.4g} confidence"
        sentences.append(f"Violation: {attack} is outside of {proven}: {tests[0]['says']}.")
    if broken:
        figures = " and ".join(f"{key} ε = {epsilon_text(limit_of(c, key))}" for key in broken)
        return [*sentences, f"Violation: {shown}, above the {figures}."]
    if by_curve:
        above = "is above" if "proven" in audit["above_one_point"] else "alone would not tell"
        return [*sentences, f"The one point (ε, δ) {above}: {shown}."]
    if c["violated"]:
        return [f"By coins alone {shown}."]
    return [f"No violation found: {shown}.", *(["It is inside of the whole proven curve."] if tests else [])]


def _other_observer(c: Mapping[str, Any]) -> str:
    """Name the limits of an observer with other secrets than was planned for: its own, and the planned one."""
    limits = c["audit"]["held_against"]
    count, planned, of_plan = map(limits.get, ("colluders", "colluders_planned", "epsilon_proven_as_planned"))
    more = ", more than was planned for" if count > planned else ""
    secrets = f"the secrets of {count} {'node' if count == 1 else 'nodes'}{more}"
    own = f"ε = {epsilon_text(limits['epsilon_proven'])} against it, by which it is judged"
    any_planned = f"ε = {epsilon_text(of_plan)} against any {planned}, as planned"
    sentence = f"This observer has {secrets}. Proven is {own}, and {any_planned}."
    if of_plan is None or c["epsilon_audited"] <= of_plan:
        return sentence
    return f"{sentence} The attack shows more than the planned figure, which does not cover this observer."
