"""One audit: what is attacked and how, the verdict, and the folder with its certificate and page."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.accounting.observers import EVERYONE, RECORD, Observer
from gossamer.auditing import canaries
from gossamer.auditing.attacks import attack_of, observer_of
from gossamer.auditing.bounds import score_curves
from gossamer.auditing.release import Releases
from gossamer.auditing.retraining import SCORES, Retraining, ScoreFile, train_elsewhere
from gossamer.auditing.sensitivity import (
    QUICK,
    QUICK_SECONDS,
    THOROUGH,
    THOROUGH_SECONDS,
    Probe,
    Searched,
    search,
)
from gossamer.auditing.shared_noise import proven_against
from gossamer.auditing.sum_probe import SumProbe, bounds_records
from gossamer.auditing.trainings import build
from gossamer.auditing.verdict import Attack, batch_sizes, promised, try_until_decided
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest
from gossamer.options.sentences import whole_number
from gossamer.results.certificate import SEEDED
from gossamer.results.pages import audit_page, certificate_page
from gossamer.results.rundir import RunDirectory, make_empty, read_object
from gossamer.studies.jobs import Engine
from gossamer.training.assemble import assemble
from gossamer.training.budget import charge, refuse_above_cap
from gossamer.training.plan import Plan

SENSITIVITY = "sensitivity"  # no coins and no training: a search for a record that its clip does not bound
MOST_RECORDS = 10_000  # of a canary that is a person
KINDS = ("dirac", "lengths", "release", *canaries.CANARIES, SENSITIVITY)


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """An audit to run; its values are checked when it is made."""

    config: RunConfig
    observer: str = "all"
    canary: str | None = None
    canary_records: int = 1
    runs: int | None = (
        None  # trainings, draws of the mechanism or records tried; by default as many as needed
    )
    confidence: float = 0.999
    engine: str = "local"
    data_dir: Path | None = None
    module: nn.Module | None = None  # the user's own, in place of the configuration's
    force: bool = False
    on_batch: Callable[[int, int], None] = lambda done, of: None

    def __post_init__(self) -> None:
        if not 1 <= whole_number("--canary-records", self.canary_records) <= MOST_RECORDS:
            raise UserError(
                f"--canary-records {self.canary_records} must be a whole number from 1 to {MOST_RECORDS:,}."
            )
        if self.runs is not None:
            whole_number("--runs", self.runs)
        if not (isinstance(self.confidence, int | float) and 0.5 <= self.confidence < 1):
            raise UserError(
                f"--confidence {self.confidence} must be at least 0.5 and below 1, for example 0.999."
            )
        if self.canary is not None and self.canary not in KINDS:
            raise UserError(f"--canary {self.canary} is not known; it can be {', '.join(KINDS)}.")
        engine = Engine(self.engine)
        if engine.here:
            return
        if self.canary not in canaries.CANARIES:
            raise UserError(
                f"--engine {self.engine} is for audits by training again, --canary {', '.join(canaries.CANARIES)}; "
                "leave it out."
            )
        if self.module is not None:
            raise UserError(
                f"--engine {self.engine} sends no code to be run elsewhere, and --module is code; leave one out."
            )
        engine.refuse(self.config)

    @cached_property
    def plan(self) -> Plan:
        return Plan.of(self.config, data_dir=self.data_dir, module=self.module, force=self.force)

    @cached_property
    def view(self) -> Observer:
        return observer_of(self.observer, self.plan.topology)

    @cached_property
    def attack(self) -> Attack | None:
        """None for a search alone."""
        if self.canary == SENSITIVITY:
            return None
        return attack_of(self.plan, self.observer, self.canary, self.canary_records)

    @cached_property
    def searched(self) -> Searched | None:
        """The search for a record without a bound: thorough if requested, quick for a module of the user's own."""
        requested = self.canary == SENSITIVITY
        if not requested and self.module is None:
            return None
        o, own = self.plan, self.plan.method.attacks
        probe: Probe
        if own is not None:
            probe = own.WriteProbe(o, build(own.on_small_lots(o.asked, o.classes or 2), force=o.forced))
        else:
            parts = assemble(o)
            if not requested and not bounds_records(parts):
                return None  # nothing is promised of a single record, and the figures say so already
            probe = SumProbe(parts)
        tries = (self.runs or THOROUGH) if requested else QUICK
        seconds = THOROUGH_SECONDS if requested else QUICK_SECONDS
        return search(probe, o.config.seed, tries=tries, seconds=seconds, on_try=self.on_batch)

    def run(self, folder: Path) -> dict[str, Any]:
        """Run the attack, write certificate.json and report.html into `folder`, and return what `--json` prints.

        A folder with an unfinished audit of the same by retraining is continued; otherwise it must be new or empty. A
        mistake leaves no folder behind.
        """
        if not (folder / SCORES).is_file() or (folder / "certificate.json").is_file():
            attack, _ = self.attack, self.searched
            if isinstance(attack, Retraining):
                refuse_above_cap([(self.plan, self.runs or attack.runs)], self.data_dir)
            Engine(self.engine).check()
            make_empty(folder)
        return self.run_into(folder)

    def run_into(self, folder: Path) -> dict[str, Any]:
        """The same into any folder."""
        start, searched = time.perf_counter(), self.searched
        folder.mkdir(parents=True, exist_ok=True)
        result = (
            self._without_coins() if self.attack is None else self._with_coins(self.attack, folder, start)
        )
        if searched is not None:
            broken = [SENSITIVITY] if searched.broken else []
            result["violated"] = [*result["violated"], *broken]
            result["violation"] = bool(result["violated"])
            result["audit"]["sensitivity"] = searched.figures()
        o, config = self.plan, self.config
        result |= {
            "unit": self._unit(),
            "observer": (o.privacy.observer if self.view == EVERYONE else self.view).description,
            "nodes": o.config.nodes,
            "rounds": o.config.rounds,
            "mode": config.mode,
            "method": config.algorithm.kind,
            "baseline": config.baseline,
            "noise_source": config.privacy.noise.source,
            "stamp": SEEDED if config.privacy.noise.source == "seeded" else None,
        }
        directory = RunDirectory(folder)
        directory.write_config(config.model_dump())
        directory.write_json("certificate.json", result)
        directory.write_text("report.html", audit_page(result, config.name))
        return {**result, "audit_dir": str(folder)}

    def _with_coins(self, attack: Attack, folder: Path, start: float) -> dict[str, Any]:
        o, runs = self.plan, self.runs or attack.runs
        figures = o.privacy.figures()
        seen, held_against = proven_against(o.privacy, self.view)
        limits = promised(seen.figures(), self.config.mode, seen.trade_off())
        saved = budget = None
        if isinstance(attack, Retraining):  # it trains on the records themselves: each training counts
            saved = ScoreFile(folder, self.config, self.observer, f"{self.canary} {self._marks()}")
            left = runs - saved.runs
            budget = charge(o, left, self.data_dir) if left > 0 else None
            engine = Engine(self.engine)
            if not engine.here:
                options = {
                    "observer": self.observer,
                    "canary": self.canary,
                    "records": self.canary_records,
                    "force": self.force,
                }
                sizes = batch_sizes(runs, attack.at_once)
                train_elsewhere(engine, folder, self.config, saved, sizes, options, self.on_batch)
        coins, verdict = try_until_decided(
            attack, figures["delta"], self.confidence, limits, runs, self.on_batch, saved
        )
        return {
            **figures,
            "epsilon_audited": verdict.epsilon,
            "violation": bool(verdict.violated),
            "violated": list(verdict.violated),
            "budget": budget,
            "audit": {
                "confidence": self.confidence,
                "attacked": attack.attacked,
                "trained": not isinstance(attack, Releases),
                "canaries": attack.description,
                "independent_scores": attack.independent,
                "notes": list(attack.notes),
                **({"held_against": held_against} if held_against else {}),
                "bounds": [asdict(bound) for bound in verdict.bounds],
                "above_one_point": list(verdict.above_one_point),
                "curve_tests": [asdict(test) for test in verdict.curve_tests],
                "proven_curve": list(limits.curve.points) if limits.curve else [],
                "runs": verdict.runs,
                "looks": verdict.looks,
                "coins": len(coins),
                "training_seconds": coins.seconds,
                "samples_per_second": coins.samples / max(coins.seconds, 1e-9),
                **coins.details,
                **score_curves(coins),
            },
            "seconds": time.perf_counter() - start,
        }

    def _without_coins(self) -> dict[str, Any]:
        """A search alone has no coins, and so no ε of its own."""
        return {
            **self.plan.privacy.figures(),
            "epsilon_audited": None,
            "violation": False,
            "violated": [],
            "audit": {
                "confidence": self.confidence,
                "canaries": "records that might move a figure by more than their clip",
                "notes": [],
                "bounds": [],
                "runs": 0,
                "coins": 0,
                "training_seconds": 0.0,
                "samples_per_second": 0.0,
            },
        }

    def _marks(self) -> str:
        """What else tells saved batches apart: the module, and the records of a canary."""
        if self.module is None:
            return str(self.canary_records)
        o = self.plan
        content = repr(self.module).encode() + o.stack.flatten(o.module).cpu().numpy().tobytes()
        content += fixed_digest(o.module).encode()
        return f"{self.canary_records} {hashlib.sha256(content).hexdigest()[:16]}"

    def _unit(self) -> str:
        """What the bounds are about: what the run protects, or a person to whom it promises nothing."""
        plan, records = self.plan.privacy, self.canary_records
        if records == 1 or plan.protects.kind != RECORD:
            return plan.unit
        return f"one person of {records} records, beside what is promised of {plan.unit}"


def add_to_run(run: Path, result: dict[str, Any]) -> None:
    """Put the audited ε next to the others in a finished run's own certificate."""

    certificate = read_object(run / "certificate.json")
    if result["audit"]["bounds"] or not certificate.get("audit"):
        certificate |= {key: result[key] for key in ("epsilon_audited", "violation", "violated")}
        certificate["audit"] = {**result["audit"], "observer": result["observer"]}
    else:  # a search next to coins of an earlier audit
        others = [name for name in certificate["violated"] if name != SENSITIVITY]
        certificate["violated"] = [*others, *result["violated"]]
        certificate["violation"] = bool(certificate["violated"])
        certificate["audit"]["sensitivity"] = result["audit"]["sensitivity"]
    directory = RunDirectory(run)
    directory.write_json("certificate.json", certificate)
    directory.write_text("certificate.html", certificate_page(certificate))
