"""The privacy statement of a run, for machines (`certificate.json`) and for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.accounting import observers
from gossamer.accounting.observers import NODE, PERSON, RECORD, kind_of
from gossamer.accounting.proven import proven

UNIT, OBSERVER = observers.UNIT, observers.EVERYONE.describe()
RECORD_LEVEL = (
    "Record-level only: several records of one person count as several units, without a group guarantee."
)
PERSON_LEVEL = (
    "Persons as the records name them: one with two names, or at more nodes than declared, counts as two."
)
NODE_LEVEL = "Nodes as a whole: that a node took part, and which nodes there are, is public."
NOT_COVERED = (
    "Which node holds what kind of data is public: where labels are split over nodes, a node's identity tells them.",
    "The public constants listed here (declared record counts, sampling rates, lot sizes) are not protected.",
    "Choosing hyper-parameters by looking at private records is not accounted for.",
)
UNITS_OF = {RECORD: RECORD_LEVEL, PERSON: PERSON_LEVEL, NODE: NODE_LEVEL}
ARITHMETIC = {
    "float": "Floating-point rounding of the noise is not part of the proof.",
    "lattice": "Float32 summation over a lot, before it is rounded to the lattice, is not part of the proof.",
}
NOT_PUBLIC = (
    "not declared public: figures on it are not private, must stay here, and tuning by them is not charged"
)
SEEDED = "seeded noise: no privacy"
# An audit puts its figures into the certificate of a run that has ended, so that nobody can sign them; and whoever
# vouches for it signs there (results/signatures.py), as long as it is the same otherwise.
SIGNATURES = "signatures"
SITE = "site"  # of a site of a consortium: consortium/certificates.py
ADDED_LATER = ("epsilon_audited", "violation", "violated", "audit", SIGNATURES, SITE)


def site_of(c: Mapping[str, Any]) -> str | None:
    """The site of a consortium whose certificate this is; its signature is checked where the study is at hand."""
    said = c.get(SITE)
    name = said.get("site") if isinstance(said, dict) else None
    return name if isinstance(name, str) and name.isprintable() else None


def of_its_own(c: Mapping[str, Any]) -> dict[str, Any]:
    """A site's certificate with the ε of its own ledger as the one it states; others' are planned, and theirs to state.

    `epsilon_proven` in the file is the largest of all: what the study promises.
    """
    own = [entry for entry in c["epsilon_by_node"] if "stated_by" not in entry]
    if site_of(c) is None or len(own) != 1:
        return dict(c)
    proven = own[0]["proven"]
    because = c["not_proven_because"] if proven is None else None
    return {
        **c,
        "epsilon_proven": proven,
        "epsilon_claimed": own[0]["claimed"],
        "not_proven_because": because,
    }


def not_covered(unit: str, arithmetic: str) -> list[str]:
    """What a certificate about this unit does not promise."""
    return [UNITS_OF[kind_of(unit)], *NOT_COVERED, ARITHMETIC[arithmetic]]


def planned_parts(o: Any) -> dict[str, Any]:
    """What plans and certificates say besides ε: of several records together, and of what comes before the rounds."""
    return {"epsilon_by_group": planned_groups(o.privacy), "preprocessing": planned_before(o)}


def planned_before(o: Any) -> dict[str, Any] | None:
    """The entry `preprocessing` of a plan or certificate; None where nothing is released ahead of the first draw.

    `epsilon` is what this alone costs the worst node, at the δ and adjacency beside it; it is part of the proven ε.
    """
    plan, steps = o.privacy, o.preprocessing
    if not plan.preprocesses:
        return None
    alone = {node.before: proven(node.before, node.delta, plan.adjacency).epsilon for node in plan.nodes}
    worst = max(alone.values())
    return {
        "share": o.config.privacy.preprocessing,
        "epsilon": worst if worst < float("inf") else None,
        "released": [
            {
                "name": step.name,
                "what": step.says,
                "kind": plan.nodes[0].before[place].release.kind,
                "noise_multiplier": [node.before[place].release.noise_multiplier for node in plan.nodes],
            }
            for place, step in enumerate(steps)
        ],
    }


def before_line(entry: Mapping[str, Any] | None) -> str | None:
    """The same for people; δ, adjacency, unit and observer stand beside it."""
    if entry is None:
        return None
    what = "; ".join(f"{one['what']}{_noise(one['noise_multiplier'])}" for one in entry["released"])
    if entry["epsilon"] is None:
        return f"before the first round every node releases, without noise: {what}"
    return (
        f"before the first round every node releases, with noise: {what}; alone this costs ε = {entry['epsilon']:.3g}, "
        "which the proven ε includes"
    )


def _noise(multipliers: Sequence[float]) -> str:
    least, most = min(multipliers), max(multipliers)
    if not least:
        return ""
    return f" (σ/sensitivity {least:.3g})" if least == most else f" (σ/sensitivity {least:.3g} to {most:.3g})"


def part_lines(o: Any) -> list[str]:
    """The same for people."""
    parts = planned_parts(o)
    said = (before_line(parts["preprocessing"]), group_line(parts["epsilon_by_group"]))
    return [line for line in said if line is not None]


def planned_groups(plan: Any) -> list[dict[str, Any]]:
    """The entries of `epsilon_by_group` of a privacy plan; JSON has no infinity."""
    return [
        {"records": k, "epsilon": None if math.isinf(epsilon) else epsilon}
        for k, epsilon in plan.by_group().items()
    ]


def group_line(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """What a record-level ε says about several records, as one person has; None where persons are protected."""
    if not entries:
        return None
    each = ", ".join(
        f"{one['records']} records ε = {epsilon_text(math.inf if one['epsilon'] is None else one['epsilon'])}"
        for one in entries
    )
    return f"for information, of several records together (group privacy, same δ): {each}"


def epsilon_text(value: float | None) -> str:
    if value is None:
        return "—"
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def account(budget: dict[str, Any] | None) -> list[str]:
    """What all runs on the same records have spent together; nothing where the records are public."""
    if budget is None or budget["delta"] is None:
        return []
    before = "epsilon_before" in budget
    runs = "this run alone" if budget["runs"] == 1 else f"all {budget['runs']} runs together"
    lines = [
        f"on these records: {runs}: proven ε = {epsilon_text(budget['epsilon'])}"
        + (f", of which {epsilon_text(budget['epsilon_before'])} was spent before" if before else "")
        + (f"; cap {budget['cap']:g}" if budget["cap"] is not None else "")
        + f"   (δ = {budget['delta']:g}, {budget['adjacency']}, unit: {budget['unit']}; observer: {budget['observer']})"
    ]
    if budget["because"]:
        rest = (
            ""
            if budget["provable"] is None
            else f"; without such runs ε = {epsilon_text(budget['provable'])}"
        )
        lines.append(f"on these records nothing is proven any more: {budget['because']}{rest}")
    return lines


def statement(certificate: dict[str, Any]) -> list[str]:
    """A few lines a person can read; no ε without δ, adjacency, unit and observer."""
    c = certificate
    lines = []
    if c["noise_source"] == "seeded":
        lines.append(
            "SEEDED NOISE: NO PRIVACY. The figures below are what the same run would have with secret noise."
        )
    figures, kinds = three_lines(c)
    lines += [figures, kinds]
    lines.append(f"observer: {c['observer']}")
    if c["not_proven_because"]:
        lines.append(f"not proven: {c['not_proven_because']}")
    if (before := before_line(c.get("preprocessing"))) is not None:
        lines.append(before)
    lines += account(c.get("budget"))
    if c["claim_flags"]:
        lines.append(f"about the claim: {'; '.join(c['claim_flags'])}")
    return lines


def three_lines(c: dict[str, Any]) -> tuple[str, str]:
    """The three ε, what is proven first, and what each of them is."""
    claimed, attacked = c["epsilon_claimed"] is not None, c["epsilon_audited"] is not None
    said = (
        "proven: by an accountant, from what is released",
        f"claimed: by {c['claim_reference']}" if claimed else f"claimed: {c['claim_reference']}",
        "audited: shown by an attack" if attacked else "audited: not attacked (see gossamer audit)",
    )
    figures = (
        f"proven ε = {epsilon_text(c['epsilon_proven'])}   claimed ε = {epsilon_text(c['epsilon_claimed'])}   "
        f"audited ε ≥ {epsilon_text(c['epsilon_audited'])}   (δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']})"
    )
    return figures, "; ".join(said)
