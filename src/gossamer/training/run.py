"""Run: a run in its directory, from its first round, or from where it was stopped, to its certificate.

    run = Run.begin(parts, directory)    or    Run.resume(parts, directory)
    run.train()
    outcome = run.finish()

What is in a ledger is spent. With noise from the system its key is gone, so a resumed run takes up the draws behind the
last one in the ledger, of any node: no (node, step) is ever drawn twice, and what was drawn and lost stays paid for.
Seeded noise gives the same value again, so a resumed run repeats the steps since its checkpoint and writes nothing
twice.
"""

from __future__ import annotations

import copy
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gossamer.accounting.ledger import LedgerBook, ledger_paths
from gossamer.accounting.recompute import recompute
from gossamer.config.schema import RunConfig
from gossamer.data.arrays import listed
from gossamer.errors import UserError
from gossamer.results import checkpoint
from gossamer.results.certificate import (
    END,
    NOT_PUBLIC,
    PLAN,
    PLANNED_ELSEWHERE,
    SEEDED,
    STATED_ELSEWHERE,
    certificate_of,
    of_groups,
    planned_facts,
)
from gossamer.results.notebook import outcome_html, outcome_text
from gossamer.results.pages import certificate_page
from gossamer.results.rundir import (
    RunDirectory,
    RunLock,
    digest_of,
    digest_of_object,
    finite,
    free_path,
    ledgers_here,
    manifest_digest,
    read_manifest,
    read_object,
)
from gossamer.results.signatures import RunKey
from gossamer.results.track import OpenTracker, certified_facts, privacy_facts, public
from gossamer.results.trained import DESCRIPTION, HeldWeights, Models, UsesModels, digests_of_models
from gossamer.runtime.group import Alone, Group, agreed
from gossamer.runtime.loop import run as run_loop
from gossamer.training.assemble import Parts
from gossamer.training.budget import Accounts, everyones, now, worst
from gossamer.training.evaluate import Evaluation, evaluation_rounds
from gossamer.training.manifest import (
    MAY_CHANGE,
    blocks_here,
    count_outputs,
    describe,
    layout_of,
    ledger_headers,
    new_manifest,
    nodes_here,
    read_own_manifest,
    records_mark,
    require_same_everywhere,
    versions,
)
from gossamer.training.plan import Plan
from gossamer.training.preprocess import bytes_of_preprocessing, preprocessed

logger = logging.getLogger("gossamer")

OnMetrics = Callable[[dict[str, Any]], None]
OnRound = Callable[[int], None]
Sign = Callable[[dict[str, Any]], dict[str, Any]]
# What `--json` of a run repeats of its certificate.
SHARED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "epsilon_by_node", "not_proven_because",
    "claim_flags", "delta", "adjacency", "unit", "observer", "epsilon_by_observer",
    "epsilon_by_colluders", "stamp", "budget",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Outcome(UsesModels):
    """The outcome of a run."""

    result: dict[str, Any]  # what `--json` prints
    certificate: dict[str, Any]
    directory: Path
    points: torch.Tensor  # (n, d) the nodes' models
    models: Models  # the same, ready to be used: `.module()`, `.predict(x)`

    def __repr__(self) -> str:
        return outcome_text(self.result, self.certificate)

    def _repr_html_(self) -> str:
        return outcome_html(self.result, self.certificate, self.directory)


@dataclass
class Run:
    """A run in its directory, ready for its next round."""

    parts: Parts  # with the records as the models take them
    group: Group  # the processes that carry it
    directory: RunDirectory
    identity: str  # its name for itself: in manifest, checkpoints and messages
    accounts: Accounts  # of the user's own records
    lock: RunLock
    book: LedgerBook
    key: RunKey | None  # the first process of a machine signs
    reader: Any  # the private part
    state: Any
    done: int = 0  # rounds
    bytes_sent: int = 0
    seconds: float = 0.0  # spent on the rounds done, before this process
    lost_draws: int = 0  # spent before a stop and not used
    _start: float = field(default_factory=time.perf_counter)
    _complete: tuple[int, dict[str, Any], int] | None = None  # the last round that is in no checkpoint yet

    @property
    def plan(self) -> Plan:
        return self.parts.plan

    @property
    def elapsed(self) -> float:
        """Seconds spent on the run, before a stop too."""
        return self.seconds + time.perf_counter() - self._start

    @classmethod
    def begin(cls, parts: Parts, out: Path | None = None, group: Group | None = None) -> Run:
        """A new run directory. The parts were made before anything is written."""
        o, group = parts.plan, group or Alone(parts.plan.config.nodes)
        require_same_everywhere(parts, group)
        # A network that cannot predict is refused now, not after the last round.
        agreed(group, lambda: count_outputs(o.module, o.shape))
        _ = o.bytes_per_round  # a step on zeros: refuses a method that draws more often than it declares
        # Where a host keeps its files is not shared: of a run without --out only the last part of its name is.
        name, identity = group.join([(free_path(o.config.name).name, secrets.token_hex(8))])[0]
        path = out or free_path(o.config.name).with_name(name)
        directory, lock = RunDirectory(path), RunLock(path, group.nodes, whole=group.first_here)
        accounts: Accounts = agreed(group, lambda: Accounts.of_run(o, group, identity, path))
        here, book = blocks_here(group), None
        try:
            agreed(group, lambda: accounts.reserve(now()))
            manifest = new_manifest(parts, identity, here) if group.first_here else {}
            key: RunKey | None = agreed(
                group, lambda: _first_files(parts, directory, lock, manifest), here=group.first_here
            )
            book = agreed(group, lambda: _new_book(parts, directory, lock, group, manifest))
            sent = bytes_of_preprocessing(parts)
            parts = preprocessed(parts, group, book, directory)
            reader = parts.agreed(group, identity, 0).reader(book)
            state = o.algorithm.init(parts.x0)
        except BaseException:
            # What preprocessing found on the records may have been released already.
            released = book is not None and any(book.counts().values())
            if book is not None:
                book.close()
            lock.close()
            accounts.settle(now(), ledgers=path if released else None)
            raise
        return cls(parts, group, directory, identity, accounts, lock, book, key, reader, state, bytes_sent=sent)

    @classmethod
    def resume(
        cls,
        parts: Parts,
        path: Path,
        group: Group | None = None,
        take_up: Callable[[Run], None] | None = None,
    ) -> Run:
        """The run of this directory, behind its last checkpoint that all its processes have.

        `take_up` sets the rounds done and the reader's state from somewhere else than a checkpoint.
        """
        o, group = parts.plan, group or Alone(parts.plan.config.nodes)
        require_same_everywhere(parts, group)
        if not o.method.resumable and (o.method.keeps_local_models or not o.seeded):
            raise UserError(
                f"--resume {path} cannot continue algorithm.kind = {o.config.algorithm.kind!r} with "
                f"privacy.sampling.kind = {o.config.privacy.sampling.kind!r}: its secret state (the lots of the pass, "
                "local models) is stored nowhere; run it again from the start."
            )
        directory, lock = RunDirectory(path), RunLock(path, group.nodes, whole=group.first_here)
        with ExitStack() as opened:
            opened.callback(lock.close)

            def locked() -> dict[str, Any]:
                RunDirectory.resume(path)
                # Before the lock: a mistake leaves nothing behind, not even its file.
                read_own_manifest(path, o)
                lock.take()
                return read_own_manifest(path, o)

            manifest: dict[str, Any] = agreed(group, locked)
            identity = manifest["run"]
            rounds = agreed(group, lambda: checkpoint.rounds_with(directory.checkpoints, parts.nodes, run=identity))
            everywhere = group.join([(identity, rounds)])
            if len({run for run, _ in everywhere}) > 1:
                raise UserError(f"--resume {path} holds different runs on different machines; name the same one.")
            at = max(set.intersection(*(set(held) for _, held in everywhere)), default=0)

            def reopened() -> tuple[Any, ...]:
                saved = checkpoint.load(directory.checkpoints, at, parts.nodes) if at else None
                book = LedgerBook.resume(
                    ledger_paths(path, ledgers_here(manifest)),
                    ledger_headers(parts, identity, manifest_digest(manifest)),
                    sync=group.spread,
                    known=saved.ledgers if saved else None,
                    repeats=o.seeded,
                )
                opened.callback(book.close)
                key = _own_key(parts, path, manifest) if group.first_here else None
                accounts = Accounts.of_run(o, group, identity, path)
                accounts.refuse_copy()
                return saved, book, key, accounts

            saved, book, key, accounts = agreed(group, reopened)
            agreed(group, lambda: accounts.reserve(now()))
            parts = agreed(group, lambda: preprocessed(parts, group, book, directory))
            reader = parts.agreed(group, identity, 1 + len(manifest.get("resumed", []))).reader(book)
            state = o.algorithm.init(parts.x0)
            run = cls(parts, group, directory, identity, accounts, lock, book, key, reader, state, done=at)
            if take_up is not None:
                take_up(run)
            run._take_up(saved, manifest)
            opened.pop_all()
        return run

    def _take_up(self, saved: checkpoint.Checkpoint | None, manifest: dict[str, Any]) -> None:
        """The state, and the draws behind the last one in the ledger."""
        o, directory, at = self.plan, self.directory, self.done
        if saved is not None:
            self.bytes_sent, self.seconds = saved.bytes_sent, saved.seconds
            self.state = agreed(self.group, lambda: self._restored(saved))
        if not o.seeded:
            on_file, drawn = max(self.group.join([self.book.next_draw])), self.reader.draws
            self.lost_draws, self.reader.draws = max(on_file - drawn, 0), max(on_file, drawn)
        stops = [*manifest.get("resumed", []), {"round": at, "at": now(), "lost_draws": self.lost_draws}]

        def note() -> None:
            try:
                directory.trim_metrics(at)
                directory.write_json("manifest.json", {**manifest, "resumed": stops})
            except OSError as error:
                raise unwritable(directory.path, error) from None

        agreed(self.group, note, here=self.group.first_here)
        self.lost_draws += sum(stop["lost_draws"] for stop in manifest.get("resumed", []))

    def _restored(self, saved: checkpoint.Checkpoint) -> Any:
        try:
            return self.plan.method.restore(self.state, self.reader, saved.tensors)
        except (KeyError, RuntimeError, TypeError) as error:
            raise UserError(
                f"{self.directory.checkpoints} holds another kind of run's state after round {saved.round} ({error}); "
                "put the files back."
            ) from None

    @property
    def rounds_known_everywhere(self) -> set[int]:
        """The rounds after which all processes know shared values: those of checkpoints and evaluations."""
        config = self.plan.config
        evaluated = evaluation_rounds(config.rounds, config.evaluation.every)
        return checkpoint_rounds(config.rounds, config.checkpoints.every).union(evaluated)

    def train(self, on_metrics: OnMetrics = lambda row: None, on_round: OnRound = lambda t: None) -> None:
        """The rounds that are left, with their evaluations and checkpoints."""
        o, config = self.plan, self.plan.config
        kept_at = checkpoint_rounds(config.rounds, config.checkpoints.every)
        evaluate, exchange = Evaluation(self), o.method.exchange(self)

        def after_round(t: int, state: Any) -> None:
            self.done = done = t + 1
            on_round(done)
            if done in evaluate.rounds:
                figures = evaluate(done, state)
                sent = sum(self.group.join([exchange.bytes_sent]))
                row = {**figures, "bytes_sent": sent, "seconds": self.elapsed}
                if self.group.first_here:
                    self.directory.append_metrics(row)
                on_metrics(row)
            # After the evaluation of its round: a run that is resumed from here finds that on file.
            self._complete = (done, o.method.checkpoint(state, self.reader), exchange.bytes_sent)
            if done in kept_at:
                self._save_checkpoint()

        self.state = run_loop(
            o.algorithm,
            self.state,
            self.reader,
            exchange,
            rounds=config.rounds,
            start=self.done,
            before_round=self.group.begin_round,
            after_round=after_round,
        )
        o.method.finish(exchange, o.stack.dim)

    def _save_checkpoint(self) -> None:
        """Of the last complete round; the one before goes once every process has its part of this one."""
        if self._complete is None:
            return
        done, tensors, sent = self._complete
        config, layout = self.plan.config, layout_of(self.plan.stack, self.state)
        facts = {"run": self.identity, "round": done, "bytes_sent": sent, "seconds": self.elapsed}
        facts |= {"layout": layout, "ledgers": self.book.marks()}
        folder = self.directory.checkpoints
        checkpoint.save(folder, self.group.nodes, config.nodes, tensors, **facts)
        self._complete = None  # only now: an interrupt while it was written leaves it to `stoppable`
        if config.checkpoints.every is None:
            self.group.join([done])  # every process has its part on disk
            if self.group.first_here:
                checkpoint.drop_older(folder, done)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Say in one sentence how to resume after an interrupt or a failed write, and keep what can be kept."""
        try:
            yield
        except (KeyboardInterrupt, OSError) as stop:
            # Alone, the last complete round is worth keeping; several processes hardly stop after the same one.
            if self.group.size == 1:
                with suppress(OSError):
                    self._save_checkpoint()
            how = f"continue with `gossamer run --resume {self.directory.path}`"
            if isinstance(stop, OSError):
                what = f"{self.group.name} cannot write into the run directory ({stop.strerror or stop})"
                raise UserError(f"{what}; fix this, then {how}.") from stop
            raise KeyboardInterrupt(how) from stop

    def finish(
        self, *, rounds: int | None = None, average: bool = True, sign: Sign = lambda certificate: certificate
    ) -> Outcome:
        """Models and the signed certificate; then the signing key is deleted.

        rounds: those that were run here, if not all of the configuration.
        average: is there an average model? A site of a consortium knows its own alone.
        sign: adds an organisation's signature to the certificate.
        """
        config, directory = self.plan.config, self.directory
        models, points = self._write_models(average)
        self.book.close()
        self._report_unchanged(points)
        certificate = issue_certificate(self, config.rounds if rounds is None else rounds, sign)
        row = directory.last_metrics()
        result = result_of(config, certificate, row, seconds=self.elapsed, run_dir=str(directory.path))
        return Outcome(result, certificate, directory.path, points, models)

    def _report_unchanged(self, points: torch.Tensor) -> None:
        """Name what is trained and is still as it was: an adapter that learned nothing would not show otherwise."""
        views = self.plan.stack.views((points != self.parts.x0.to(points)).to(torch.uint8))
        names = [name for name, moved in views.items() if not bool(moved.any())]
        if names:
            logger.warning("these parameters did not change in training: %s", listed(names))

    def _write_models(self, average: bool) -> tuple[Models, torch.Tensor]:
        """(ready to use, (m, d) the models of the nodes hosted here), after they are written.

        Only what is released: models that never leave their nodes are in no file. Every process writes its own nodes';
        the first of a machine what they share, the average among it, of which every process knows the sum.
        """
        o, group, folder = self.plan, self.group, self.directory.path
        points = o.method.released(o.algorithm, self.state, len(group.nodes)).detach()
        description = describe(self.parts, self.identity)
        weights = HeldWeights(o.stack, group.nodes, points, group.mean(points), self.parts.fixed)
        weights.write(folder, self.identity, o.config.nodes, average=average and group.first_here)
        if group.first_here:
            weights.write_fixed(folder, self.identity)
            self.directory.write_text(DESCRIPTION, description.text())
        return Models(description, weights, partial(copy.deepcopy, o.module), o.data_dir), points

    def close(self) -> None:
        self.book.close()
        self.lock.close()


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
    """Begin a run, or resume the one in `resume`, train and finish it; alone, unless a `group` carries it."""
    out = None if out is None else Path(out)
    try:
        run = Run.resume(parts, resume, group) if resume is not None else Run.begin(parts, out, group)
    except OSError as error:
        raise unwritable(resume or out or Path("runs"), error) from None
    with ExitStack() as open_until_the_end:
        open_until_the_end.callback(run.close)
        tracker = None
        if track is not None and run.group.first:
            tracker = track(run.directory.path, _tracked_facts(parts.plan))
            open_until_the_end.callback(tracker.close)
            on_metrics = each(partial(_send, tracker), on_metrics)
        with run.stoppable():
            run.train(on_metrics, on_round)
            outcome = run.finish()
        if tracker is not None:
            tracker.end(certified_facts(outcome.certificate))
    return outcome


def each(first: Callable[[Any], None], second: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """One listener that calls both."""
    if second is None:
        return first

    def both(value: Any) -> None:
        first(value)
        second(value)

    return both


def _send(tracker: Any, row: dict[str, Any]) -> None:
    tracker.metrics(public(row))


def _first_files(parts: Parts, directory: RunDirectory, lock: RunLock, manifest: dict[str, Any]) -> RunKey:
    """Write the files that processes of a machine share. The manifest comes last: with it a run has begun."""
    o, notes = parts.plan, [f"The hold-out is {NOT_PUBLIC}."] if parts.private_hold_out else []
    figures, settings, topology = o.privacy.figures(), o.asked.model_dump(), o.topology.to_json()
    facts = planned_facts(o, figures, notes)
    RunDirectory.create(directory.path)
    lock.take()
    try:
        directory.write_config(settings)
        directory.write_json("topology.json", topology)
        directory.write_json(PLAN, facts)
        key = RunKey.create(directory.path)
        first = ("config.toml", "topology.json", PLAN)
        digests = {name: digest_of(directory.path / name) for name in first}
        manifest["configuration"] = digest_of_object(settings, without=MAY_CHANGE)
        manifest |= {"key": key.public, "files": digests}
        if (mark := records_mark(parts, key)) is not None:
            manifest["records_mark"] = mark
        directory.write_json("manifest.json", manifest)
    except OSError as error:
        raise unwritable(directory.path, error) from None
    return key


def _new_book(
    parts: Parts, directory: RunDirectory, lock: RunLock, group: Group, manifest: dict[str, Any]
) -> LedgerBook:
    """The ledgers of the nodes hosted here, which name the manifest that this machine's first process has written."""
    if not group.first_here:
        lock.take()
        manifest = read_manifest(directory.path)
    blocks, digest = ledgers_here(manifest), manifest_digest(manifest)
    headers = ledger_headers(parts, manifest["run"], digest)
    path = ledger_paths(directory.path, blocks)[group.nodes]
    return LedgerBook.create(path, headers, sync=group.spread)


def _own_key(parts: Parts, path: Path, manifest: dict[str, Any]) -> RunKey:
    """The key of the run in this directory; refused where the records are others than it was begun with."""
    key = RunKey.read(path, manifest["key"])
    marked, here = manifest.get("records_mark"), records_mark(parts, key)
    if None not in (marked, here) and marked != here:
        raise UserError(f"--resume {path} began with other records, or in another order; give the same.")
    return key


def unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written: {error.strerror or error}; fix this and start again.")


def checkpoint_rounds(rounds: int, every: int | None) -> set[int]:
    """About twenty by default: a stop then costs a twentieth of the run, and of the budget, at most."""
    every = every or max(1, -(-rounds // 20))
    return {*range(every, rounds + 1, every), rounds}


def result_of(
    config: RunConfig, certificate: dict[str, Any], row: dict[str, Any], *, seconds: float, run_dir: str
) -> dict[str, Any]:
    """Return what `--json` prints: the certificate's figures and the last evaluation's."""
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


def _tracked_facts(o: Plan) -> dict[str, Any]:
    config = o.config
    what = f"{config.name}: {config.algorithm.kind}, {config.mode} mode, seed {config.seed}"
    planned = privacy_facts({**o.privacy.figures(), "unit": o.privacy.unit, "observer": o.privacy.observer.description})
    return {
        "run": what,
        **({"stamp": SEEDED} if o.seeded else {}),
        **{f"planned.{name}": text for name, text in planned.items()},
    }


def issue_certificate(run: Run, rounds: int, sign: Sign) -> dict[str, Any]:
    """Write the certificate of a run whose ledgers and models are on file, sign it, and delete the run's key.

    `rounds`: those that were run here; `sign`: adds an organisation's signature.
    """
    o, directory, group = run.plan, run.directory, run.group
    totals = agreed(group, lambda: run.accounts.settle(now(), directory.path))
    budget = worst(everyones(totals, group), o.config.privacy.cap)
    elsewhere = _elsewhere(run)

    def write() -> None:
        assert run.key is not None
        try:  # what one node and an outsider learn; of nodes elsewhere as it was planned
            network = o.network_figures(None if elsewhere["elsewhere"] else directory.path)
        except UserError:  # it has no figure
            network = None
        end = {
            "issued": now(),
            "rounds": rounds,
            "versions": versions(),
            "epsilon_by_group": of_groups(o.privacy.by_group()),
            # Over all runs on the same records of the user's own; None for public ones.
            "budget": budget,
            "network": network,
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
    largest = [finite([max(point) for point in zip(*curves, strict=True)])] if curves else []
    note = PLANNED_ELSEWHERE if any(one is None for one in stated) else STATED_ELSEWHERE
    return {"elsewhere": entries, "curves": largest, "notes": [note]}
