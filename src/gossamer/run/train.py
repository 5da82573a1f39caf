"""One run, from its parts to its certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.accounting.proven import Proven
from gossamer.accounting.recompute import recompute
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.methods.km.messages import NoisyMessages
from gossamer.results.certificate import ARITHMETIC, NOT_COVERED, NOT_PUBLIC, OBSERVER, SEEDED, UNIT
from gossamer.results.certificate_page import page
from gossamer.results.metrics import Evaluator
from gossamer.results.track import OpenTracker, Tracker, public
from gossamer.run.assemble import Outline, Parts, released, scored
from gossamer.run.begin import Begun, afresh, keep, resumed, to_keep, versions
from gossamer.runtime.group import Alone, Group
from gossamer.runtime.loop import run as run_loop

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
    resume: Path | None = None,
    group: Group | None = None,
    on_metrics: OnMetrics = lambda row: None,
    on_round: Callable[[int], None] = lambda t: None,
    track: OpenTracker | None = None,
) -> Outcome:
    """Train, or go on in the directory `resume`; on the simulator, unless a `group` of processes carries it."""
    o = parts.outline
    group = group or Alone(o.config.nodes)
    begun = resumed(parts, group, resume) if resume is not None else afresh(parts, group, out)
    tracker = None
    try:
        if track is not None and group.first:
            tracker = track(begun.directory.path, _tracked_facts(o))
            on_metrics = _also(on_metrics, tracker)
        return _train(parts, begun, group, on_metrics, on_round)
    finally:
        begun.book.close()
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
    parts: Parts, begun: Begun, group: Group, on_metrics: OnMetrics, on_round: Callable[[int], None]
) -> Outcome:
    o, config, directory, grad = parts.outline, parts.outline.config, begun.directory, begun.grad
    seeded, kept_at = (
        config.privacy.noise.source == "seeded",
        checkpoint_rounds(config.rounds, config.checkpoints.every),
    )
    exchange = parts.exchange(
        group,
        begun.run,
        grad,
        begun.book,
        state=begun.state,
        known_at=kept_at.union(evaluation_rounds(config.rounds, config.evaluation.every)),
        bytes_sent=begun.bytes_sent,
    )
    evaluation = _evaluations(parts, begun, group)
    start, row = time.perf_counter() - begun.seconds, directory.last_metrics()
    last: tuple[int, dict[str, Any], int] | None = None  # a complete round and what a checkpoint of it holds

    def save(done: int, content: dict[str, Any], sent: int) -> None:
        seconds, all_kept = time.perf_counter() - start, config.checkpoints.every is not None
        keep(begun, group, done, content, sent, seconds, all_kept=all_kept)

    def after_round(t: int, state: Any) -> None:
        nonlocal row, last
        done = t + 1
        on_round(done)
        if (figures := evaluation(done, state)) is not None:
            sent = sum(group.join([exchange.bytes_sent]))
            row = {**figures, "bytes_sent": sent, "seconds": time.perf_counter() - start}
            if group.first_here:
                directory.append_metrics(row)
            on_metrics(row)
        # After the evaluation of its round: whoever goes on from here finds that on file.
        last = (done, to_keep(state, grad, seeded=seeded), exchange.bytes_sent)
        if done in kept_at:
            save(*last)
            last = None

    try:
        state = run_loop(
            o.algorithm,
            begun.state,
            grad,
            exchange,
            rounds=config.rounds,
            start=begun.done,
            after_round=after_round,
        )
        if isinstance(exchange, NoisyMessages):
            exchange.publish(o.stack.dim)
        begun.book.close()
        certificate = certify(o, begun, group, private_hold_out=_private_hold_out(parts))
        if group.first_here:
            directory.write_text("certificate.html", page(certificate, config.name))
            directory.write_json("certificate.json", certificate)  # last: it says that the run is finished
    except (KeyboardInterrupt, OSError) as stop:
        # Alone, the last complete round is worth keeping; several processes hardly stop after the same one.
        with suppress(OSError):
            if last is not None and group.size == 1:
                save(*last)
        raise _explained(stop, directory.path, group) from stop
    seconds = time.perf_counter() - start
    result = _result(config, certificate, row, seconds=seconds, run_dir=str(directory.path))
    return Outcome(result, certificate, directory.path, released(o, state, len(group.nodes)))


def _evaluations(parts: Parts, begun: Begun, group: Group) -> Callable[[int, Any], dict[str, Any] | None]:
    """(rounds done, state) → that round's figures, None where none are due."""
    o, config, grad = parts.outline, parts.outline.config, begun.grad
    evaluate = Evaluator(
        o.module, o.stack, o.loss, *parts.test, classes=o.classes, together=group,
        truth=parts.dataset.truth,
    )  # fmt: skip
    at = evaluation_rounds(config.rounds, config.evaluation.every)
    # Draws that were spent and lost count from the start: ε is never said to be lower than it is.
    before = o.plan.draws_before if begun.done else 0
    unused = -(-(grad.draws - before - begun.done * o.plan.draws_per_round) // o.plan.draws_per_round)
    spent = dict(zip(at, o.plan.epsilon_after([done + unused for done in at]), strict=True))
    # With thousands of nodes, the whole hold-out would outlast the training.
    most = max(1, MOST_SCORED // config.nodes)
    few = min(config.evaluation.rows or 2000, most)

    def evaluation(done: int, state: Any) -> dict[str, Any] | None:
        if done not in spent:
            return None
        claimed, proof = spent[done]
        row = {
            "round": done,
            **({"metric": "truth_rmse"} if config.evaluation.metric == "truth" else {}),
            **evaluate(scored(o, state, grad, len(group.nodes)), few if done < config.rounds else most),
            **({"hold_out": NOT_PUBLIC} if _private_hold_out(parts) else {}),
            "epsilon_claimed": claimed,
            "epsilon_proven": proof,
        }
        if hasattr(state, "w"):
            row["push_sum_mass"] = math.fsum(group.join(state.w.double().flatten().tolist()))
        if grad.last_diagnostics is not None:
            norm, clipped = grad.last_diagnostics
            row["not_private"] = {"gradient_norm": norm.tolist(), "clipped_share": clipped.tolist()}
        return row

    return evaluation


def _private_hold_out(parts: Parts) -> bool:
    return len(parts.test[0]) > 0 and not parts.dataset.public_test


def _result(
    config: RunConfig, certificate: dict[str, Any], row: dict[str, Any], *, seconds: float, run_dir: str
) -> dict[str, Any]:
    """What `--json` prints: the certificate's figures and the last evaluation's."""
    evaluated = {k: v for k, v in row.items() if k not in ("round", "epsilon_claimed", "epsilon_proven")}
    return {
        **{key: certificate[key] for key in _SHARED},
        "nodes": config.nodes,
        "rounds": config.rounds,
        **evaluated,
        "seconds": seconds,
        "run_dir": run_dir,
        "mode": config.mode,
        "baseline": config.baseline,
        "noise_source": config.privacy.noise.source,
    }


def _explained(stop: BaseException, directory: Path, group: Group) -> BaseException:
    """What stopped the run and how to go on, in one sentence."""
    how = f"continue with `gossamer run --resume {directory}`"
    if isinstance(stop, OSError):
        what = f"{group.name} cannot write into the run directory ({stop.strerror or stop})"
        return UserError(f"{what}; mend that, then {how}.")
    return KeyboardInterrupt(how)


_SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "stamp",
)  # fmt: skip


def certify(o: Outline, begun: Begun, group: Group, *, private_hold_out: bool) -> dict[str, Any]:
    """The privacy statement, its proven ε recomputed from the ledgers on disk alone, each where it lies."""
    own = recompute(begun.directory.ledger, group.nodes)
    proofs = [Proven(**proof) for proof in group.join([asdict(node.proven) for node in own])]
    draws = group.join([node.draws for node in own])
    heads = group.join([begun.book.head(i) for i in group.nodes])
    figures = o.plan.figures()
    by_node = [
        {**entry, "proven": _finite(p.epsilon)}
        for entry, p in zip(figures["epsilon_by_node"], proofs, strict=True)
    ]
    worst = max(proofs, key=lambda p: p.epsilon)
    notes = list(o.plan.notes)
    if private_hold_out:
        notes.append(f"The hold-out is {NOT_PUBLIC}.")
    if begun.lost_draws:
        notes.append(
            f"The run was stopped and continued; {begun.lost_draws} draws of its nodes were spent and not used."
        )
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
        "notes": notes,
        "not_covered": [*NOT_COVERED, ARITHMETIC[config.privacy.noise.arithmetic]],
        "public_constants": [
            {"node": i, "records": node.records, "rate": node.rate, "lot": node.lot, "weight": node.weight}
            for i, node in enumerate(o.plan.nodes)
        ],
        "draws": draws,
        "ledger_heads": heads,
        "versions": versions(),
    }


def evaluation_rounds(rounds: int, every: int | None) -> list[int]:
    every = every or max(1, -(-rounds // 10))
    return sorted({*range(every, rounds + 1, every), rounds})


def checkpoint_rounds(rounds: int, every: int | None) -> set[int]:
    """About twenty if not said otherwise: a stop then costs a twentieth of the run, and of the budget, at most."""
    every = every or max(1, -(-rounds // 20))
    return {*range(every, rounds + 1, every), rounds}


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
