"""The command line. Flags are for actions; every configuration value goes through `--set`."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.arguments import (
    DataDir,
    Engine,
    Force,
    Jobs,
    Json,
    Over,
    Plugins,
    Recipe,
    RecipeOrRun,
    Recipes,
    Set,
    SomeRecipe,
    StudyFolder,
)
from gossamer.consortium.commands import peer_app, pki_app, relay, study_app
from gossamer.errors import StoppedError, UserError

app = typer.Typer(
    help="Differentially private, fully decentralized learning: claimed, proven and audited ε side by side.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The data sets: which there are, and how to get one.", no_args_is_help=True)
app.add_typer(data_app, name="data")
certificate_app = typer.Typer(help="What a run has signed, for others to check.", no_args_is_help=True)
app.add_typer(certificate_app, name="certificate")
app.add_typer(pki_app, name="pki")
app.add_typer(study_app, name="study")
app.add_typer(peer_app, name="peer")
app.command()(relay)


def show_version(wanted: bool) -> None:
    if wanted:
        from gossamer import __version__

        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Its number, and exit.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    from gossamer.options.plugins import plugin

    for file in plugins or []:
        plugin(file)


@app.command()
def run(
    recipe: SomeRecipe = None,
    overrides: Set = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory to make (default: a new one under runs/).")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Resume the run in DIR.")] = None,
    runtime: Annotated[
        str | None, typer.Option(help="simulator, or processes: here, or where torchrun starts this.")
    ] = None,
    data_dir: DataDir = None,
    track: Annotated[
        str | None, typer.Option(help="Also send the public figures to a tracker: tensorboard or mlflow.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train, and print accuracy and the privacy statement."""
    from gossamer.training.api import start

    try:
        outcome = start(
            recipe, overrides or [], out=out, resume=resume, runtime=runtime, data_dir=data_dir, track=track,
            force=force, quiet=as_json, arguments=sys.argv[1:],
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        raise StoppedError(*stop.args) from None
    if as_json and outcome is not None:
        _print_json(outcome)


@app.command()
def plan(
    recipe: Recipe = "quickstart",
    overrides: Set = None,
    ledger: Annotated[Path | None, typer.Option(help="Recompute ε from the ledgers of a run instead.")] = None,
    anchor: Annotated[
        str | None,
        typer.Option(metavar="LINE", help="With --ledger: it must be the run of this published line."),
    ] = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Print what a run would cost: σ, claimed and proven ε per node, the graph, bytes per round. Trains nothing."""
    if ledger is not None:
        _plan_from_ledger(ledger, anchor, as_json)
        return
    if anchor is not None:
        raise UserError("--anchor is compared with a run; name it with --ledger.")
    from gossamer.config import recipes
    from gossamer.config.layers import parse_overrides, replaced
    from gossamer.results.console import show_plan, summary
    from gossamer.training.api import plan as planned
    from gossamer.training.api import show_replaced
    from gossamer.training.budget import preview

    changes = parse_overrides(overrides or [])
    o = planned(recipe, changes, data_dir=data_dir, force=force)
    show_replaced(replaced(recipes.read(recipe), changes))
    if not as_json:
        show_plan(o, budget=preview([(o, 1)], data_dir))
    else:
        _print_json(summary(o, preview([(o, 1)], data_dir)))


@app.command()
def compare(
    recipe: Recipes,
    over: Over = None,
    seeds: Annotated[int, typer.Option(help="Runs of every row, each with its own seed.")] = 1,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Add non-private, no-communication and central DP rows.")
    ] = False,
    overrides: Set = None,
    out: StudyFolder = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Runs side by side: a table with mean ± std over seeds, and its plot. Finished cells are not run again."""
    from gossamer.config.layers import parse_overrides
    from gossamer.studies.cells import parse_overs
    from gossamer.studies.compare import compare as run_comparison

    common = _study_options(out, jobs, engine, data_dir, force, as_json)
    changes, over_values = parse_overrides(overrides or []), parse_overs(over or [])
    comparison = run_comparison(recipe, changes, over=over_values, seeds=seeds, baselines=baselines, **common)
    comparison.show(quiet=as_json)
    _finish(comparison.result, as_json)


@app.command()
def tune(
    recipe: Recipe,
    over: Over = None,
    overrides: Set = None,
    out: StudyFolder = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose settings by private runs that share one budget; the choice looks at a public hold-out."""
    from gossamer.config.layers import parse_overrides
    from gossamer.studies.cells import parse_overs
    from gossamer.studies.tune import tune as run_tuning

    common = _study_options(out, jobs, engine, data_dir, force, as_json)
    tuning = run_tuning(recipe, parse_overrides(overrides or []), over=parse_overs(over or []), **common)
    if not as_json:
        tuning.show()
    _finish(tuning.result, as_json)


def _study_options(
    out: Path | None, jobs: int | None, engine: str, data_dir: Path | None, force: bool, quiet: bool
) -> dict[str, Any]:
    return {"out": out, "jobs": jobs, "engine": engine, "data_dir": data_dir, "force": force, "quiet": quiet}


def _paper_tables(incomplete: str) -> list[str]:
    from gossamer.studies import papers

    return [name for name in papers.names() if name.startswith(incomplete)]


@app.command()
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(help="PAPER/TABLE, for example dyn-d2p/table2.", autocompletion=_paper_tables),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="The tables there are.")] = False,
    scale: Annotated[
        str,
        typer.Option(help="small: minutes; book: as in the reproduction book; full: the paper's setting."),
    ] = "small",
    out: StudyFolder = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """A paper's table: its number, ours in paper mode, ours in sound mode, claimed and proven ε of each."""
    if listed:
        from gossamer.studies.papers import titles

        _print_json(titles()) if as_json else _print_listing(titles())
        return
    if table is None:
        raise UserError("no table is named; name one, for example dyn-d2p/table2, or use --list.")
    from gossamer.studies.reproduce import reproduce as run_table

    common = _study_options(out, jobs, engine, data_dir, force, as_json)
    _finish(run_table(table, scale=scale, **common), as_json)


@app.command()
def audit(
    recipe: RecipeOrRun,
    observer: Annotated[
        str, typer.Option(help="Who attacks: all, all+2, messages, neighbour, coalition:1,2 or final.")
    ] = "all",
    canary: Annotated[
        str | None,
        typer.Option(help="What is tried: dirac, lengths, release, blank, mislabelled, extreme or sensitivity."),
    ] = None,
    canary_records: Annotated[
        int, typer.Option(help="Every canary is a person with so many records, in or out as a whole.")
    ] = 1,
    module: Annotated[
        str | None,
        typer.Option(metavar="FILE:NAME", help="Your own torch module, or what makes it: is it safe to train?"),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="At most so many trainings, draws of the mechanism or records tried (default: what is needed)."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the bounds.")] = 0.999,
    overrides: Set = None,
    out: Annotated[Path | None, typer.Option(help="The folder to make (default: a new one under runs/).")] = None,
    engine: Engine = "local",
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Attack it, and print what an adversary can show next to what is claimed and proven."""
    from gossamer.auditing.api import run_audit

    result = run_audit(
        recipe,
        sets=overrides or [],
        observer=observer,
        canary=canary,
        canary_records=canary_records,
        runs=runs,
        confidence=confidence,
        out=out,
        engine=engine,
        data_dir=data_dir,
        module=module,
        force=force,
        quiet=as_json,
    )
    if as_json:
        _print_json(result)


def _finish(result: dict[str, Any], as_json: bool) -> None:
    """The JSON object if asked for; exit 2 if a cell failed."""
    if as_json:
        _print_json(result)
    for label, reason in result["failed"].items():
        typer.echo(f"gossamer: {label} failed: {reason}", err=True)
    if result["failed"]:
        raise typer.Exit(2)


def _plan_from_ledger(directory: Path, anchor: str | None, as_json: bool) -> None:
    from gossamer.accounting.recompute import recompute
    from gossamer.results.console import ledger_summary, show_ledger
    from gossamer.results.verify import verify_run
    from gossamer.training.certificates import check_network

    proofs = recompute(directory)
    verdict = verify_run(directory, anchor, proofs)
    unchecked = check_network(directory)
    if as_json:
        _print_json(ledger_summary(proofs, verdict))
    else:
        show_ledger(proofs, verdict)
    if unchecked is not None:
        typer.echo(unchecked, err=as_json)


Run = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.")]
OfNode = Annotated[
    str | None,
    typer.Option(
        "--node",
        help="Whose model: a node's number, or average (default; of a site's run, the site's own model).",
    ),
]
OwnModule = Annotated[
    str | None,
    typer.Option("--module", metavar="FILE:NAME", help="Your own torch module, where the run trained one."),
]


@app.command()
def predict(
    run: Run,
    data: Annotated[Path, typer.Argument(help="New rows: a .csv, .parquet or .npz file.")],
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("predictions.csv"),
    node: OfNode = None,
    module: OwnModule = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Predict new rows with what a run has trained.

    Columns are matched by name and get what training rows got; a column of the truth, if there, is compared.
    """
    from gossamer.training.predict import node_of, predict_file, sentences

    result = predict_file(run, data, out, node=node_of(node), module=_own_module(module), data_dir=data_dir)
    _print_json(result) if as_json else typer.echo("\n".join(sentences(result)))


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    kind: Annotated[str, typer.Option("--format", help="safetensors or onnx.")] = "safetensors",
    node: OfNode = None,
    module: OwnModule = None,
    as_json: Json = False,
) -> None:
    """Write a trained model for other programs, with its card.

    The card says what the model is, takes and gives, and what its ε covers and does not.
    """
    from gossamer.training.predict import export as write
    from gossamer.training.predict import node_of

    result = write(run, out, kind=kind, node=node_of(node), module=_own_module(module))
    if as_json:
        _print_json(result)
        return
    for name in result["files"]:
        typer.echo(f"{Path(result['out']) / name}")
    typer.echo(f"model: {result['card']['model']['of']}")


def _own_module(path: str | None) -> Any:
    """Executed because the user named it here; what a run directory names never is."""
    if path is None:
        return None
    from gossamer.models.networks import load_module

    return load_module(path)


@certificate_app.command("anchor")
def certificate_anchor(run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]) -> None:
    """One line to publish: it pins the run's key and certificate; see `plan --ledger RUN --anchor LINE`."""
    from gossamer.results.verify import anchor_of

    typer.echo(anchor_of(run))


@certificate_app.command("key")
def certificate_key(
    out: Annotated[Path, typer.Option(help="The file to make: a private key, readable by you alone.")],
) -> None:
    """Make a key to sign certificates with; prints the public half, for those who will verify."""
    from gossamer.results.signatures import make_key

    typer.echo(f"public key: {make_key(out)}")
    typer.echo(f"private key: {out} (keep it; who has it can sign in your name)", err=True)


@certificate_app.command("sign")
def certificate_sign(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's directory.")],
    key: Annotated[Path, typer.Option(help="Your private key (Ed25519, PEM).")],
    name: Annotated[str, typer.Option(help="In whose name: your organisation's.")] = "an unnamed signer",
) -> None:
    """Vouch for a run: check it, and put your signature into its certificate."""
    from gossamer.training.certificates import sign

    for sentence in sign(run, key, name):
        typer.echo(sentence)


@certificate_app.command("verify")
def certificate_verify(
    certificates: Annotated[
        list[Path],
        typer.Argument(metavar="RUN|FILE", help="A run directory, or a certificate.json alone; of a study, all."),
    ],
    public_key: Annotated[
        str | None,
        typer.Option(metavar="HEX|PEM", help="It must be signed by this key: 64 digits, or a file."),
    ] = None,
    study: Annotated[Path | None, typer.Option(help="They are the certificates of all sites of this study.")] = None,
    roster: Annotated[
        Path | None, typer.Option(help="With --study: a later roster, where sites joined or left since.")
    ] = None,
    authority: Annotated[
        str | None, typer.Option(metavar="HEX", help="With --study: it must be signed under this authority.")
    ] = None,
) -> None:
    """Does the certificate agree with ledgers and models, and who signed it? Exit 2 if anything is wrong."""
    if study is not None:
        if public_key is not None:
            raise UserError("--public-key is for one certificate; the sites of a study sign by the roster's keys.")
        from gossamer.consortium.certificates import verify_set

        lines = verify_set(certificates, study, authority=authority, roster_file=roster)
    elif len(certificates) > 1 or roster is not None or authority is not None:
        raise UserError("the certificates of a consortium's sites belong to a study; name it with --study.")
    else:
        from gossamer.training.certificates import verify

        lines = verify(certificates[0], public_key)
    for sentence in lines:
        typer.echo(sentence)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: report.html in the run, or here).")
    ] = None,
) -> None:
    """Runs side by side, as one self-contained HTML file; exit 2 if what it shows does not verify."""
    from gossamer.results.report import report as write_report

    written = write_report(runs, out=out)
    typer.echo(f"report: {written.path}")
    for sentence in written.unverified:
        typer.echo(f"gossamer: {sentence}", err=True)
    if written.unverified:
        raise typer.Exit(2)


@app.command()
def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a run, or a peer's; running or finished.")
    ],
    port: Annotated[int, typer.Option(help="The port on loopback (default: one that is free).")] = 0,
) -> None:
    """A live page about a run, served to this machine alone; Ctrl-C ends it."""
    from gossamer.results.live import watch as serve

    serve(run, port=port, say=typer.echo)


@app.command("recipes")
def list_recipes(
    schema: Annotated[
        bool, typer.Option("--schema", help="Every table and kind of a configuration with its options.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The named, ready runs."""
    if schema:
        from gossamer.config.reference import as_data, as_markdown
        from gossamer.options.plugins import broken_plugins

        _print_json(as_data()) if as_json else typer.echo(as_markdown(), nl=False)
        for sentence in broken_plugins():
            typer.echo(f"gossamer: {sentence}", err=True)
        return
    from gossamer.config import recipes

    known = {name: recipes.description(name) for name in recipes.names()}
    if as_json:
        _print_json(known)
        return
    _print_listing(known)


@data_app.command("list")
def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """The data sets, and which of them are at hand."""
    from dataclasses import asdict

    from gossamer.data.load import catalogue
    from gossamer.results.console import data_table

    rows = [asdict(entry) for entry in catalogue(data_dir=data_dir)]
    if as_json:
        _print_json(rows)
    else:
        data_table(rows)


@data_app.command("get")
def data_get(name: str, data_dir: DataDir = None) -> None:
    """Fetch a data set, or public weights, into the cache, checked against the recorded digest."""
    from gossamer.data.load import get, licence_of

    typer.echo(f"{name} is at {get(name, data_dir=data_dir)}")
    if licence := licence_of(name):
        typer.echo(f"licence: {licence}")


@data_app.command("check")
def data_check(
    file: Annotated[Path, typer.Argument(help="A .csv or .parquet file, or a TOML file that names some.")],
    config: Annotated[
        str | None, typer.Option(help="The TOML file with the [data.columns] to check the file against.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Validate a table against its declared columns; names no value of a record. Exit 1 if a run would refuse it."""
    from gossamer.results.terminal import terminal
    from gossamer.training.check_data import check_data, does_fit, sentences

    result = check_data(file, config, data_dir)
    if as_json:
        _print_json(result)
    else:
        terminal().say(*sentences(result))
    if not does_fit(result):
        raise typer.Exit(1)


def _print_listing(entries: dict[str, str]) -> None:
    from gossamer.results.terminal import terminal

    terminal().listing(entries)


def _print_json(content: Any) -> None:
    from gossamer.results.rundir import finite, pack
    from gossamer.results.terminal import end_spinner

    end_spinner()
    shown = finite(content)
    typer.echo(json.dumps(pack(shown) if isinstance(shown, dict) else shown, ensure_ascii=False))


# Those that load torch, and so have something to wait for.
_TRAINING = ("run", "plan", "compare", "tune", "audit", "reproduce")
_SLOW = (*_TRAINING, "study")


def _spinner() -> AbstractContextManager[None]:
    """A word about what is done, from the first second: torch alone takes two."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command not in _SLOW or {"--help", "--list"} & set(sys.argv) or "_GOSSAMER_COMPLETE" in os.environ:
        return nullcontext()
    from gossamer.results.terminal import spinner

    return spinner("loading torch")


def _torch_first() -> None:
    """Load torch before all else for commands that need it, without collecting garbage meanwhile.

    It makes a million objects that stay. Python would search them again and again while other modules are loaded.
    """
    if len(sys.argv) < 2 or sys.argv[1] not in _TRAINING or {"--help", "--list"} & set(sys.argv):
        return
    gc.disable()
    import torch  # noqa: F401

    gc.freeze()
    gc.enable()


def main() -> None:
    """Entry point: a user's mistake is one sentence on stderr and exit 2."""
    try:
        with _spinner():
            _torch_first()
            app()
    except UserError as error:
        typer.echo(f"gossamer: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno is None:
            raise
        what = f"{error.filename}: " if error.filename else ""
        typer.echo(f"gossamer: {what}{error.strerror}; fix this and run the command again.", err=True)
        sys.exit(2)
    except StoppedError as stop:
        typer.echo(f"gossamer: {'; '.join(['stopped', *map(str, stop.args)])}.", err=True)
        sys.exit(130)
