"""The privacy statement of a finished run, its proven ε recomputed from the ledgers on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gossamer.accounting.alternatives import Sharing, Spent, by_observer
from gossamer.accounting.proven import Proven
from gossamer.accounting.recompute import NodeProof, recompute
from gossamer.errors import UserError
from gossamer.results.certificate import NOT_PUBLIC, SEEDED, not_covered, planned_parts
from gossamer.results.files import digest_of
from gossamer.results.released import model_digests
from gossamer.results.stated_facts import data_of, facts_of_data
from gossamer.runtime.group import Group, agreed
from gossamer.training.assemble import Parts
from gossamer.training.budget import everyones, now
from gossamer.training.budget import worst as worst_account
from gossamer.training.manifest import versions
from gossamer.training.several import nodes_here

if TYPE_CHECKING:
    from gossamer.training.run import Run
from gossamer.training.plan import Plan
from gossamer.training.privacy import finite

# What `--json` of a run repeats of its certificate.
SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "epsilon_by_observer",
    "epsilon_by_colluders", "stamp", "budget",
)  # fmt: skip

PLANNED = (
    "The ledgers of the other sites lie with them, and each signs its own certificate. Their proven ε is here what was "
    "planned for them."
)
STATED = (
    "The ledgers of some nodes lie on other machines. Their proven ε is the larger of what their ranks state and what "
    "was planned here; `gossamer plan --ledger` on their machine checks it."
)


def certify(
    parts: Parts, run: Run, group: Group, models: Tensor, rounds: int | None = None
) -> dict[str, Any]:
    """From the ledgers alone, each priced where it lies; `models`: (m, d) what the nodes of this process released.

    `rounds`: that were run here, if those are not all of the configuration.
    """
    o, config = parts.plan, parts.plan.config
    totals = agreed(group, lambda: run.accounts.settle(now(), run.directory.path))
    own = recompute(run.directory.path, group.nodes, observer=o.privacy.observer)
    stated = group.join([asdict(node.proven) for node in own], per_node=True)
    draws, heads = group.join([node.draws for node in own], per_node=True), run.book.heads()
    figures = o.privacy.figures()
    here = set(nodes_here(group))
    proofs = [
        Proven(**proof) if i in here else _believed(proof, o.privacy.nodes[i].proven)
        for i, proof in enumerate(stated)
    ]
    shared, planned = o.privacy.sharing()
    elsewhere = [spent for i, spent in enumerate(planned) if i not in here]
    by_node = [
        {**entry, "proven": finite(p.epsilon), **({} if i in here else {"stated_by": group.whose(i)})}
        for i, (entry, p) in enumerate(zip(figures["epsilon_by_node"], proofs, strict=True))
    ]
    worst = max(proofs, key=lambda p: p.epsilon)
    return {
        **_facts(parts, run, group.join(model_digests(models), per_node=True)),
        **({} if rounds is None else {"rounds": rounds}),
        **figures,
        "epsilon_proven": finite(worst.epsilon),
        "epsilon_proven_lower": worst.lower,
        "epsilon_by_node": by_node,
        "not_proven_because": worst.because,
        "unit": o.privacy.unit,
        "observer": o.privacy.observer.describe(),
        **planned_parts(o),
        # What others than everyone learn, where that has a figure; of nodes elsewhere as it was planned.
        "network": _network(o, run.directory.path if len(here) == len(by_node) else None),
        **by_observer(
            shared,
            [] if shared is None else _against_others(shared, own, group, elsewhere, worst.epsilon),
            planned=o.privacy.observer,
            epsilon=worst.epsilon,
            delta=figures["delta"],
            adjacency=o.privacy.adjacency,
            unit=o.privacy.unit,
        ),
        "mode": config.mode,
        "method": config.algorithm.kind,
        "baseline": config.baseline,
        "weighting": config.weighting,
        "noise_source": config.privacy.noise.source,
        "stamp": SEEDED if o.seeded else None,
        # Over all runs on the same records of the user's own; None for public ones.
        "budget": worst_account(everyones(totals, group), config.privacy.cap),
        "notes": [*o.privacy.notes, *_notes(parts, run), *_elsewhere(stated, here)],
        "not_covered": not_covered(o.privacy.unit, config.privacy.noise.arithmetic),
        "public_constants": [
            {"node": i, "records": node.records, "rate": node.rate, "lot": node.lot, "weight": node.weight}
            for i, node in enumerate(o.privacy.nodes)
        ],
        "draws": draws,
        "ledger_heads": group.join([heads[i] for i in group.nodes], per_node=True),
        "versions": versions(),
    }


def _facts(parts: Parts, run: Run, models: list[str]) -> dict[str, Any]:
    """What the certificate is of, and from when."""
    config, manifest = parts.plan.config, run.directory.read_manifest()
    data, digest = facts_of_data(data_of(run.directory.path), manifest)
    return {
        "name": config.name,
        "run": run.identity,
        "started": manifest["started"],
        "issued": now(),
        "key": manifest["key"],
        "nodes": len(models),
        "rounds": config.rounds,
        "data": data,
        "digests": {
            "configuration": digest_of(run.directory.path / "config.toml"),
            "data": digest,
            "models": models,
        },
    }


def _elsewhere(stated: Sequence[Any], here: set[int]) -> list[str]:
    if len(here) == len(stated):
        return []
    return [PLANNED if None in stated else STATED]


def _believed(stated: dict[str, Any] | None, planned: Proven) -> Proven:
    """Of a node whose ledger lies on another machine: the larger of what its rank states and what was planned.

    The plan is public and computed here: a rank cannot make its ε smaller by saying so. If it released less than was
    planned the figure is too large, never too small; if more, it is its own ledger that shows it. Where nobody was
    asked, the plan stands.
    """
    if stated is None:
        return planned
    return max(Proven(**stated), planned, key=lambda proven: proven.epsilon)


def _against_others(
    shared: Sharing, own: list[NodeProof], group: Group, elsewhere: Sequence[Spent], epsilon: float
) -> list[float]:
    """The worst node's ε for each number of colluders, from the ledgers; of nodes elsewhere never below the plan's."""
    priced = {spent: shared.epsilons(spent) for spent in dict.fromkeys(proof.spent for proof in own)}
    everyone = group.join([priced[proof.spent] for proof in own], per_node=True)
    stated = [one for one in everyone if one is not None]
    planned = [shared.epsilons(spent) for spent in dict.fromkeys(elsewhere)]
    return shared.around([max(of_nodes) for of_nodes in zip(*stated, *planned, strict=True)], epsilon)


def _network(o: Plan, ledgers: Path | None) -> dict[str, Any] | None:
    """A figure beside the others: where it cannot be had, the certificate goes without it."""
    try:
        return o.network_figures(ledgers)
    except UserError:
        return None


def _notes(parts: Parts, run: Run) -> list[str]:
    notes = []
    if parts.private_hold_out:
        notes.append(f"The hold-out is {NOT_PUBLIC}.")
    if run.lost_draws:
        notes.append(
            f"The run was stopped and continued; {run.lost_draws} draws of its nodes were spent and not used."
        )
    return notes
