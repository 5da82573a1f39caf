"""The privacy certificate of a run, computed from the files of its directory, and its sentences for people.

The run writes `plan.json` when it begins (what was planned, `planned_facts`) and `end.json` when it ends (what no other
file of the directory says: date, versions, the account of the records, what other machines state of their nodes).
Everything else in a certificate is computed from the ledgers, the models and the digests of the files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.accounting import observers
from gossamer.accounting.observers import NODE, PERSON, RECORD, Observer, kind_of
from gossamer.accounting.proven import Proven, proven
from gossamer.accounting.recompute import NodeProof, Sharing, recompute, shared_noise
from gossamer.accounting.releases import release
from gossamer.errors import UserError
from gossamer.results.rundir import digest_of, finite, read_manifest, read_object, without_none
from gossamer.results.signatures import SITE

if TYPE_CHECKING:
    from gossamer.training.privacy import PrivacyPlan

UNIT, OBSERVER = observers.UNIT, observers.EVERYONE.description
UNITS_OF = {
    RECORD: "Record-level only: several records of one person count as several units, without a group guarantee.",
    PERSON: "Persons as the records name them: one with two names, or at more nodes than declared, counts as two.",
    NODE: "Nodes as a whole: that a node took part, and which nodes there are, is public.",
}
NOT_COVERED = (
    "Which node holds what kind of data is public: where labels are split over nodes, a node's identity tells them.",
    "The public constants listed here (declared record counts, sampling rates, lot sizes) are not protected.",
    "Choosing hyper-parameters by looking at private records is not accounted for.",
    "The cipher (AES), the system's random numbers and the processor's arithmetic are taken to be what they should be.",
    "Time and memory that a run takes are not protected.",
)
NOT_PUBLIC = "not declared public: figures on it are not private, must stay here, and tuning by them is not charged"
SEEDED = "seeded noise: no privacy"
PLAN, END = "plan.json", "end.json"
SIGNED_FILES = (
    "config.toml", "manifest.json", PLAN, END, "topology.json", "metrics.jsonl", "evaluation.json",
    "model.json", "*.safetensors", "ledger*.jsonl", "checkpoints/*.safetensors",
)  # fmt: skip
PLANNED_ELSEWHERE = (
    "The ledgers of the other sites are with them, and each signs its own certificate. Their proven ε is here what was "
    "planned for them."
)
STATED_ELSEWHERE = (
    "The ledgers of some nodes are on other machines. Their proven ε is the larger of what their ranks state and what "
    "was planned here; `gossamer plan --ledger` on their machine checks it."
)


def planned_facts(o: Any, figures: Mapping[str, Any], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a certificate says of the plan of a run, with its `figures`."""
    from gossamer.data.load import datasets  # brings torch along

    config, plan = o.config, o.privacy
    columns = without_none(datasets.options(o.asked.data)).get("columns")
    return {
        "name": config.name,
        "nodes": len(plan.nodes),
        "data": without_none({"kind": o.asked.data.kind, "own": config.data.own, "columns": columns}),
        **figures,
        "unit": plan.unit,
        "observer": plan.observer.description,
        "preprocessing": planned_before(o),
        "mode": config.mode,
        "method": config.algorithm.kind,
        "baseline": config.baseline,
        "weighting": config.weighting,
        "notes": [*plan.notes, *notes],
        "not_covered": not_covered(plan.unit),
        "public_constants": [
            {"node": i, "records": node.records, "rate": node.rate, "lot": node.lot, "weight": node.weight}
            for i, node in enumerate(plan.nodes)
        ],
    }


def certificate_of(run: Path, proofs: Sequence[NodeProof] | None = None) -> dict[str, Any]:
    """Compute the certificate of the ended run in this directory; `proofs`: its ledgers, if they were priced already.

    The run signs this at its end, and `verify` computes it again and compares: a field that is added here is in every
    new certificate, is signed and is checked.
    """
    manifest, plan, end = read_manifest(run), read_object(run / PLAN), read_object(run / END)
    proofs = recompute(run) if proofs is None else proofs
    elsewhere = {entry["node"]: entry for entry in end["elsewhere"]}
    here = [proof for proof in proofs if proof.node not in elsewhere]
    shared = shared_noise(here)
    nodes = _Nodes(run, plan, elsewhere, here)
    worst, seeded = max(nodes.proven, key=lambda one: one.epsilon), nodes.header("noise") == SEEDED
    content = {
        **plan,
        "run": manifest["run"],
        "started": manifest["started"],
        "issued": end["issued"],
        "key": manifest["key"],
        "rounds": end["rounds"],
        "digests": {
            "configuration": digest_of(run / "config.toml"),
            "data": manifest["data"].get("sha256"),  # none of private records: it would let guesses be tested
            "models": nodes.models(),
            "files": dict(sorted(digests_of_files(run))),
        },
        "epsilon_proven": worst.epsilon,
        "epsilon_proven_lower": worst.lower,
        "epsilon_by_node": nodes.epsilons(),
        "not_proven_because": worst.because,
        "delta": nodes.delta,
        "adjacency": nodes.header("adjacency"),
        "unit": nodes.header("unit"),
        "observer": nodes.observer.description,
        "preprocessing": nodes.preprocessing(),
        "network": end["network"],
        "epsilon_by_group": end["epsilon_by_group"],
        **nodes.by_observer(worst.epsilon, shared, end["curves"]),
        "noise_source": "seeded" if seeded else "system",
        "stamp": SEEDED if seeded else None,
        "budget": end["budget"],
        "notes": [*plan["notes"], *_lost_draws(manifest), *end["notes"]],
        "public_constants": nodes.public_constants(),
        "draws": nodes.each(lambda proof: proof.draws, "draws"),
        "ledger_heads": nodes.each(lambda proof: proof.head, "head"),
        "versions": end["versions"],
    }
    normal: dict[str, Any] = json.loads(json.dumps(finite(content)))
    return normal


class _Nodes:
    """The nodes of a run: those with a ledger here, and the others as their ranks or the plan state them."""

    def __init__(self, run: Path, plan: Mapping[str, Any], elsewhere: Mapping[int, Any], proofs: Sequence[NodeProof]):
        self._run, self._plan, self._elsewhere, self._all = run, plan, elsewhere, range(plan["nodes"])
        self._here = here = {proof.node: proof for proof in proofs}
        missing = set(self._all) - {*here, *elsewhere}
        if missing or not here:
            raise UserError(f"{run} has no ledger of node {min(missing, default=0)}; put it back.")
        if strange := set(here) - set(self._all):
            raise UserError(f"{here[min(strange)].path} is of no node of the run; remove it.")
        self._proofs = list(here.values())
        self.observer = observers.against_all(proof.observer for proof in self._proofs)
        self.proven = [here[i].proven if i in here else _stated(elsewhere[i]) for i in self._all]

    def each(self, of: Any, key: str) -> list[Any]:
        return [of(self._here[i]) if i in self._here else self._elsewhere[i][key] for i in self._all]

    def header(self, key: str) -> Any:
        """Return what all ledgers here say in their first line."""
        values = {proof.header[key] for proof in self._proofs}
        if len(values) > 1:
            raise UserError(f"{self._run} has ledgers with different values of {key!r}; put them back.")
        return values.pop()

    @property
    def delta(self) -> float:
        deltas = [proof.header["delta"] for proof in self._proofs]
        return float(max([*deltas, self._plan["delta"]] if self._elsewhere else deltas))

    def epsilons(self) -> list[dict[str, Any]]:
        planned = zip(self._plan["epsilon_by_node"], self.proven, strict=True)
        entries = [{**entry, "proven": proven.epsilon} for entry, proven in planned]
        for i, entry in self._elsewhere.items():
            entries[i]["stated_by"] = entry["stated_by"]
        return entries

    def public_constants(self) -> list[dict[str, Any]]:
        own = {i: proof.header["public"] for i, proof in self._here.items()}
        return [{**planned, **own.get(i, {})} for i, planned in enumerate(self._plan["public_constants"])]

    def models(self) -> list[str | None]:
        """Return the digest of every node's model; None of a node whose model is not in the directory."""
        from gossamer.results.trained import digests_of_models  # brings torch along

        here = digests_of_models(self._run, len(self._all))
        stated = {node: entry["model"] for node, entry in self._elsewhere.items()}
        return [here.get(i, stated.get(i)) for i in self._all]

    def by_observer(
        self, epsilon: float, shared: Sharing | None, stated: Sequence[Sequence[float | None]]
    ) -> dict[str, Any]:
        """Return ε against each observer, of the worst node; `epsilon`: against the one that was planned for.

        stated: the curves over colluders of nodes elsewhere.
        """
        curve: Sequence[float] = []
        if shared is not None:
            curves = [shared.worst(proof.spent for proof in self._proofs), *stated]
            worst = [max(point) for point in zip(*map(_infinite, curves), strict=True)]
            curve = shared.around(worst, epsilon)
        terms = {"delta": self.delta, "adjacency": self.header("adjacency"), "unit": self.header("unit")}
        return by_observer(shared, curve, planned=self.observer, epsilon=epsilon, **terms)

    def preprocessing(self) -> dict[str, Any] | None:
        """Return the entry of the plan; its releases must be in the ledgers, and its ε cover what they cost alone."""
        entry: dict[str, Any] | None = self._plan["preprocessing"]
        if entry is None:
            return None
        adjacency, stated = self.header("adjacency"), _infinite([entry["epsilon"]])[0]
        how: dict[str, Any] = {"sampling": "full", "rate": 1.0, "adjacency": adjacency}
        for proof in self._proofs:
            pairs = [(one["kind"], one["noise_multiplier"][proof.node]) for one in entry["released"]]
            releases = [release(kind, sigma=sigma, sensitivity=1.0, **how) for kind, sigma in pairs]
            written = {(one.kind, one.noise_multiplier) for one, _ in proof.spent.history}
            if any((one.kind, one.noise_multiplier) not in written for one in releases):
                raise UserError(f"{proof.path} does not hold what {PLAN} says was released before round 1.")
            cost = proven(releases, proof.header["delta"], adjacency).epsilon
            if stated < cost * (1 - 1e-6):
                where = self._run / PLAN
                raise UserError(f"{where} states preprocessing.epsilon = {stated:g}; it is {cost:g}.")
        return entry


def by_observer(
    shared: Sharing | None, epsilons: Sequence[float], planned: Observer, epsilon: float, **terms: Any
) -> dict[str, Any]:
    """Return the entries `epsilon_by_…` of plans and certificates; `epsilons` at `shared.at`. Unproven ε are None.

    `terms`: δ, adjacency and unit, which each line states.
    """
    figures = dict(zip(shared.at if shared else (), finite(list(epsilons)), strict=True))
    lines = [(planned, finite(epsilon))]
    if shared is not None:
        lines = [(observers.colluders(q), figures[q]) for q in shared.reported]
    return {
        "epsilon_by_observer": [
            {
                "observer": one.name,
                "words": one.description,
                "colluders": one.colluders,
                "epsilon": figure,
                **terms,
                "planned": one == planned,
            }
            for one, figure in lines
        ],
        "epsilon_by_colluders": [{"colluders": q, "epsilon": figure} for q, figure in figures.items()],
    }


def by_observer_of(proofs: Sequence[NodeProof]) -> dict[str, Any]:
    """Return the entries of the worst node, from what the ledgers say."""
    shared = shared_noise(proofs)
    return by_observer(
        shared,
        shared.worst(proof.spent for proof in proofs) if shared else [],
        planned=observers.against_all(proof.observer for proof in proofs),
        epsilon=max(proof.proven.epsilon for proof in proofs),
        delta=max(proof.header["delta"] for proof in proofs),
        adjacency=proofs[0].header["adjacency"],
        unit=proofs[0].header["unit"],
    )


def _stated(entry: Mapping[str, Any]) -> Proven:
    epsilon, *_ = _infinite([entry["proven"]["epsilon"]])
    return Proven(**{**entry["proven"], "epsilon": epsilon})


def _infinite(values: Sequence[float | None]) -> list[float]:
    """JSON has no infinity, and null in its place."""
    return [math.inf if value is None else value for value in values]


def _lost_draws(manifest: Mapping[str, Any]) -> list[str]:
    lost = sum(stop["lost_draws"] for stop in manifest["resumed"])
    note = f"The run was stopped and resumed; {lost} draws of its nodes were spent and not used."
    return [note] if lost else []


def digests_of_files(run: Path) -> Iterator[tuple[str, str]]:
    """Yield name and digest of every file of the run that its certificate covers."""
    for pattern in SIGNED_FILES:
        for path in run.glob(pattern):
            yield path.relative_to(run).as_posix(), digest_of(path)


def site_of(c: Mapping[str, Any]) -> str | None:
    """The site of a consortium whose certificate this is; its signature is checked where the study is at hand."""
    site = c.get(SITE)
    name = site.get("site") if isinstance(site, dict) else None
    return name if isinstance(name, str) and name.isprintable() else None


def of_its_own(c: Mapping[str, Any]) -> dict[str, Any]:
    """A site's certificate with the ε of its own ledger as the one it states; others' are planned, and theirs to state.

    `epsilon_proven` in the file is the largest of all: what the study promises.
    """
    own = [entry for entry in c["epsilon_by_node"] if "stated_by" not in entry]
    if site_of(c) is None or len(own) != 1:
        return dict(c)
    proven, claimed = own[0]["proven"], own[0]["claimed"]
    because = c["not_proven_because"] if proven is None else None
    return {**c, "epsilon_proven": proven, "epsilon_claimed": claimed, "not_proven_because": because}


def not_covered(unit: str) -> list[str]:
    """Return what a certificate about this unit does not promise."""
    return [UNITS_OF[kind_of(unit)], *NOT_COVERED]


def planned_parts(o: Any) -> dict[str, Any]:
    """Return what plans and certificates state besides ε: of several records, and of releases before the rounds."""
    return {"epsilon_by_group": of_groups(o.privacy.by_group()), "preprocessing": planned_before(o)}


def of_groups(by_group: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return the entry `epsilon_by_group`: the proven ε of several records together."""
    groups: list[dict[str, Any]] = finite([{"records": k, "epsilon": e} for k, e in by_group.items()])
    return groups


def planned_before(o: Any) -> dict[str, Any] | None:
    """Return the entry `preprocessing` of a plan or certificate; None if nothing is released before the first draw.

    `epsilon` is what this alone costs the worst node, at the plan's δ and adjacency; it is part of the proven ε.
    """
    plan = o.privacy
    nodes = [node for node in plan.nodes if node.before]
    if not nodes:
        return None
    alone = {node.before: proven(node.before, node.delta, plan.adjacency).epsilon for node in nodes}
    return {
        "share": o.config.privacy.preprocessing,
        "epsilon": finite(max(alone.values())),
        "released": [
            {
                "name": step.name,
                "what": step.description,
                "kind": plan.nodes[0].before[place].release.kind,
                "noise_multiplier": [node.before[place].release.noise_multiplier for node in plan.nodes],
            }
            for place, step in enumerate(o.preprocessing)
        ],
    }


def part_lines(parts: Mapping[str, Any]) -> list[str]:
    """Return the parts of a plan or certificate besides ε in words."""
    lines = (before_line(parts.get("preprocessing")), group_line(parts.get("epsilon_by_group", [])))
    return [line for line in lines if line]


def before_line(entry: Mapping[str, Any] | None) -> str:
    """Say what is released before the first round; "" where that is nothing."""
    if entry is None:
        return ""
    what = "; ".join(f"{one['what']}{_noise(one['noise_multiplier'])}" for one in entry["released"])
    if entry["epsilon"] is None:
        return f"before the first round every node releases, without noise: {what}"
    cost = f"alone this costs ε = {entry['epsilon']:.3g}, which the proven ε includes"
    return f"before the first round every node releases, with noise: {what}; {cost}"


def _noise(multipliers: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{value:.3g}" for value in (min(multipliers), max(multipliers)))
    return f" (σ/sensitivity {' to '.join(ends)})" if min(multipliers) else ""


def group_line(entries: Sequence[Mapping[str, Any]]) -> str:
    """Say what a record-level ε means for several records, as one person has; "" where persons are protected."""
    if not entries:
        return ""
    pairs = ((one["records"], *_infinite([one["epsilon"]])) for one in entries)
    epsilons = (f"{count} records ε = {epsilon_text(epsilon)}" for count, epsilon in pairs)
    return f"for information, of several records together (group privacy, same δ): {', '.join(epsilons)}"


def epsilon_text(value: float | None) -> str:
    if value is None:
        return "—"
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def relation(figures: Mapping[str, Any]) -> str:
    """The terms of an ε; none is printed without them."""
    unit, observer = figures["unit"], figures["observer"]
    return f"δ = {figures['delta']:g}, {figures['adjacency']}, unit: {unit}; observer: {observer}"


def planned_relation(plan: PrivacyPlan) -> str:
    terms = {"delta": plan.delta, "adjacency": plan.adjacency, "unit": plan.unit}
    return relation({**terms, "observer": plan.observer.description})


def account(budget: Mapping[str, Any] | None) -> list[str]:
    """Say what all runs on the same records have spent together; nothing where the records are public."""
    if budget is None:
        return []
    lines = [f"their account: {note}"] if (note := budget.get("account_note")) else []
    if budget["unprotected"]:
        count = budget["unprotected"]
        lines.append(f"on these records: runs without privacy: {count}; no ε covers what they released")
    if budget["delta"] is None:
        return lines
    runs = "this run alone" if budget["runs"] == 1 else f"all {budget['runs']} runs together"
    named = f" (account {budget['account']!r})" if budget.get("account") else ""
    line = f"on these records{named}: {runs}: proven ε = {epsilon_text(budget['epsilon'])}"
    if "epsilon_before" in budget:
        line += f", of which {epsilon_text(budget['epsilon_before'])} was spent before"
    if budget["cap"] is not None:
        line += f"; cap {budget['cap']:g}"
    lines.insert(0, f"{line}   ({relation(budget)})")
    if budget["because"]:
        provable = budget["provable"]
        rest = "" if provable is None else f"; without such runs ε = {epsilon_text(provable)}"
        lines.append(f"on these records nothing is proven any more: {budget['because']}{rest}")
    return lines


def statement(c: Mapping[str, Any]) -> list[str]:
    """Return a few lines a person can read; no ε without δ, adjacency, unit and observer."""
    seeded = "SEEDED NOISE: NO PRIVACY. The figures below are what the same run would have with secret noise."
    lines = [
        seeded if c["noise_source"] == "seeded" else "",
        *three_lines(c),
        f"observer: {c['observer']}",
        f"not proven: {c['not_proven_because']}" if c["not_proven_because"] else "",
        before_line(c.get("preprocessing")),
        *account(c.get("budget")),
        f"about the claim: {'; '.join(c['claim_flags'])}" if c["claim_flags"] else "",
    ]
    return [line for line in lines if line]


def three_lines(c: Mapping[str, Any]) -> tuple[str, str]:
    """Return the three ε, what is proven first, and what each of them is."""
    attacked = "not attacked (see gossamer audit)" if c["epsilon_audited"] is None else "shown by an attack"
    by = "by " if c["epsilon_claimed"] is not None else ""
    kinds = f"proven: by an accountant, from what is released; claimed: {by}{c['claim_reference']}; audited: {attacked}"
    figures = (
        f"proven ε = {epsilon_text(c['epsilon_proven'])}   claimed ε = {epsilon_text(c['epsilon_claimed'])}   "
        f"audited ε ≥ {epsilon_text(c['epsilon_audited'])}   (δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']})"
    )
    return figures, kinds
