"""`gossamer peer` and `gossamer relay`: a site takes part in a study."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.errors import StoppedError, UserError

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
    typer.Option(help="The folder of this study (default: beside site.toml); the same again goes on."),
]


def _say(text: str) -> None:
    from gossamer.results.terminal import terminal

    terminal().print(text, soft_wrap=True, highlight=False)


def _ready(study: Path, site: Path, folder: Path) -> Any:
    from gossamer.consortium.names import now
    from gossamer.consortium.ready import ready

    found = ready(study, site, folder, now())
    for sentence in found.warnings:
        typer.echo(f"gossamer: {sentence}", err=True)
    return found


def _folder(study: Path, site: Path, out: Path | None) -> Path:
    beside = site if site.is_dir() else site.parent
    return (out or beside / study.stem).absolute()


@peer_app.command("check")
def peer_check(
    study: StudyFile,
    site: SiteFile,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to try the links; 0 leaves them out.")
    ] = 10.0,
) -> None:
    """All that can be checked before a study; then who is up. Draws nothing and spends nothing."""
    from gossamer.consortium.check import links_up, without_links

    with tempfile.TemporaryDirectory() as folder:
        found = _ready(study, site, Path(folder))
        for sentence in without_links(found):
            _say(sentence)
        states = links_up(found, seconds) if seconds else {}
    for name, state in states.items():
        _say(f"link to {name}: {state}")


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
    """Train with the other sites. Started again it goes on; it ends with a signed certificate."""
    _part(study, site, out, wait, leaving=False, relay=relay, token=token)


@peer_app.command("leave")
def peer_leave(
    study: StudyFile, site: SiteFile, out: Out = None, relay: Relay = None, token: Token = None
) -> None:
    """Take part no longer: certify what was spent here. What others still hold for this site stays with it."""
    _part(study, site, out, wait=1.0, leaving=True, relay=relay, token=token)


def _part(
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

    from gossamer.consortium.peer import Manner, take_part
    from gossamer.results.certificate import epsilon_text

    folder = _folder(study, site, out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logging.raiseExceptions = False  # a log on a full disk would end in tracebacks
        logging.basicConfig(format="%(asctime)s %(message)s", filename=folder / "log", level=logging.INFO)
        found = _ready(study, site, folder)
        with _at_relay(found, relay, token):
            done = take_part(found, folder, Manner(wait=wait, leaving=leaving, say=_say))
    except KeyboardInterrupt:
        raise StoppedError("the same command goes on") from None
    except OSError as error:
        if error.errno is None:  # of a link, not of a file
            raise
        raise UserError(
            f"{error.filename or folder} cannot be used: {error.strerror}; fix this (space, permissions, the disk), "
            "then the same command resumes."
        ) from error
    c = done.certificate
    proven = c["epsilon_by_node"][found.node]["proven"]
    stamp = f"{c['stamp']}; " if c["stamp"] else ""
    what = f"proven ε ≤ {epsilon_text(proven)}" if proven is not None else "nothing is proven"
    _say(
        f"{stamp}{what} for {found.site.name} (δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}; observer: "
        f"{c['observer']})"
    )
    if c["rounds"] < found.config.rounds:
        _say(f"{found.site.name} ran {c['rounds']} of the study's {found.config.rounds} rounds")
    _say(f"certificate, signed by {found.site.name}: {done.directory / 'certificate.json'}")


def _at_relay(found: Any, relay: str | None, token: str | None) -> AbstractContextManager[Any]:
    """Others who come to this site's front at the relay are handed to the listener here."""
    if relay is None:
        return nullcontext()
    listen = found.site.listen
    if token is None or listen is None:
        missing = "GOSSAMER_RELAY_TOKEN is not set" if token is None else 'site.toml has listen = "none"'
        raise UserError(
            f"--relay {relay}: {missing}; a site at a relay needs its token and a port of its own."
        )
    from gossamer.consortium.relay import Agent

    return closing(Agent(relay, found.site.name, token, int(listen.rpartition(":")[2])))


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
    from gossamer.consortium.secret import Secret

    fronts = dict(one.partition("=")[::2] for one in front)
    if len(fronts) < len(front) or not all(name and place for name, place in fronts.items()):
        raise UserError(f"--front {' '.join(front)} must be SITE=HOST:PORT, each site once.")
    secret = Secret.of_environment()
    if secret is None:
        raise UserError("GOSSAMER_SECRET_FILE is not set: it names the file with the relay's secret.")
    if token is not None:
        if token not in fronts:
            raise UserError(f"--token {token} has no --front; those that have one: {', '.join(fronts)}.")
        typer.echo(relays.token(secret, token))
        return
    _say(f"relay for {', '.join(fronts)}; sites wait at {back}")
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
    """A whole consortium on this machine. Keys, certificates, files, a process a site; beside the simulator."""
    from gossamer.consortium.demo import demo

    if out is not None:
        if out.exists() and any(out.iterdir()):
            raise UserError(f"--out {out} is not empty; name a new folder.")
        out.mkdir(parents=True, exist_ok=True)
        demo(out.absolute(), sites=sites, rounds=rounds, limit=limit, say=_say, seed=seed)
        _say(f"everything is in {out}")
        return
    with tempfile.TemporaryDirectory(prefix="gossamer-demo-") as folder:
        demo(Path(folder), sites=sites, rounds=rounds, limit=limit, say=_say, seed=seed)
