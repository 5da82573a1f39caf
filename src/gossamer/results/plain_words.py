"""What a certificate promises, in words for somebody who has to rely on it and knows no ε.

The figure in words is the largest chance of a right guess: of two equally likely cases (the record was used, or not)
whoever sees the output of an (ε, δ)-private method tells the right one with probability at most
(e^ε + δ) / (e^ε + 1), whatever else they know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gossamer.accounting.units import NODE, PERSON, RECORD, kind_of
from gossamer.results.certificate import SITE, epsilon_text, site_of

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
