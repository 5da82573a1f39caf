"""One run, from its parts to its certificate."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gossamer
from gossamer.accounting.ledger import LedgerBook
from gossamer.accounting.recompute import recompute
from gossamer.build import OWN_DATA, Outline, Parts, per_sample_loss
from gossamer.results.certificate import ARITHMETIC, NOT_COVERED, NOT_PUBLIC, OBSERVER, SEEDED, UNIT
from gossamer.results.certificate_page import page
from gossamer.results.epsilon_plot import epsilon_plot
from gossamer.results.metrics import Evaluator
from gossamer.results.rundir import RunDirectory
from gossamer.results.track import OpenTracker, Tracker, public
from gossamer.runtime.loop import run as run_loop
from gossamer.runtime.simulator import SimulatedExchange

MOST_SCORED = 20_000_000  # rows × nodes of one evaluation
OnMetrics = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    result: dict[str, Any]  # what `--json` prints
    certificate: dict[str, Any]
    directory: Path
    points: torch.Tensor  # (n, d) the nodes' models


def execute(
    parts: Parts,
    *,
    out: Path | None = None,
    on_metrics: OnMetrics = lambda row: None,
    on_round: Callable[[int], None] = lambda t: None,
    track: OpenTracker | None = None,
) -> Outcome:
    """Train on the simulator. The parts stand before anything is written."""
    o, config = parts.outline, parts.outline.config
    directory = RunDirectory.create(out, config.name)
    directory.write_config(o.asked.model_dump())
    directory.write_json("topology.json", o.topology.to_json())
    directory.write_json("manifest.json", _manifest(parts))
    directory.write_text("epsilon.svg", epsilon_plot(o.plan, config.rounds))
    book = LedgerBook.create(
        directory.ledger, {i: _ledger_header(o, i) for i in range(config.nodes)}, sync=False
    )
    tracker = None
    try:
        if track is not None:
            tracker = track(directory.path, _tracked_facts(o))
            on_metrics = _also(on_metrics, tracker)
        return _train(parts, directory, book, on_metrics, on_round)
    finally:
        book.close()
        if tracker is not None:
            tracker.close()


def _also(on_metrics: OnMetrics, tracker: Tracker) -> OnMetrics:
    def both(row: dict[str, Any]) -> None:
        tracker.metrics(public(row))
        on_metrics(row)

    return both


def _tracked_facts(o: Outline) -> dict[str, Any]:
    config = o.config
    seeded = config.privacy.noise.source == "seeded"
    what = f"{config.name}: {config.algorithm.kind}, {config.mode} mode, seed {config.seed}"
    return {"run": what, **({"stamp": SEEDED} if seeded else {})}


def _train(
    parts: Parts,
    directory: RunDirectory,
    book: LedgerBook,
    on_metrics: OnMetrics,
    on_round: Callable[[int], None],
) -> Outcome:
    o, config = parts.outline, parts.outline.config
    grad = parts.gradient(book)
    exchange = SimulatedExchange(o.topology)
    evaluate = Evaluator(
        o.module, o.stack, per_sample_loss(o.classes, config.loss), *parts.test, classes=o.classes
    )
    at = evaluation_rounds(config.rounds, config.evaluation.every)
    spent = dict(zip(at, o.plan.epsilon_after(at), strict=True))
    most = max(
        1, MOST_SCORED // config.nodes
    )  # with thousands of nodes, the whole hold-out would outlast the training
    few = min(config.evaluation.rows or 2000, most)
    start, row = time.perf_counter(), {}

    def after_round(t: int, state: Any) -> None:
        nonlocal row
        done = t + 1
        on_round(done)
        if config.checkpoints.every and done % config.checkpoints.every == 0:
            directory.save_checkpoint(done, _state(state, grad))
        if done not in spent:
            return
        claimed, proof = spent[done]
        row = {
            "round": done,
            **evaluate(o.algorithm.model(state), few if done < config.rounds else most),
            **({"hold_out": NOT_PUBLIC} if len(parts.test[0]) and not parts.dataset.public_test else {}),
            **({"push_sum_mass": float(state.w.double().sum())} if hasattr(state, "w") else {}),
            "epsilon_claimed": claimed,
            "epsilon_proven": proof,
            "bytes_sent": exchange.bytes_sent,
            "seconds": time.perf_counter() - start,
        }
        if grad.last_diagnostics is not None:
            norm, clipped = grad.last_diagnostics
            row["not_private"] = {"gradient_norm": norm.tolist(), "clipped_share": clipped.tolist()}
        directory.append_metrics(row)
        on_metrics(row)

    state = run_loop(
        o.algorithm, o.algorithm.init(parts.x0), grad, exchange, rounds=config.rounds, after_round=after_round
    )
    directory.save_checkpoint(config.rounds, _state(state, grad))
    book.close()
    private_hold_out = len(parts.test[0]) > 0 and not parts.dataset.public_test
    certificate = certify(o, directory, book.heads(), private_hold_out=private_hold_out)
    directory.write_json("certificate.json", certificate)
    directory.write_text("certificate.html", page(certificate, config.name))
    result = {
        **{key: certificate[key] for key in _SHARED},
        "nodes": config.nodes,
        "rounds": config.rounds,
        **{
            key: value
            for key, value in row.items()
            if key not in ("round", "epsilon_claimed", "epsilon_proven")
        },
        "seconds": time.perf_counter() - start,
        "run_dir": str(directory.path),
        "mode": config.mode,
        "baseline": config.baseline,
        "noise_source": config.privacy.noise.source,
    }
    return Outcome(result, certificate, directory.path, o.algorithm.model(state))


_SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "stamp",
)  # fmt: skip


def certify(
    o: Outline, directory: RunDirectory, heads: dict[int, str], *, private_hold_out: bool
) -> dict[str, Any]:
    """The privacy statement, its proven ε recomputed from the ledgers on disk alone."""
    nodes = recompute(directory.ledger)
    proofs = [node.proven for node in nodes]
    figures = o.plan.figures()
    by_node = [
        {**entry, "proven": _finite(p.epsilon)}
        for entry, p in zip(figures["epsilon_by_node"], proofs, strict=True)
    ]
    worst = max(proofs, key=lambda p: p.epsilon)
    config = o.config
    return {
        **figures,
        "epsilon_proven": _finite(worst.epsilon),
        "epsilon_proven_lower": worst.lower,
        "epsilon_by_node": by_node,
        "not_proven_because": worst.because,
        "unit": UNIT,
        "observer": OBSERVER,
        "mode": config.mode,
        "method": config.algorithm.kind,
        "baseline": config.baseline,
        "weighting": config.weighting,
        "noise_source": config.privacy.noise.source,
        "stamp": SEEDED if config.privacy.noise.source == "seeded" else None,
        "notes": [*o.plan.notes, *([f"The hold-out is {NOT_PUBLIC}."] if private_hold_out else [])],
        "not_covered": [*NOT_COVERED, ARITHMETIC[config.privacy.noise.arithmetic]],
        "public_constants": [
            {"node": i, "records": node.records, "rate": node.rate, "lot": node.lot, "weight": node.weight}
            for i, node in enumerate(o.plan.nodes)
        ],
        "draws": [node.draws for node in nodes],
        "ledger_heads": [heads[i] for i in range(config.nodes)],
        "versions": _versions(),
    }


def evaluation_rounds(rounds: int, every: int | None) -> list[int]:
    every = every or max(1, -(-rounds // 10))
    return sorted({*range(every, rounds + 1, every), rounds})


def _state(state: Any, grad: Any) -> dict[str, Any]:
    return {**state._asdict(), **{f"gradient.{key}": value for key, value in grad.state().items()}}


def _ledger_header(o: Outline, i: int) -> dict[str, Any]:
    node = o.plan.nodes[i]
    seeded = o.config.privacy.noise.source == "seeded"
    return {
        "delta": node.delta,
        "epsilon_asked": node.epsilon,
        "adjacency": o.plan.adjacency,
        "unit": UNIT,
        "noise": SEEDED if seeded else "system",
        "public": {"records": node.records, "rate": node.rate, "lot": node.lot},
    }


def _manifest(parts: Parts) -> dict[str, Any]:
    o = parts.outline
    own = o.config.data.kind in OWN_DATA
    return {
        "name": o.config.name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "dimension": o.stack.dim,
        "records_by_node": [node.records for node in o.plan.nodes],
        # A digest of private records would let whoever holds this file test guesses of them.
        "data": {k: v for k, v in parts.dataset.provenance.items() if k != "sha256" or not own},
        "noise": SEEDED if o.config.privacy.noise.source == "seeded" else "system",
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "dp-accounting", "cryptography")}
    return {"gossamer": gossamer.__version__, "python": platform.python_version(), **libraries}


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
