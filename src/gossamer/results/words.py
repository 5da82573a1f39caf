"""Sentences about a certificate's figures, for its page, the terminal and the report.

The figure in words is the largest chance of a right guess: of two equally likely cases (the record was used, or not)
whoever sees the output of an (ε, δ)-private method tells the right one with probability at most
(e^ε + δ) / (e^ε + 1), whatever else they know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gossamer.accounting.observers import NODE, PERSON, RECORD, kind_of
from gossamer.results.certificate import epsilon_text, site_of
from gossamer.results.signatures import SITE

_HARDLY = 0.999  # a guess that is right so often leaves hardly anything protected
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def day(date: str) -> str:
    """2026-03-09T10:20:30Z → 9 March 2026, 10:20 UTC."""
    year, month, rest = date.split("-", 2)
    return f"{int(rest[:2])} {_MONTHS[int(month) - 1]} {year}, {rest[3:8]} UTC"


def right_guesses(epsilon: float, delta: float) -> float:
    """At most so often, of 1, does a guess hit which of two equally likely cases it was."""
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def promise(c: Mapping[str, Any]) -> list[str]:
    """Sentences; the first says whether there is a promise at all."""
    if c["stamp"]:
        return [
            "There is no promise of privacy: the noise was made from a known seed, so whoever knows it can take the "
            "noise away. The figures below are those of the same training with secret noise."
        ]
    epsilon, delta = c["epsilon_proven"], c["delta"]
    if epsilon is None:
        return [f"No promise of privacy is proven: {c['not_proven_because']}."]
    kind = kind_of(c["unit"])
    used, cases = {
        "add-remove": ("whether it was used at all", f"with the {kind} and without it"),
        "replace-one": ("which of two values it had", f"with either value of the {kind}"),
    }[c["adjacency"]]
    site = site_of(c)
    every = {
        RECORD: "every single record of every node",
        PERSON: "every single person, with all records of that person at a node,",
        NODE: "every single node, with all of its records,",
    }[kind]
    if site is not None:
        every = {
            RECORD: f"every single record of the site {site}",
            PERSON: f"every single person, with all records of that person at the site {site},",
            NODE: f"the site {site}, with all of its records,",
        }[kind]
    who_looks, colon, seen = c["observer"].partition(": ")
    against = f"{who_looks}, who sees {seen}" if colon else f"this observer: {who_looks}"
    ratio = (
        f"{_up(math.exp(epsilon), 3):,g}" if epsilon < 13 else f"e to the power of {epsilon_text(epsilon)}"
    )
    lines = [
        f"For {every} there is a proven limit to how well anybody can tell {used}.",
        f"It holds against {against}.",
        f"The limit: whatever is seen, its probabilities {cases} differ by a factor of at most {ratio} (e to the power "
        f"of ε, and ε ≤ {epsilon_text(epsilon)} is proven), but for a remainder of {delta:g} (δ, {_one_in(delta)}).",
        f"In other words: somebody who knows everything else, and has to guess {used}, is right at most "
        f"{_of_hundred(right_guesses(epsilon, delta))} times in 100. Without looking, by the toss of a coin, it is 50.",
    ]
    if right_guesses(epsilon, delta) > _HARDLY:
        lines.append("In the worst case that is hardly any protection.")
    if site is not None:
        lines.append("For the records of the other sites each of them signs a certificate of its own.")
    return lines


def not_promised(c: Mapping[str, Any]) -> list[str]:
    """Beside what the certificate itself lists."""
    return [
        *c["not_covered"],
        "What the model says about people in general is not hidden: it is what was to be learned.",
        "That the program ran as described, on these records, is the word of whoever ran it.",
    ]


def who(c: Mapping[str, Any]) -> list[str]:
    """Who vouches for it."""
    site = site_of(c)
    signed = [
        f"Signed on {day(one['at'])} in the name of {one['signer']}, with the key {one['key']}. That the key is theirs "
        "must be known from elsewhere."
        for one in c.get("signatures", [])
    ]
    if site is None:
        return signed or ["No organisation has signed this certificate."]
    own = f"Signed on {day(c[SITE]['at'])} by the site {site}, with the key that the roster of its consortium names."
    return [own, *signed]


def what(c: Mapping[str, Any]) -> str:
    """What was done, in two sentences."""
    site, kind = site_of(c), kind_of(c["unit"])
    nodes = zip(c["public_constants"], c["epsilon_by_node"], strict=True)
    records = sum(node["records"] for node, entry in nodes if site is None or "stated_by" not in entry)
    each = "all records of each" if site is None else "all of its records"
    counted = f"{records:,} {kind}s as declared" if kind != NODE else each
    data = (
        f"{'their' if site is None else 'its'} own records, of which no digest is given: it would let guesses "
        "of them be tested"
        if c["data"]["own"]
        else f"the public data set {c['data']['kind']}"
    )
    several = (
        f"{c['nodes']} nodes (holders of data) together" if c["nodes"] > 1 else "One node (holder of data)"
    )
    if site is not None:
        several = f"The site {site}, together with {c['nodes'] - 1} other{'s' * (c['nodes'] > 2)},"
    return (
        f"{several} trained models in {c['rounds']:,} rounds, without handing over a record, on {counted}: "
        f"{data}. The training began on {day(c['started'])}; this certificate was issued on "
        f"{day(c['issued'])}, by Gossamer {c['versions'].get('gossamer', '(version not stated)')}."
    )


def _of_hundred(share: float) -> str:
    """Never rounded downwards, and 100 only where nothing smaller can be written."""
    for digits in (1, 2, 4, 6):
        shown = math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f}"
    return "100"


def _up(value: float, digits: int) -> float:
    """Rounded to so many digits, never downwards."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / step - 1e-9) * step


def _one_in(delta: float) -> str:
    return f"one in {1 / delta:,.0f}" if 0 < delta < 1 else "none" if delta == 0 else "always"


def network_lines(figures: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(who looks on, ε with what it is about); nothing where that has no figure."""
    if not figures:
        return []
    worst = figures["worst_pair"]
    return [
        (
            "one node, which sees what reaches it",
            f"ε ≤ {epsilon_text(worst['epsilon'])} (worst pair: records of node {worst['node']}, seen by node "
            f"{worst['observer']})",
        ),
        ("an outsider, who sees the model of every round", f"ε ≤ {epsilon_text(figures['outsider'])}"),
    ]


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


STOPS = "a record can stop the run, which everyone sees and no ε covers:"
_ROUNDING = 1e-6  # of a bound: less is not worth a word


def trials(audit: Mapping[str, Any]) -> str:
    """How often the attack was tried, and on what: trainings, or draws of the mechanism without any."""
    runs, seconds = f"{audit['runs']:,}", f"{audit['training_seconds']:.1f} s"
    if not audit.get("trained", True):
        return f"{runs} draws of the mechanism, in one dimension, in {seconds}; no model was trained"
    return f"{runs} trainings in {seconds} ({audit['samples_per_second']:,.0f} records/s)"


def allowed(movement: Mapping[str, Any]) -> str:
    """How far a sum may move, and how far float32 alone was measured to move it."""
    rounding = f" + {movement['rounding']:.0e} rounding" if movement["rounding"] > _ROUNDING else ""
    return f"{movement['priced']:g}{rounding}"


def verdict(c: Mapping[str, Any]) -> str:
    """An audit in a few sentences, a violation first."""
    audit, search = c["audit"], c["audit"].get("sensitivity")
    by_search = [_verdict_of_search(search)] if search else []
    by_observer = [_other_observer(c)] if audit.get("held_against") else []
    if not audit["bounds"]:
        return " ".join(by_search + by_observer)
    if search and search["broken"] and not _broken_figures(c):
        return " ".join([*by_search, *by_observer, f"By coins alone {_attack(audit)} shows {_shown(c)}."])
    return " ".join([_verdict_of_coins(c), *by_search, *by_observer])


def _verdict_of_search(search: Mapping[str, Any]) -> str:
    worst = search["movements"][0] if search["movements"] else None
    if not search["broken"] or worst is None:
        return f"No record of {search['tried']:,} tried moves more than its bound."
    finite = worst["moved"] is not None
    size = f"by {worst['moved']:.4g} bounds" if finite else "to a value that is not finite"
    return (
        f"Violation: one record moves {worst['place']} {size}, where {worst['priced']:g} is allowed: no ε printed "
        "for this module holds."
    )


def _verdict_of_coins(c: Mapping[str, Any]) -> str:
    """Which figures the attack contradicts: the whole proven curve, or ε at one δ."""
    audit, broken, tests = c["audit"], _broken_figures(c), c["audit"].get("curve_tests", [])
    by_curve = bool(tests) and "proven" in broken
    at_point = [key for key in broken if not (by_curve and key == "proven")]
    sentences = []
    if by_curve:
        sentences.append(
            f"Violation: {_attack(audit)} is outside of what is proven at {audit['confidence']:.4g} confidence: "
            f"{tests[0]['says']}."
        )
    if at_point:
        figures = " and ".join(f"{key} ε = {epsilon_text(limit_of(c, key))}" for key in at_point)
        sentences.append(f"Violation: {_attack(audit)} shows {_shown(c)}, above the {figures}.")
    elif by_curve:
        above = "is above" if "proven" in audit["above_one_point"] else "alone would not tell"
        sentences.append(f"The one point (ε, δ) {above}: {_shown(c)}.")
    else:
        sentences.append(f"No violation found: {_attack(audit)} shows {_shown(c)}.")
        sentences += ["It is inside of the whole proven curve."] if tests else []
    return " ".join(sentences)


def _other_observer(c: Mapping[str, Any]) -> str:
    """The limits of an observer who has other secrets than was planned for: its own, and the planned one."""
    limits = c["audit"]["held_against"]
    count, planned, of_plan = (
        limits[key] for key in ("colluders", "colluders_planned", "epsilon_proven_as_planned")
    )
    more = ", more than was planned for" if count > planned else ""
    beyond = of_plan is not None and c["epsilon_audited"] > of_plan
    return (
        f"This observer has the secrets of {count} {'node' if count == 1 else 'nodes'}{more}. Proven is ε = "
        f"{epsilon_text(limits['epsilon_proven'])} against it, by which it is judged, and ε = {epsilon_text(of_plan)} "
        f"against any {planned}, as planned."
        + (
            " The attack shows more than the planned figure, which does not cover this observer."
            if beyond
            else ""
        )
    )


def limit_of(c: Mapping[str, Any], key: str) -> float | None:
    """The claimed or proven ε that the audited observer is checked against."""
    own = c["audit"].get("held_against") if key == "proven" else None
    limit: float | None = own["epsilon_proven"] if own else c[f"epsilon_{key}"]
    return limit


def _broken_figures(c: Mapping[str, Any]) -> list[str]:
    return [key for key in c["violated"] if key in ("claimed", "proven")]


def _attack(audit: Mapping[str, Any]) -> str:
    return f"the attack on {audit['attacked']}" if "attacked" in audit else "the attack"


def _shown(c: Mapping[str, Any]) -> str:
    return f"ε ≥ {epsilon_text(c['epsilon_audited'])} at {c['audit']['confidence']:.4g} confidence"
