"""Parts → a finished run: rounds, evaluations, checkpoints, the certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.certificate import SEEDED
from gossamer.results.certificate_page import page
from gossamer.results.notebook import outcome_html, outcome_text
from gossamer.results.seals import END, STOPPED
from gossamer.results.track import OpenTracker, Tracker, certified_facts, privacy_facts, public
from gossamer.results.trained.models import Models
from gossamer.results.trained.uses import UsesModels
from gossamer.results.verify import end_digests
from gossamer.runtime.group import Alone, Group
from gossamer.runtime.loop import run as run_loop
from gossamer.training.assemble import Parts
from gossamer.training.begin import Run, begin, unwritable
from gossamer.training.certify import SHARED, certify
from gossamer.training.evaluate import evaluation_of, evaluation_rounds
from gossamer.training.models import keep_models, layout_of
from gossamer.training.plan import Plan
from gossamer.training.resume import keep, seal
from gossamer.training.resume import resume as resume_run

OnMetrics = Callable[[dict[str, Any]], None]
OnRound = Callable[[int], None]


@dataclass(frozen=True, repr=False)
class Outcome(UsesModels):
    """What came of a run."""

    result: dict[str, Any]  # what `--json` prints
    certificate: dict[str, Any]
    directory: Path
    points: torch.Tensor  # (n, d) the nodes' models
    models: Models  # the same, ready to be used: `.module()`, `.predict(x)`

    def __repr__(self) -> str:
        return outcome_text(self.result, self.certificate)

    def _repr_html_(self) -> str:
        return outcome_html(self.result, self.certificate, self.directory)


def execute(
    parts: Parts,
    *,
    out: Path | str | None = None,
    resume: Path | None = None,
    group: Group | None = None,
    on_metrics: OnMetrics = lambda row: None,
    on_round: OnRound = lambda t: None,
    track: OpenTracker | None = None,
) -> Outcome:
    """Train, or go on in the directory `resume`; on the simulator, unless a `group` of processes carries it."""
    group = group or Alone(parts.plan.config.nodes)
    out = None if out is None else Path(out)
    try:
        run = resume_run(parts, group, resume) if resume is not None else begin(parts, group, out)
    except OSError as error:
        raise unwritable(resume or out or Path("runs"), error) from None
    tracker = None
    try:
        if track is not None and group.first:
            tracker = track(run.directory.path, _tracked_facts(parts.plan))
            on_metrics = _also(on_metrics, tracker)
        outcome = _train(run.parts, run, group, on_metrics, on_round)
        if tracker is not None:
            tracker.end(certified_facts(outcome.certificate))
        return outcome
    finally:
        run.close()
        if tracker is not None:
            tracker.close()


def _also(on_metrics: OnMetrics, tracker: Tracker) -> OnMetrics:
    def both(row: dict[str, Any]) -> None:
        tracker.metrics(public(row))
        on_metrics(row)

    return both


def _tracked_facts(o: Plan) -> dict[str, Any]:
    config = o.config
    what = f"{config.name}: {config.algorithm.kind}, {config.mode} mode, seed {config.seed}"
    planned = privacy_facts(
        {**o.privacy.figures(), "unit": o.privacy.unit, "observer": o.privacy.observer.describe()}
    )
    return {
        "run": what,
        **({"stamp": SEEDED} if o.seeded else {}),
        **{f"planned.{name}": text for name, text in planned.items()},
    }


def _train(parts: Parts, run: Run, group: Group, on_metrics: OnMetrics, on_round: OnRound) -> Outcome:
    o, config, directory = parts.plan, parts.plan.config, run.directory
    kept_at = checkpoint_rounds(config.rounds, config.checkpoints.every)
    evaluated_at = evaluation_rounds(config.rounds, config.evaluation.every)
    exchange = parts.exchange(
        group,
        run.identity,
        run.reader,
        run.book,
        state=run.state,
        known_at=kept_at.union(evaluated_at),
        bytes_sent=run.bytes_sent,
    )
    evaluate = evaluation_of(parts, run, group)
    start, row = time.perf_counter() - run.seconds, directory.last_metrics()
    reached = run.done
    last: tuple[int, dict[str, Any], int] | None = None  # a complete round and what a checkpoint of it holds

    def save(done: int, tensors: dict[str, Any], sent: int) -> None:
        seconds, all_kept = time.perf_counter() - start, config.checkpoints.every is not None
        layout = layout_of(o.stack, run.state)
        keep(run, group, done, tensors, sent, seconds, layout=layout, all_kept=all_kept)

    def after_round(t: int, state: Any) -> None:
        nonlocal row, last, reached
        done = reached = t + 1
        on_round(done)
        if (figures := evaluate(done, state)) is not None:
            sent = sum(group.join([exchange.bytes_sent]))
            row = {**figures, "bytes_sent": sent, "seconds": time.perf_counter() - start}
            if group.first_here:
                directory.append_metrics(row)
            on_metrics(row)
        # After the evaluation of its round: whoever goes on from here finds that on file.
        last = (done, o.method.kept(state, run.reader), exchange.bytes_sent)
        if done in kept_at:
            save(*last)
            last = None

    try:
        state = run_loop(
            o.algorithm,
            run.state,
            run.reader,
            exchange,
            rounds=config.rounds,
            start=run.done,
            before_round=group.begin_round,
            after_round=after_round,
        )
        o.method.finish(exchange, o.stack.dim)
        run.book.close()
        models, points, files = keep_models(parts, run, group, state)
        certificate = certify(parts, run, group, points)
        _finish(run, group, certificate, config, files)
    except (KeyboardInterrupt, OSError) as stop:
        # Alone, the last complete round is worth keeping; several processes hardly stop after the same one.
        with suppress(OSError):
            if last is not None and group.size == 1:
                save(*last)
        with suppress(OSError):
            if group.size == 1:
                seal(run, group, STOPPED, reached, {})  # what is on file since the checkpoint
        raise _explained(stop, directory.path, group) from stop
    seconds = time.perf_counter() - start
    result = result_of(config, certificate, row, seconds=seconds, run_dir=str(directory.path))
    return Outcome(result, certificate, directory.path, points, models)


def _finish(
    run: Run, group: Group, certificate: dict[str, Any], config: RunConfig, models: dict[str, str]
) -> None:
    """Pages, the last seal, the certificate, which says that the run is finished; then its key is nobody's."""
    directory = run.directory
    if group.first_here:
        directory.write_text("certificate.html", page(certificate, config.name))
    seal(run, group, END, config.rounds, models, folder="", **end_digests(directory.path, certificate))
    if group.first_here:
        directory.write_json("certificate.json", certificate)
        if run.sealer is not None:
            run.sealer.destroy()


def checkpoint_rounds(rounds: int, every: int | None) -> set[int]:
    """About twenty if not said otherwise: a stop then costs a twentieth of the run, and of the budget, at most."""
    every = every or max(1, -(-rounds // 20))
    return {*range(every, rounds + 1, every), rounds}


def result_of(
    config: RunConfig, certificate: dict[str, Any], row: dict[str, Any], *, seconds: float, run_dir: str
) -> dict[str, Any]:
    """What `--json` prints: the certificate's figures and the last evaluation's."""
    evaluated = {k: v for k, v in row.items() if k not in ("round", "epsilon_claimed", "epsilon_proven")}
    return {
        **{key: certificate[key] for key in SHARED},
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
