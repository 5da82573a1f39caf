"""`gossamer audit`: attack what a configuration would release, and say beside claimed and proven what that shows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.units import NODE, RECORD
from gossamer.auditing import canaries, judge, pictures
from gossamer.auditing.batches import NAME as SCORES
from gossamer.auditing.batches import KeptBatches
from gossamer.auditing.elsewhere import opened, train_elsewhere
from gossamer.auditing.procedures import (
    LENGTH_ROWS,
    Attack,
    Axes,
    Lengths,
    refuse_unequal_sizes,
    stream_of,
)
from gossamer.auditing.recovery import RECOVERIES
from gossamer.auditing.release import Releases
from gossamer.auditing.retraining import Retraining
from gossamer.auditing.scores import observer_of
from gossamer.auditing.sensitivity import (
    QUICK,
    QUICK_SECONDS,
    THOROUGH,
    THOROUGH_SECONDS,
    Searched,
    bounds_records,
    search,
)
from gossamer.auditing.shared_noise import held_against
from gossamer.auditing.write_sensitivity import search_writes
from gossamer.auditing.writes import writes_attack
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest
from gossamer.options.sentences import whole_number
from gossamer.results.audit_page import page
from gossamer.results.certificate import SEEDED
from gossamer.results.files import read_object
from gossamer.results.rundir import RunDirectory, free_path, make_empty
from gossamer.studies.jobs import Engine
from gossamer.training.assemble import assemble
from gossamer.training.budget import charge, refuse_above_cap
from gossamer.training.plan import Plan

SENSITIVITY = "sensitivity"  # no coins and no training: a record is searched for that its clip does not bound
MOST_RECORDS = 10_000  # of a canary that is a person
KINDS = ("dirac", "lengths", "release", *canaries.CANARIES, SENSITIVITY)


def audit(config: RunConfig, *, out: Path | None = None, engine: str = "local", **how: Any) -> dict[str, Any]:
    """Run the attack, write certificate.json and report.html into a folder, and return what `--json` prints.

    `how` is that of `audit_into`. A folder that holds an unfinished audit of the same by retraining is continued.
    """
    folder = out or free_path(f"audit-{config.name}")
    at = {key: how.get(key) for key in ("canary", "module")}
    if (folder / SCORES).is_file() and not (folder / "certificate.json").is_file():
        with opened(engine, [config], **at) as executor:
            return audit_into(folder, config, executor=executor, **how)
    _check(**how)  # a mistake leaves no folder behind
    o = Plan.of(config, data_dir=how.get("data_dir"), module=how.get("module"), force=how.get("force", False))
    if how.get("canary") != SENSITIVITY:
        attack = attack_of(
            o, how.get("observer", "all"), how.get("canary"), how.get("data_dir"), how.get("records", 1)
        )
        if isinstance(attack, Retraining):
            refuse_above_cap([(o, how.get("runs") or attack.runs)], how.get("data_dir"))
    searched = search_of(o, **how)
    with opened(engine, [config], **at) as executor:
        make_empty(folder)
        return audit_into(folder, config, searched=searched, executor=executor, **how)


def audit_into(
    folder: Path,
    config: RunConfig,
    *,
    observer: str = "all",
    canary: str | None = None,
    runs: int | None = None,
    confidence: float = 0.999,
    data_dir: Path | None = None,
    module: nn.Module | None = None,
    force: bool = False,
    records: int = 1,
    searched: Searched | None = None,
    executor: tuple[Engine, Executor] | None = None,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """The same into a folder that may hold finished batches of it already; `searched` if that was done before.

    `executor` trains what is trained again; this process does without one.
    """
    _check(runs=runs, confidence=confidence, canary=canary, records=records)
    start = time.perf_counter()
    o = Plan.of(config, data_dir=data_dir, module=module, force=force)
    searched = searched or search_of(o, canary=canary, module=module, runs=runs, data_dir=data_dir)
    if canary == SENSITIVITY:
        assert searched is not None
        return _write(folder, o, observer, _with_search(_without_coins(o, confidence), searched), records)
    attack = attack_of(o, observer, canary, data_dir, records)
    figures = o.privacy.figures()
    seen, held = held_against(o.privacy, observer_of(observer, o.topology))
    limits = judge.promised(seen.figures(), config.mode, seen.trade_off())
    folder.mkdir(parents=True, exist_ok=True)
    retrains = isinstance(attack, Retraining)
    kept = (
        KeptBatches(folder, config, observer, f"{canary}{_mark(o, module)}{_several(records)}")
        if retrains
        else None
    )
    budget = None
    if kept is not None:  # it trains on the records themselves, again and again: each training counts
        left = (runs or attack.runs) - kept.runs
        budget = charge(o, left, data_dir) if left > 0 else None
    if executor is not None and kept is not None:
        sizes = judge.batch_sizes(runs or attack.runs, attack.at_once)
        asked = {"observer": observer, "canary": canary, "records": records}
        train_elsewhere(executor, folder, config, kept, sizes, asked, force=force, on_batch=on_batch)
    collected, verdict = judge.try_until_decided(
        attack, figures["delta"], confidence, limits, runs or attack.runs, on_batch, kept
    )
    result = {
        **figures,
        "epsilon_audited": verdict.epsilon,
        "violation": bool(verdict.violated),
        "violated": list(verdict.violated),
        "budget": budget,
        "audit": {
            "confidence": confidence,
            "attacked": attack.attacked,
            "trained": not isinstance(attack, Releases),
            "canaries": attack.description,
            "independent_scores": attack.independent,
            "notes": list(attack.notes),
            **({"held_against": held} if held else {}),
            "bounds": [asdict(bound) for bound in verdict.bounds],
            "above_one_point": list(verdict.above_one_point),
            "curve_tests": [asdict(test) for test in verdict.curve_tests],
            "proven_curve": list(limits.curve.points) if limits.curve else [],
            "runs": verdict.runs,
            "looks": verdict.looks,
            "coins": len(collected.coins),
            "training_seconds": collected.seconds,
            "samples_per_second": collected.samples / max(collected.seconds, 1e-9),
            **collected.details,
            **pictures.of(collected.coins),
        },
        "seconds": time.perf_counter() - start,
    }
    return _write(folder, o, observer, _with_search(result, searched), records)


def judged_unit(o: Plan, records: int) -> str:
    """Of what the attack shows something: what the run protects, or a person of whom it promises nothing."""
    if records == 1 or o.privacy.protects.kind != RECORD:
        return o.privacy.unit
    return f"one person of {records} records, beside what is promised of {o.privacy.unit}"


def _write(folder: Path, o: Plan, observer: str, found: dict[str, Any], records: int = 1) -> dict[str, Any]:
    """The folder of an audit; returns what `--json` prints."""
    config, view = o.asked, observer_of(observer, o.topology)
    result = {
        **found,
        "unit": judged_unit(o, records),
        "observer": (o.privacy.observer if view == EVERYONE else view).describe(),
        "nodes": o.config.nodes,
        "rounds": o.config.rounds,
        "mode": config.mode,
        "method": config.algorithm.kind,
        "baseline": config.baseline,
        "noise_source": config.privacy.noise.source,
        "stamp": SEEDED if config.privacy.noise.source == "seeded" else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    directory = RunDirectory(folder)
    directory.write_config(o.asked.model_dump())
    directory.write_json("certificate.json", result)
    directory.write_text("report.html", page(result, config.name))
    return {**result, "audit_dir": str(folder)}


def search_of(
    o: Plan,
    *,
    canary: str | None = None,
    module: nn.Module | None = None,
    runs: int | None = None,
    data_dir: Path | None = None,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
    **_: Any,
) -> Searched | None:
    """The search for a record that is not bounded: thorough where asked for, quick for a module of the user's own.

    Asked for, `runs` is how many records are tried at most.
    """
    if canary != SENSITIVITY and module is None:
        return None
    asked = canary == SENSITIVITY
    tries = (runs or THOROUGH) if asked else QUICK
    seconds = THOROUGH_SECONDS if asked else QUICK_SECONDS
    if o.method.keeps_local_models:
        return search_writes(o, tries=tries, seconds=seconds, on_try=on_batch)
    parts = assemble(o)
    if not asked and not bounds_records(parts):
        return None  # nothing is promised of a single record, and the figures say so already
    return search(parts, tries=tries, seconds=seconds, on_try=on_batch)


def _with_search(result: dict[str, Any], searched: Searched | None) -> dict[str, Any]:
    if searched is None:
        return result
    broken = [SENSITIVITY] if searched.broken else []
    return {
        **result,
        "violation": bool(result["violation"] or broken),
        "violated": [*result["violated"], *broken],
        "audit": {**result["audit"], "sensitivity": searched.figures()},
    }


def _without_coins(o: Plan, confidence: float) -> dict[str, Any]:
    """An audit by search alone: it has no coins, and so no ε of its own."""
    return {
        **o.privacy.figures(),
        "epsilon_audited": None,
        "violation": False,
        "violated": [],
        "audit": {
            "confidence": confidence,
            "canaries": "records that might move a figure by more than their clip",
            "notes": [],
            "bounds": [],
            "runs": 0,
            "coins": 0,
            "training_seconds": 0.0,
            "samples_per_second": 0.0,
        },
    }


def _mark(o: Plan, module: nn.Module | None) -> str:
    """Batches of another module are not continued."""
    if module is None:
        return ""
    content = repr(module).encode() + o.stack.flatten(o.module).cpu().numpy().tobytes()
    content += fixed_digest(o.module).encode()
    return f" {hashlib.sha256(content).hexdigest()[:16]}"


def _several(records: int) -> str:
    """Nor are those of canaries with other numbers of records."""
    return "" if records == 1 else f" of {records} records"


def attack_of(o: Plan, observer: str, canary: str | None, data_dir: Path | None, records: int = 1) -> Attack:
    """The attack that fits: along axes, by lengths where the noise follows the records, or what was asked for."""
    view = observer_of(observer, o.topology)
    if o.privacy.preprocesses and canary != "release":
        raise UserError(
            f"privacy.preprocessing = {o.config.privacy.preprocessing:g} releases something before the first round, "
            "which these canaries do not look at; use --canary release."
        )
    if not o.privacy.noise.adds:
        raise UserError("there is nothing to audit: this configuration adds no noise, so everything shows.")
    if records > 1 and (o.method.keeps_local_models or canary in ("release", "lengths")):
        raise UserError(
            f"--canary-records {records} is for canaries that are records of a training; use --canary dirac, blank, "
            "mislabelled or extreme."
        )
    if o.method.keeps_local_models and canary != "release":
        return _writes(o, view, canary)
    if type(o.algorithm) not in RECOVERIES or o.privacy.protects.kind == NODE:
        canary = canary or "release"  # no messages that are read backwards, or one unit at a node
    follows = o.privacy.noise.without_proof is not None and view.sees_all
    kind = canary or ("lengths" if follows else "dirac")
    if kind == "release":
        if view != EVERYONE and view.colluders is None:
            raise UserError(
                f"--observer {view.name} does not see every planned release, which is what --canary release attacks; "
                "use --observer all."
            )
        seen, _ = held_against(o.privacy, view)
        releases = [event.release.seen_by(view) for event in seen.planned(seen.worst)]
        return Releases(releases, lambda number: stream_of(o.config, number))
    refuse_unequal_sizes(o.config)
    if kind in canaries.CANARIES:
        return Retraining(assemble(o), kind, view, records=records)
    if kind == "lengths":
        if not view.sees_all:
            raise UserError(
                "--canary lengths measures everyone's messages; use --observer all or --canary dirac."
            )
        parts = assemble(Plan.of(canaries.on_dirac_records(o.asked, o.privacy, LENGTH_ROWS), force=o.forced))
        return Lengths(parts, sees_models=view.sees_models)
    on_axes = Plan.of(canaries.on_dirac_records(o.asked, o.privacy), force=o.forced)
    return Axes(assemble(on_axes), view, records=records)


def _writes(o: Plan, view: Observer, canary: str | None) -> Attack:
    method = f"algorithm.kind = {o.config.algorithm.kind!r}"
    if view != EVERYONE:  # the last write is in no message, but in the model that is left
        raise UserError(
            f"--observer {view.name} has nothing of its own to see of {method}: everyone may fetch the shared model; "
            "use --observer all."
        )
    if canary not in (None, "dirac"):
        raise UserError(f"--canary {canary} is not made for {method}; use --canary dirac or release.")
    return writes_attack(o.asked, o.privacy, o.classes, force=o.forced)


def add_to_run(run: Path, result: dict[str, Any]) -> None:
    """Put the audited figure beside the others in a finished run's own certificate."""
    from gossamer.results.certificate_page import page as certificate_page

    certificate = read_object(run / "certificate.json")
    if result["audit"]["bounds"] or not certificate.get("audit"):
        certificate |= {key: result[key] for key in ("epsilon_audited", "violation", "violated")}
        certificate["audit"] = {**result["audit"], "observer": result["observer"]}
    else:  # a search beside coins that were flipped before
        others = [name for name in certificate["violated"] if name != SENSITIVITY]
        certificate["violated"] = [*others, *result["violated"]]
        certificate["violation"] = bool(certificate["violated"])
        certificate["audit"]["sensitivity"] = result["audit"]["sensitivity"]
    directory = RunDirectory(run)
    directory.write_json("certificate.json", certificate)
    directory.write_text("certificate.html", certificate_page(certificate, run.name))


def _check(
    *,
    runs: int | None = None,
    confidence: float = 0.999,
    canary: str | None = None,
    records: int = 1,
    **_: Any,
) -> None:
    if not 1 <= whole_number("--canary-records", records) <= MOST_RECORDS:
        raise UserError(f"--canary-records {records} must be a whole number from 1 to {MOST_RECORDS:,}.")
    if runs is not None:
        whole_number("--runs", runs)
    if not (isinstance(confidence, int | float) and 0.5 <= confidence < 1):
        raise UserError(f"--confidence {confidence} must be at least 0.5 and below 1, for example 0.999.")
    if canary is not None and canary not in KINDS:
        raise UserError(f"--canary {canary} is not known; it can be {', '.join(KINDS)}.")
