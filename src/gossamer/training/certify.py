"""The end of a run: its certificate, computed from the run directory and signed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.accounting.recompute import recompute
from gossamer.errors import UserError
from gossamer.results.certificate import END, PLANNED_ELSEWHERE, STATED_ELSEWHERE, certificate_of
from gossamer.results.pages import certificate_page
from gossamer.results.rundir import read_object
from gossamer.results.trained.weights import digests_of_models
from gossamer.runtime.group import agreed
from gossamer.training.budget import everyones, now
from gossamer.training.budget import worst as worst_account
from gossamer.training.manifest import versions
from gossamer.training.plan import Plan
from gossamer.training.privacy import finite
from gossamer.training.several import nodes_here

if TYPE_CHECKING:
    from gossamer.training.run import Run

# What `--json` of a run repeats of its certificate.
SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "epsilon_by_observer",
    "epsilon_by_colluders", "stamp", "budget",
)  # fmt: skip
Sign = Callable[[dict[str, Any]], dict[str, Any]]


def issue_certificate(run: Run, rounds: int, sign: Sign) -> dict[str, Any]:
    """Write the certificate of a run whose ledgers and models are on file, sign it, and delete the run's key.

    `rounds`: those that were run here; `sign`: adds an organisation's signature.
    """
    o, directory, group = run.plan, run.directory, run.group
    totals = agreed(group, lambda: run.accounts.settle(now(), directory.path))
    budget = worst_account(everyones(totals, group), o.config.privacy.cap)
    elsewhere = _elsewhere(run)

    def write() -> None:
        assert run.key is not None
        end = {
            "issued": now(),
            "rounds": rounds,
            "versions": versions(),
            # Over all runs on the same records of the user's own; None for public ones.
            "budget": budget,
            "network": _network(o, None if elsewhere["elsewhere"] else directory.path),
            **elsewhere,
        }
        directory.write_json(END, end)
        certificate = sign(run.key.sign(certificate_of(directory.path)))
        directory.write_text("certificate.html", certificate_page(certificate))
        directory.write_json("certificate.json", certificate)
        run.key.delete()

    agreed(group, write, here=group.first_here)
    return read_object(directory.path / "certificate.json")


def _elsewhere(run: Run) -> dict[str, Any]:
    """Return what is stated of nodes whose ledgers are on other machines; ranks of one machine state nothing.

    The plan is public and computed here: the larger of it and what a rank states counts, so that no rank can make its ε
    smaller by stating so. If it released more than planned, its own ledger shows it. A site takes the plan alone.
    """
    group, plan = run.group, run.plan.privacy
    here, total = set(nodes_here(group)), len(plan.nodes)
    if len(here) >= total:
        return {"elsewhere": [], "curves": [], "notes": []}
    shared, planned = plan.sharing()
    models = digests_of_models(run.directory.path, total)
    proofs = recompute(run.directory.path, group.nodes, observer=plan.observer)
    priced = {one: shared.epsilons(one) if shared else None for one in dict.fromkeys(p.spent for p in proofs)}
    own: list[dict[str, Any]] = [
        {
            "proven": asdict(proof.proven),
            "draws": proof.draws,
            "head": proof.head,
            "model": models.get(proof.node),
            "curve": priced[proof.spent],
        }
        for proof in proofs
    ]
    stated = group.join(own, per_node=True)
    missing = sorted(set(range(total)) - here)
    curves = [shared.epsilons(one) for one in dict.fromkeys(planned[i] for i in missing)] if shared else []
    entries = []
    for i in missing:
        due = asdict(plan.nodes[i].proven)
        entry: dict[str, Any] = stated[i] or {"proven": due}
        larger = max(due, entry["proven"], key=lambda proof: proof["epsilon"])
        entries.append(
            {
                "node": i,
                "stated_by": group.whose(i),
                "proven": {**larger, "epsilon": finite(larger["epsilon"])},
                **{key: entry.get(key) for key in ("draws", "head", "model")},
            }
        )
        curves += [entry["curve"]] if entry.get("curve") else []
    worst = [[finite(max(point)) for point in zip(*curves, strict=True)]] if curves else []
    note = PLANNED_ELSEWHERE if any(one is None for one in stated) else STATED_ELSEWHERE
    return {"elsewhere": entries, "curves": worst, "notes": [note]}


def _network(o: Plan, ledgers: Path | None) -> dict[str, Any] | None:
    """What one node and an outsider learn, where that has a figure; of nodes elsewhere as it was planned."""
    try:
        return o.network_figures(ledgers)
    except UserError:
        return None
