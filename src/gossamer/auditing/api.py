"""`gossamer audit`: what is attacked and how, the verdict, the folder with its certificate and page, the terminal."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from gossamer.accounting.observers import EVERYONE, RECORD, Observer
from gossamer.auditing import sensitivity
from gossamer.auditing.attacks import Releases, attack_of, observer_of
from gossamer.auditing.bounds import score_curves
from gossamer.auditing.canaries import CANARIES
from gossamer.auditing.shared_noise import proven_against
from gossamer.auditing.sum_probe import SumProbe, bounds_records
from gossamer.auditing.trainings import SCORES, Retraining, ScoreFile, build, train_elsewhere
from gossamer.auditing.verdict import Attack, batch_sizes, promised, try_until_decided
from gossamer.config.layers import parse_overrides, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest
from gossamer.models.networks import load_module
from gossamer.options.sentences import as_path, whole_number
from gossamer.results.certificate import SEEDED, epsilon_text, relation, three_lines
from gossamer.results.console import coloured
from gossamer.results.notebook import Epsilons, fragment, three_epsilons
from gossamer.results.pages import audit_page, certificate_page, roc_plot
from gossamer.results.rundir import RunDirectory, free_path, make_empty, read_object, read_text
from gossamer.results.signatures import SITE
from gossamer.results.terminal import Table, Terminal, terminal
from gossamer.results.verify import verify_files
from gossamer.results.words import STOPS, allowed, trials, verdict
from gossamer.studies.jobs import Engine
from gossamer.training.api import configure
from gossamer.training.assemble import assemble
from gossamer.training.budget import charge, refuse_above_cap
from gossamer.training.plan import Plan

SENSITIVITY = "sensitivity"  # no coins and no training: a search for a record that its clip does not bound
KINDS = ("dirac", "lengths", "release", *CANARIES, SENSITIVITY)
_MOST_RECORDS = 10_000  # of a canary that is a person
_BOUND_COLUMNS = ("ε ≥", "confidence", "rests on")


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """An audit to run; its values are checked when it is made."""

    config: RunConfig
    observer: str = "all"
    canary: str | None = None
    canary_records: int = 1
    runs: int | None = None  # trainings, draws of the mechanism or records tried; by default what is needed
    confidence: float = 0.999
    engine: str = "local"
    data_dir: Path | None = None
    module: nn.Module | None = None  # the user's own, in place of the configuration's
    force: bool = False
    on_batch: Callable[[int, int], None] = lambda done, of: None

    def __post_init__(self) -> None:
        if whole_number("--canary-records", self.canary_records) > _MOST_RECORDS:
            raise UserError(f"--canary-records {self.canary_records} must be at most {_MOST_RECORDS:,}.")
        if self.runs is not None:
            whole_number("--runs", self.runs)
        if not (isinstance(self.confidence, int | float) and 0.5 <= self.confidence < 1):
            raise UserError(f"--confidence {self.confidence} must be from 0.5 to below 1, such as 0.999.")
        if self.canary is not None and self.canary not in KINDS:
            raise UserError(f"--canary {self.canary} is not known; it can be {', '.join(KINDS)}.")
        engine = Engine(self.engine)
        engine.refuse(self.config)
        if not engine.here and (self.canary not in CANARIES or self.module is not None):
            what = f"--engine {self.engine} is for audits by training again, --canary {', '.join(CANARIES)}"
            raise UserError(f"{what}, and sends no --module, which is code; leave it out.")

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
    def searched(self) -> sensitivity.Searched | None:
        """The search for a record without a bound: thorough if requested, quick for a module of the user's own."""
        o, own, thorough = self.plan, self.plan.method.attacks, self.canary == SENSITIVITY
        if not thorough and self.module is None:
            return None
        probe: sensitivity.Probe
        if own is not None:
            probe = own.WriteProbe(o, build(own.on_small_lots(o.asked, o.classes or 2), force=o.forced))
        else:
            parts = assemble(o)
            if not thorough and not bounds_records(parts):
                return None  # nothing is promised of a single record, and the figures say so already
            probe = SumProbe(parts)
        tries, seconds = sensitivity.THOROUGH if thorough else sensitivity.QUICK
        if thorough and self.runs:
            tries = self.runs
        return sensitivity.search(probe, o.config.seed, tries=tries, seconds=seconds, on_try=self.on_batch)

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
        start, o, config, searched = time.perf_counter(), self.plan, self.config, self.searched
        folder.mkdir(parents=True, exist_ok=True)
        if self.attack is not None:
            result = {**self._with_coins(self.attack, folder), "seconds": time.perf_counter() - start}
        else:  # a search alone has no coins, and so no ε of its own
            canaries = "records that might move a figure by more than their clip"
            audit = {"confidence": self.confidence, "canaries": canaries, "notes": [], "bounds": []}
            audit |= {"runs": 0, "coins": 0, "training_seconds": 0.0, "samples_per_second": 0.0}
            result = {**o.privacy.figures(), "violated": [], "audit": audit}
        if searched is not None:
            result["violated"] += [SENSITIVITY] if searched.broken else []
            result["audit"]["sensitivity"] = searched.figures()
        unit, source = o.privacy.unit, config.privacy.noise.source
        if self.canary_records > 1 and o.privacy.protects.kind == RECORD:
            unit = f"one person of {self.canary_records} records, beside what is promised of {unit}"
        result |= {
            "violation": bool(result["violated"]),
            "unit": unit,
            "observer": (o.privacy.observer if self.view == EVERYONE else self.view).description,
            "nodes": o.config.nodes,
            "rounds": o.config.rounds,
            "mode": config.mode,
            "method": config.algorithm.kind,
            "baseline": config.baseline,
            "noise_source": source,
            "stamp": SEEDED if source == "seeded" else None,
        }
        directory = RunDirectory(folder)
        directory.write_config(config.model_dump())
        directory.write_json("certificate.json", result)
        directory.write_text("report.html", audit_page(result, config.name))
        return {**result, "audit_dir": str(folder)}

    def _with_coins(self, attack: Attack, folder: Path) -> dict[str, Any]:
        o, runs, saved, budget = self.plan, self.runs or attack.runs, None, None
        figures = o.privacy.figures()
        seen, held_against = proven_against(o.privacy, self.view)
        limits = promised(seen.figures(), self.config.mode, seen.trade_off())
        if isinstance(attack, Retraining):  # it trains on the records themselves: each training counts
            saved = ScoreFile(folder, self.config, self.observer, f"{self.canary} {self._marks()}")
            left = runs - saved.runs
            budget = charge(o, left, self.data_dir) if left > 0 else None
            engine = Engine(self.engine)
            if not engine.here:
                sizes = batch_sizes(runs, attack.at_once)
                about = self.observer, self.canary, self.canary_records, self.force
                train_elsewhere(engine, self.config, saved, sizes, about, self.on_batch)
        delta, on_batch = figures["delta"], self.on_batch
        coins, found = try_until_decided(attack, delta, self.confidence, limits, runs, on_batch, saved)
        decided = asdict(found)
        return {
            **figures,
            "epsilon_audited": found.epsilon,
            "violated": list(decided.pop("violated")),
            "budget": budget,
            "audit": {
                "confidence": self.confidence,
                "attacked": attack.attacked,
                "trained": not isinstance(attack, Releases),
                "canaries": attack.description,
                "independent_scores": attack.independent,
                "notes": list(attack.notes),
                **({"held_against": held_against} if held_against else {}),
                **decided,
                "proven_curve": list(limits.curve.points) if limits.curve else [],
                "coins": len(coins),
                "training_seconds": coins.seconds,
                "samples_per_second": coins.samples / max(coins.seconds, 1e-9),
                **coins.details,
                **score_curves(coins),
            },
        }

    def _marks(self) -> str:
        """Return what else tells saved batches apart: the module, and the records of a canary."""
        if self.module is None:
            return str(self.canary_records)
        o = self.plan
        content = repr(self.module).encode() + o.stack.flatten(o.module).cpu().numpy().tobytes()
        content += fixed_digest(o.module).encode()
        return f"{self.canary_records} {hashlib.sha256(content).hexdigest()[:16]}"


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
    RunDirectory(run).write_json("certificate.json", certificate)
    RunDirectory(run).write_text("certificate.html", certificate_page(certificate))


@dataclass(frozen=True, repr=False)
class Audit(Epsilons):
    """The result of an attack, next to what is claimed and proven."""

    result: dict[str, Any]  # what `--json` prints

    @property
    def violation(self) -> bool:
        """Does the attack contradict a figure?"""
        return bool(self.result["violation"])

    @property
    def epsilon_audited(self) -> float | None:
        """A lower bound; its δ, adjacency, unit and observer are in `result`."""
        epsilon: float | None = self.result["epsilon_audited"]
        return epsilon

    @property
    def observer(self) -> str:
        return str(self.result["observer"])

    @property
    def directory(self) -> Path:
        return Path(self.result["audit_dir"])

    def __getitem__(self, key: str) -> Any:
        """A figure of `result` by its name."""
        return self.result[key]

    def __repr__(self) -> str:
        figures = f"{three_epsilons(self.result)} ({relation(self.result)})"
        return f"Audit: {verdict(self.result)} {figures}; in {self.directory}"

    def _repr_html_(self) -> str:
        c, rows = self.result, _bound_rows(self.result)
        epsilons = [epsilon_text(c[f"epsilon_{key}"]) for key in ("proven", "claimed", "audited")]
        parts: list[Any] = [Table(("proven ε", "claimed ε", "audited ε ≥"), [epsilons])]
        if rows:
            parts += [Table(("what the attack shows", *_BOUND_COLUMNS), rows), roc_plot(c)]
        notes = [f"ε at {relation(c)}", *c["audit"]["notes"], f"the page: {self.directory / 'report.html'}"]
        return fragment(verdict(c), *parts, notes=[c["stamp"].upper(), *notes] if c["stamp"] else notes)


def _bound_rows(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    bounds = result["audit"]["bounds"]
    return [(b["name"], epsilon_text(b["epsilon"]), f"{b['confidence']:.4g}", b["rests_on"]) for b in bounds]


def audit(
    recipe: str | Path | Mapping[str, Any] | RunConfig,
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | str | None = None,
    loss: Any = None,
    algorithm: Any = None,
    clip: Any = None,
    noise: Any = None,
    topology: Any = None,
    observer: str = "all",
    canary: str | None = None,
    canary_records: int = 1,
    runs: int | None = None,
    confidence: float = 0.999,
    out: Path | str | None = None,
    engine: str = "local",
    data_dir: Path | str | None = None,
    force: bool = False,
    on_start: Callable[[RunConfig], None] = lambda config: None,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
) -> Audit:
    """Attack what the run would release, and report what an adversary can show.

    The directory of a finished run is audited as it was run, and its certificate gets the audited ε. `module`, or the
    "file.py:name" of one, replaces the configuration's model by your own; then a record is also searched for that moves
    a sum by more than its clip (`canary="sensitivity"`: only that, and thoroughly). `loss`, `algorithm`, `clip`,
    `noise` and `topology` are as in `gossamer.run`. `canary_records`: every canary is a person with that many records,
    in or out as a whole; in a run that protects records nothing is promised to a person. `engine`: where a retraining
    audit trains, "local" or "dask:ADDRESS". `on_start` and `on_batch` report progress.
    """
    finished = Path(recipe) if isinstance(recipe, str | Path) and Path(recipe).is_dir() else None
    objects = {"loss": loss, "algorithm": algorithm, "clip": clip, "noise": noise, "topology": topology}
    config = _as_it_was(finished, changes) if finished is not None else configure(recipe, changes, **objects)
    own = load_module(module, seed=config.seed) if isinstance(module, str) else module
    on_start(config)
    request = AuditRequest(
        config=config,
        module=own,
        observer=str(observer),
        canary=canary,
        canary_records=canary_records,
        runs=runs,
        confidence=confidence,
        engine=engine,
        data_dir=as_path("data_dir", data_dir),
        force=force,
        on_batch=on_batch,
    )
    result = request.run(as_path("out", out) or free_path(f"audit-{config.name}"))
    if finished is not None and (canary_records == 1 or config.privacy.unit != "record"):
        add_to_run(finished, result)  # the certificate is about its own unit only
    return Audit(result)


def _as_it_was(run: Path, changes: Mapping[str, Any] | None) -> RunConfig:
    if not os.path.lexists(run / "certificate.json"):
        raise UserError(f"{run} has no certificate.json; give a finished run, a recipe or a TOML file.")
    if changes:
        raise UserError("--set would audit something else than this run; leave it out, or name its recipe.")
    if SITE in read_object(run / "certificate.json"):
        raise UserError(
            f"{run} is one site's part of a study, whose other records are elsewhere, and its certificate is signed; "
            "audit the study's recipe instead, on records that need no protection."
        )
    verify_files(run)  # damage shows before the attack, which takes long
    read_text(run / "config.toml")
    return stored(run / "config.toml")


# --- on the terminal --------------------------------------------------------------------------------------------


def run_audit(name: str, *, sets: Sequence[str] = (), quiet: bool = False, **options: Any) -> dict[str, Any]:
    """Audit a recipe, a TOML file or a finished run, and print the result; `options` are those of `gossamer.audit`."""
    console = terminal(to_stderr=quiet)

    def show_start(config: RunConfig) -> None:
        line = f"{config.name}: {config.algorithm.kind}, mode {config.mode}"
        console.say(f"{line}, observer {options['observer']}")

    columns = (TextColumn("attack"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("attack", total=options["runs"])
        options["on_batch"] = lambda done, of: bars.update(task, completed=done, total=of)
        result = audit(name, parse_overrides(sets), on_start=show_start, **options).result
    show(result, console)
    if Path(name).is_dir():
        console.say(f"the certificate of {name} has the audited figure now")
    return result


def show(result: dict[str, Any], console: Terminal) -> None:
    """Print an audit."""
    audit = result["audit"]
    if result["stamp"]:
        console.say("SEEDED NOISE: NO PRIVACY. The figures are those of the same run with secret noise.")
    if audit["bounds"]:
        _show_bounds(result, console)
    if audit.get("sensitivity"):
        _show_search(audit["sensitivity"], console)
    console.say(*(f"note: {note}" for note in audit["notes"]), *map(coloured, three_lines(result)))
    unproven = [f"not proven: {result['not_proven_because']}"] if result["not_proven_because"] else []
    console.say(*unproven, verdict(result), f"in {result['audit_dir']}: certificate.json, report.html")


def _show_search(searched: dict[str, Any], console: Terminal) -> None:
    """The worst movements in bounds, and a line for each record that broke its bound."""
    cut = "" if searched["in_time"] else ", cut short"
    console.say(f"{searched['tried']:,} records tried in {searched['seconds']:.1f} s{cut}")
    rows = [
        (
            one["place"],
            "not finite" if one["moved"] is None else f"{one['moved']:.6g}",
            f"{allowed(one)}{' BROKEN' * one['broken']}",
        )
        for one in searched["movements"]
    ]
    broken = [f"{m['place']}: {m['record']} ({m['lot']})" for m in searched["movements"] if m["broken"]]
    stopped = [f"note: {STOPS} {searched['stopped']}"] if searched["stopped"] else []
    Table(("one record moved", "bounds", "allowed"), rows, [*broken, *stopped]).show(console)


def _show_bounds(result: dict[str, Any], console: Terminal) -> None:
    audit = result["audit"]
    console.say(f"observer: {result['observer']}", f"canaries: {audit['canaries']}")
    console.say(f"{audit['coins']:,} coins: {trials(audit)}")
    if audit["curve_tests"]:
        console.say("against the whole proven curve, δ at every ε:")
    for test in audit["curve_tests"]:
        where = "outside" if test["violated"] else "inside"
        terms = f"{test['name']}, {test['confidence']:.4g}; rests on {test['rests_on']}"
        console.say(f"  {where}: {test['says']} ({terms})")
    Table((f"at one point, δ = {result['delta']:g}", *_BOUND_COLUMNS), _bound_rows(result)).show(console)
