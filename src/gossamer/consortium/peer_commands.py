"""`gossamer peer` and `gossamer relay`: a site takes part in a study."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossamer.consortium.commands import say, warn
from gossamer.errors import StoppedError, UserError

if TYPE_CHECKING:
    from gossamer.consortium.participation import Participation

peer_app = typer.Typer(help="Take part in a study, as one site of a consortium.", no_args_is_help=True)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The file that the consortium sent.")]
SiteFile = Annotated[Path, typer.Option("--site", help="site.toml, or the folder with it.")]
Relay = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The back of a relay, for a site that cannot listen.")
]
Token = Annotated[
    str | None,
    typer.Option(envvar="GOSSAMER_RELAY_TOKEN", hidden=True, help="What the relay's operator gave."),
]
Out = Annotated[
    Path | None,
    typer.Option(help="The folder of this study (default: next to site.toml); the same again resumes."),
]


def _open(study: Path, site: Path, folder: Path) -> Participation:
    from gossamer.consortium.formats import now
    from gossamer.consortium.participation import Participation

    participation = Participation.open(study, site, folder, now())
    warn(participation.warnings)
    return participation


@peer_app.command("check")
def peer_check(
    study: StudyFile,
    site: SiteFile,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to try the links; 0 leaves them out.")
    ] = 10.0,
) -> None:
    """Check all that can be checked before a study, then try the links. Draws nothing and spends nothing."""
    with tempfile.TemporaryDirectory() as folder:
        participation = _open(study, site, Path(folder))
        for line in participation.check():
            say(line)
        states = participation.try_links(seconds) if seconds else {}
    for name, state in states.items():
        say(f"link to {name}: {state}")


@peer_app.command("run")
def peer_run(
    study: StudyFile,
    site: SiteFile,
    out: Out = None,
    wait: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for the others at the start, and for anybody later.")
    ] = 3600.0,
    relay: Relay = None,
    token: Token = None,
) -> None:
    """Train with the other sites, or resume. It ends with a signed certificate."""
    _take_part(study, site, out, wait, leaving=False, relay=relay, token=token)


@peer_app.command("leave")
def peer_leave(
    study: StudyFile, site: SiteFile, out: Out = None, relay: Relay = None, token: Token = None
) -> None:
    """Take part no longer: certify what was spent here. What others still hold for this site stays with it."""
    _take_part(study, site, out, wait=1.0, leaving=True, relay=relay, token=token)


def _take_part(
    study: Path,
    site: Path,
    out: Path | None,
    wait: float,
    *,
    leaving: bool,
    relay: str | None,
    token: str | None,
) -> None:
    import logging

    from gossamer.consortium.peer import take_part
    from gossamer.results.certificate import epsilon_text

    folder = (out or (site if site.is_dir() else site.parent) / study.stem).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logging.raiseExceptions = False  # a log on a full disk would end in tracebacks
        logging.basicConfig(format="%(asctime)s %(message)s", filename=folder / "log", level=logging.INFO)
        participation = _open(study, site, folder)
        with _agent(participation, relay, token):
            outcome = take_part(participation, folder, wait=wait, leaving=leaving, say=say)
    except KeyboardInterrupt:
        raise StoppedError("the same command resumes") from None
    except OSError as error:
        if error.errno is None:  # of a link, not of a file
            raise
        raise UserError(
            f"{error.filename or folder} cannot be used: {error.strerror}; fix this (space, permissions, the disk), "
            "then the same command resumes."
        ) from error
    c, name, rounds = outcome.certificate, participation.name, participation.config.rounds
    proven = c["epsilon_by_node"][participation.node]["proven"]
    stamp = f"{c['stamp']}; " if c["stamp"] else ""
    figure = f"proven ε ≤ {epsilon_text(proven)}" if proven is not None else "nothing is proven"
    say(
        f"{stamp}{figure} for {name} (δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}; observer: "
        f"{c['observer']})"
    )
    if c["rounds"] < rounds:
        say(f"{name} ran {c['rounds']} of the study's {rounds} rounds")
    say(f"certificate, signed by {name}: {outcome.directory / 'certificate.json'}")


def _agent(participation: Participation, relay: str | None, token: str | None) -> AbstractContextManager[Any]:
    """Hand callers at this site's front of the relay to the listener here."""
    if relay is None:
        return nullcontext()
    listen = participation.site.listen
    if token is None or listen is None:
        missing = "GOSSAMER_RELAY_TOKEN is not set" if token is None else 'site.toml has listen = "none"'
        raise UserError(
            f"--relay {relay}: {missing}; a site at a relay needs its token and a port of its own."
        )
    from gossamer.consortium.relay import Agent

    return closing(Agent(relay, participation.name, token, int(listen.rpartition(":")[2])))


def relay(
    back: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the sites wait.")],
    front: Annotated[
        list[str], typer.Option(metavar="SITE=HOST:PORT", help="Where others reach a site; once for each.")
    ],
    token: Annotated[
        str | None, typer.Option(metavar="SITE", help="Print what this site needs, and end.")
    ] = None,
) -> None:
    """Splice connections of sites that cannot listen; TLS stays between them. The secret: GOSSAMER_SECRET_FILE."""
    from gossamer.consortium import relay as relays

    fronts = dict(one.partition("=")[::2] for one in front)
    if len(fronts) < len(front) or not all(name and address for name, address in fronts.items()):
        raise UserError(f"--front {' '.join(front)} must be SITE=HOST:PORT, each site once.")
    secret = relays.read_secret()
    if token is not None:
        if token not in fronts:
            raise UserError(f"--token {token} has no --front; those that have one: {', '.join(fronts)}.")
        typer.echo(relays.token(secret, token))
        return
    say(f"relay for {', '.join(fronts)}; sites wait at {back}")
    relays.relay(secret, back, fronts)


@peer_app.command("demo")
def peer_demo(
    sites: Annotated[int, typer.Option(min=2, max=16, help="How many.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="How many rounds they train.")] = 60,
    out: Annotated[
        Path | None, typer.Option(help="Keep everything in this new folder (default: a temporary one).")
    ] = None,
    limit: Annotated[float, typer.Option(min=10, help="Seconds after which it gives up.")] = 300.0,
    seed: Annotated[
        int | None, typer.Option(help="Noise from this seed, the simulator's too: equal models, no privacy.")
    ] = None,
) -> None:
    """Run a whole consortium on this machine, a process per site, and compare it with the simulator."""
    from gossamer.consortium.demo import demo

    if out is not None:
        if out.exists() and any(out.iterdir()):
            raise UserError(f"--out {out} is not empty; name a new folder.")
        out.mkdir(parents=True, exist_ok=True)
        demo(out.absolute(), sites=sites, rounds=rounds, limit=limit, say=say, seed=seed)
        say(f"everything is in {out}")
        return
    with tempfile.TemporaryDirectory(prefix="gossamer-demo-") as folder:
        demo(Path(folder), sites=sites, rounds=rounds, limit=limit, say=say, seed=seed)
