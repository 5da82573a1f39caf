"""The commands of a consortium: `gossamer pki`, `study`, `peer` and `relay`. Arguments in, a call, a few lines out."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossamer.arguments import DataDir, Set
from gossamer.errors import StoppedError, UserError

if TYPE_CHECKING:
    from gossamer.consortium.folders import Coordinator
    from gossamer.consortium.peer import Participation
    from gossamer.consortium.roster import Roster
    from gossamer.consortium.study import Study

pki_app = typer.Typer(help="Who belongs to a consortium: keys, invites, the roster.", no_args_is_help=True)
study_app = typer.Typer(help="What a consortium trains together, as one signed file.", no_args_is_help=True)
peer_app = typer.Typer(help="Take part in a study, as one site of a consortium.", no_args_is_help=True)

Folder = Annotated[Path | None, typer.Option("--dir", help="The consortium's folder, if not the only one.")]
NewFolder = Annotated[Path | None, typer.Option("--dir", help="The folder to make (default: the name).")]
Name = Annotated[str, typer.Argument(metavar="SITE", help="The site's name: small letters, digits, hyphens.")]
AtRound = Annotated[int, typer.Option(help="In studies that are packed already: from this round on.")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The file that the consortium sent.")]
SiteFile = Annotated[Path, typer.Option("--site", help="site.toml, or the folder with it.")]
Authority = Annotated[str | None, typer.Option(metavar="HEX", help="It must be signed under this authority.")]
Out = Annotated[Path | None, typer.Option(help="The study's folder (default: by site.toml); again: resume.")]
RelayAddress = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The back of a relay.")]
Token = Annotated[str | None, typer.Option(envvar="GOSSAMER_RELAY_TOKEN", hidden=True)]
Wait = Annotated[float, typer.Option(min=1, help="Seconds to wait for all at the start, for anybody later.")]


def say(text: str) -> None:
    from gossamer.results.terminal import terminal

    terminal().say(text)


def warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        typer.echo(f"gossamer: {sentence}", err=True)


def _coordinator(folder: Path | None) -> Coordinator:
    from gossamer.consortium.folders import Coordinator

    return Coordinator.find(folder)


def _announce(change: str, coordinator: Coordinator, roster: Roster) -> None:
    say(change)
    say(f"roster {roster.version}: {coordinator.roster_file}; send it to all sites, it holds no secret")
    warn(roster.warnings())


@pki_app.command("init")
def pki_init(name: Annotated[str, typer.Argument(help="Of the consortium.")], folder: NewFolder = None) -> None:
    """Begin a consortium: its key, and a roster without sites."""
    from gossamer.consortium.folders import AUTHORITY_KEY, Coordinator

    coordinator = Coordinator.init(name, folder)
    say(f"consortium {name} begun in {coordinator.folder}")
    say(f"authority: {coordinator.roster().fingerprint}")
    key = coordinator.folder / AUTHORITY_KEY
    say(f"keep {key} to yourself and make a copy: who has it can let anybody in")
    say("next: gossamer pki invite SITE")


@pki_app.command("invite")
def pki_invite(
    site: Name,
    days: Annotated[float, typer.Option(help="How long it is good for.")] = 7,
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
    folder: Folder = None,
) -> None:
    """One line for a site's operator: it lets one site in, once. Send it by a way that others do not read."""
    from gossamer.consortium import files
    from gossamer.results.words import day

    invite = _coordinator(folder).invite(site, days)
    if out is None:
        typer.echo(invite.text())
    else:
        files.write(out, f"{invite.text()}\n".encode(), 0o600, new=True)
        say(f"invite: {out}")
    typer.echo(f"good once, until {day(invite.expires)}; who has it can join as {site}", err=True)


@pki_app.command("join")
def pki_join(
    invite: Annotated[str, typer.Argument(metavar="INVITE", help="The line you were sent, or its file.")],
    records: Annotated[int, typer.Option(help="How many records you declare: public, rounded as you like.")],
    listen: Annotated[str, typer.Option(help="host:port where others find you; none: dial out.")] = "none",
    data: Annotated[Path | None, typer.Option(help="Your file of records, for site.toml.")] = None,
    cap: Annotated[float | None, typer.Option(help="Most proven ε they may cost, for site.toml.")] = None,
    folder: NewFolder = None,
) -> None:
    """At a site: make its key and a request. The key never leaves; the request is sent back."""
    from gossamer.consortium import files
    from gossamer.consortium.authority import Invite
    from gossamer.consortium.folders import join

    is_text = invite.startswith("gossamer-invite-")
    parsed = Invite.read(invite if is_text else files.read(Path(invite)).decode(errors="replace"))
    file = None if data is None else str(data)
    request, mark = join(parsed, listen=listen, records=records, folder=folder, data=file, cap=cap)
    say(f"site {parsed.site} of {parsed.consortium}: its key and site.toml are in {request.parent}")
    say(f"send {request} back to those who invited you; it holds no secret")
    say(f"when they approve it, compare the key by telephone: {mark}")
    say("next: gossamer pki accept ROSTER, with the roster that they send you")


@pki_app.command("approve")
def pki_approve(
    site: Name,
    request: Annotated[str | None, typer.Argument(help="Default: SITE.request; -: standard input.")] = None,
    at_round: AtRound = 0,
    folder: Folder = None,
) -> None:
    """Let a site in: a certificate of 90 days, and the next roster."""
    from gossamer.consortium import files

    coordinator, where = _coordinator(folder), request or f"{site}.request"
    content = sys.stdin.buffer.read(files.LARGEST) if where == "-" else files.read(Path(where))
    roster, mark = coordinator.approve(site, content, where, at_round)
    _announce(f"{site} is in; its key, to compare by telephone: {mark}", coordinator, roster)


@pki_app.command("revoke")
def pki_revoke(site: Name, at_round: AtRound = 0, folder: Folder = None) -> None:
    """Put a site out, at once. Its links go down as soon as the others have the next roster."""
    coordinator = _coordinator(folder)
    _announce(f"{site} is revoked", coordinator, coordinator.revoke(site, at_round))


@pki_app.command("leave")
def pki_leave(site: Name, at_round: AtRound = ..., folder: Folder = None) -> None:  # type: ignore[assignment]
    """Let a site go as agreed: it takes part until the round."""
    coordinator = _coordinator(folder)
    _announce(f"{site} leaves at round {at_round}", coordinator, coordinator.leave(site, at_round))


@pki_app.command("renew")
def pki_renew(
    sites: Annotated[list[str] | None, typer.Argument(help="Default: all that end in 14 days.")] = None,
    folder: Folder = None,
) -> None:
    """New certificates of 90 days for the same keys. Sites accept the next roster and do nothing else."""
    coordinator = _coordinator(folder)
    roster, renewed = coordinator.renew(sites or [])
    if renewed:
        _announce(f"new certificates: {', '.join(renewed)}", coordinator, roster)
    else:
        say("no certificate ends within 14 days; name a site to renew it all the same")


@pki_app.command("accept")
def pki_accept(
    roster: Annotated[Path, typer.Argument(metavar="ROSTER", help="The file that the consortium sent.")],
    site: Annotated[Path | None, typer.Option(help="Its folder or site.toml, if not the only one.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
) -> None:
    """At a site: look at a new roster and make it your own."""
    from gossamer.consortium import files
    from gossamer.consortium.folders import FILE, accept

    path = files.only_folder_with(FILE, "--site", "site's folder", site) / FILE

    def agree(changes: Sequence[str]) -> bool:
        for sentence in changes or ["nothing changes but its number"]:
            say(f"  {sentence}")
        if not yes and not sys.stdin.isatty():
            raise UserError(f"{roster} needs your agreement, and there is no terminal; --yes agrees.")
        return yes or typer.confirm("accept it?", default=False)

    accepted, warnings = accept(path, files.read(roster), str(roster), agree)
    names = ", ".join(accepted.members()) or "none"
    say(f"roster {accepted.version} of {accepted.consortium} is accepted; its sites: {names}")
    warn(warnings)


@pki_app.command("show")
def pki_show(
    what: Annotated[Path, typer.Argument(help="A roster, or a folder with one (default: here).")] = Path(),
) -> None:
    """List the sites: records, addresses, when certificates end."""
    from gossamer.consortium import files
    from gossamer.consortium.authority import days_left, key_words
    from gossamer.consortium.roster import Roster
    from gossamer.results.words import day

    rosters = [what]
    if what.is_dir():
        rosters = sorted(what.glob("*.roster")) or sorted(what.glob("*/*.roster"))
    if len(rosters) != 1:
        raise UserError(f"{what} has {len(rosters)} rosters; name the file of one.")
    roster = Roster.read(files.read(rosters[0]), str(rosters[0]))
    say(f"consortium {roster.consortium}, roster {roster.version}, of {day(roster.issued)}")
    say(f"authority: {roster.fingerprint}")
    for site in roster.sites:
        say("")
        if site.left is not None:
            how = "revoked" if site.left.revoked else f"left, at round {site.left.at_round}"
            say(f"{site.name}  {how}, in roster {site.left.version}")
            continue
        since = f", from round {site.joined.at_round}" if site.joined.at_round else ""
        say(f"{site.name}  {site.records} records, {site.address or 'dials out only'}{since}")
        ends, left = files.stamp(site.parsed.not_valid_after_utc), days_left(site.parsed, files.now())
        say(f"  key {key_words(site.public_key)}; certificate ends on {day(ends)} ({left} days)")
    if not roster.sites:
        say("no sites yet: gossamer pki invite SITE")
    warn(roster.warnings())


@study_app.command("pack")
def study_pack(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a TOML file.")],
    overrides: Set = None,
    deadline: Annotated[float, typer.Option(help="Seconds that a round waits for a neighbour.")] = 30.0,
    late: Annotated[int, typer.Option(help="Rounds after which a late message counts no longer.")] = 4,
    tick: Annotated[float, typer.Option(help="Seconds: messages leave at its multiples.")] = 0.25,
    out: Annotated[Path | None, typer.Option(help="The file to make (default: NAME-1.study).")] = None,
    for_science: Annotated[bool, typer.Option("--for-science", help="Allow noise without privacy.")] = False,
    folder: Folder = None,
    data_dir: DataDir = None,
) -> None:
    """Sign a recipe for the sites there are. Nodes and records are the newest roster's; trains nothing."""
    from gossamer.config.layers import parse_overrides
    from gossamer.consortium.study import pack
    from gossamer.results.certificate import planned_relation

    terms: dict[str, Any] = {"deadline": deadline, "late": late, "tick": tick, "for_science": for_science}
    changes = parse_overrides(overrides or [])
    study, path, plan = pack(_coordinator(folder), recipe, changes, data_dir=data_dir, out=out, **terms)
    _describe(study)
    epsilon = plan.privacy.figures()["epsilon_proven"]
    if epsilon is not None and not plan.seeded:
        say(f"planned: proven ε ≤ {epsilon:.3g} at every site ({planned_relation(plan.privacy)})")
    say(f"study: {path}; send it to all sites, with the test rows if it has some")
    warn(study.roster.warnings())


@study_app.command("show")
def study_show(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A file that `study pack` wrote.")],
    authority: Authority = None,
    recipe: Annotated[bool, typer.Option("--recipe", help="Print the whole recipe as TOML instead.")] = False,
) -> None:
    """Describe a study, after its signatures are checked."""
    from gossamer.consortium.study import Study

    verified = Study.read(study, authority)
    if recipe:
        typer.echo(verified.recipe, nl=False)
        return
    _describe(verified)
    if authority is None:
        mark = verified.roster.fingerprint
        say(f"whose consortium this is must be known from elsewhere; compare --authority {mark}")


def _describe(study: Study) -> None:
    from gossamer.results.words import day

    config, terms, model, test = study.config, study.terms, study.model, study.test
    privacy = config.privacy
    say(f"study {study.name}, version {study.version}, of {day(study.issued)}: {study.digest[:16]}")
    say(f"consortium {study.roster.consortium}, roster {study.roster.version}: {', '.join(study.sites)}")
    figures = privacy.epsilon, privacy.delta
    epsilon, delta = (f"{one:g}" if isinstance(one, float) else one for one in figures)
    target = "a noise multiplier" if epsilon is None else f"ε ≤ {epsilon}"
    guarantee = f"δ = {delta}, {privacy.adjacency}, unit: {privacy.protects.words()}; observer: everyone"
    say(f"{config.algorithm.kind}, {config.rounds} rounds, target: {target} ({guarantee})")
    say(f"model {config.model.kind}, {model.parameters} parameters, begins as {model.digest[:16]}")
    rows = f"{test.rows} public rows in {test.file}, {test.digest[:16]}" if test else "none"
    say(f"test rows: {rows}")
    leave = f"messages leave every {terms.tick:g} s and count for {terms.late} rounds"
    say(f"a round waits {terms.deadline:g} s; {leave}")
    if terms.for_science:
        say("FOR SCIENCE: its noise may protect nobody; use it on records that need no privacy")


@peer_app.command("check")
def peer_check(
    study: StudyFile,
    site: SiteFile,
    seconds: Annotated[float, typer.Option(min=0, help="How long to try the links; 0: not at all.")] = 10.0,
) -> None:
    """Check all that can be checked before a study, then try the links. Draws nothing and spends nothing."""
    with tempfile.TemporaryDirectory() as folder:
        participation = _open(study, site, Path(folder))
        for line in participation.check():
            say(line)
        states = participation.try_links(seconds) if seconds else {}
    for name, state in states.items():
        say(f"link to {name}: {state}")


def _open(study: Path, site: Path, folder: Path) -> Participation:
    from gossamer.consortium.peer import Participation

    participation = Participation.open(study, site, folder)
    warn(participation.warnings)
    return participation


@peer_app.command("run")
def peer_run(
    study: StudyFile,
    site: SiteFile,
    out: Out = None,
    wait: Wait = 3600.0,
    relay: RelayAddress = None,
    token: Token = None,
) -> None:
    """Train with the other sites, or resume. It ends with a signed certificate."""
    _take_part(study, site, out, relay, token, wait=wait)


@peer_app.command("leave")
def peer_leave(
    study: StudyFile, site: SiteFile, out: Out = None, relay: RelayAddress = None, token: Token = None
) -> None:
    """Take part no longer: certify what was spent here. What others still hold for this site stays with it."""
    _take_part(study, site, out, relay, token, wait=1.0, leaving=True)


def _take_part(study: Path, site: Path, out: Path | None, relay: str | None, token: str | None, **how: Any) -> None:
    import logging

    from gossamer.consortium.certificates import guarantee
    from gossamer.consortium.peer import take_part

    folder = (out or (site if site.is_dir() else site.parent) / study.stem).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logging.raiseExceptions = False  # a log on a full disk would end in tracebacks
        logging.basicConfig(format="%(asctime)s %(message)s", filename=folder / "log", level=logging.INFO)
        participation = _open(study, site, folder)
        with _agent(participation, relay, token):
            outcome = take_part(participation, folder, say=say, **how)
    except KeyboardInterrupt:
        raise StoppedError("the same command resumes") from None
    except OSError as error:
        if error.errno is None:  # of a link, not of a file
            raise
        what = f"{error.filename or folder} cannot be used: {error.strerror}"
        raise UserError(f"{what}; fix this (space, permissions), then the same command resumes.") from error
    certificate, name, rounds = outcome.certificate, participation.name, participation.config.rounds
    say(f"{name}: {guarantee(certificate, participation.node)}")
    if certificate["rounds"] < rounds:
        say(f"{name} ran {certificate['rounds']} of the study's {rounds} rounds")
    say(f"certificate, signed by {name}: {outcome.directory / 'certificate.json'}")


def _agent(participation: Participation, relay: str | None, token: str | None) -> AbstractContextManager[Any]:
    """Hand callers at this site's front of the relay to the listener here."""
    if relay is None:
        return nullcontext()
    listener = participation.site.listener
    if token is None or listener is None:
        missing = "GOSSAMER_RELAY_TOKEN is not set" if token is None else 'site.toml has listen = "none"'
        raise UserError(f"--relay {relay}: {missing}; a site at a relay needs its token and a port.")
    from gossamer.consortium.relay import Agent

    return closing(Agent(relay, participation.name, token, int(listener.rpartition(":")[2])))


@peer_app.command("demo")
def peer_demo(
    sites: Annotated[int, typer.Option(min=2, max=16, help="How many.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="How many rounds they train.")] = 60,
    out: Annotated[Path | None, typer.Option(help="Keep everything in this new folder.")] = None,
    limit: Annotated[float, typer.Option(min=10, help="Seconds after which it gives up.")] = 300.0,
    seed: Annotated[int | None, typer.Option(help="Seeded noise, the simulator's too: no privacy.")] = None,
) -> None:
    """Run a whole consortium on this machine, a process per site, and compare it with the simulator."""
    from gossamer.consortium.demo import demo

    if out is not None and out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out} is not empty; name a new folder.")
    with tempfile.TemporaryDirectory(prefix="gossamer-demo-") as temporary:
        folder = Path(temporary) if out is None else out.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        demo(folder, sites=sites, rounds=rounds, limit=limit, say=say, seed=seed)
    if out is not None:
        say(f"everything is in {out}")


def relay(
    back: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the sites wait.")],
    front: Annotated[
        list[str], typer.Option(metavar="SITE=HOST:PORT", help="Where others reach a site; once for each.")
    ],
    token: Annotated[str | None, typer.Option(metavar="SITE", help="Print what this site needs, and end.")] = None,
) -> None:
    """Splice connections of sites that cannot listen; TLS stays between them. The secret: GOSSAMER_SECRET_FILE."""
    from gossamer.consortium import relay as relays

    fronts = dict(one.partition("=")[::2] for one in front)
    if len(fronts) < len(front) or not all(name and address for name, address in fronts.items()):
        raise UserError(f"--front {' '.join(front)} must be SITE=HOST:PORT, each site once.")
    secret = relays.read_secret()
    if token is None:
        say(f"relay for {', '.join(fronts)}; sites wait at {back}")
        relays.relay(secret, back, fronts)
    elif token not in fronts:
        raise UserError(f"--token {token} has no --front; those that have one: {', '.join(fronts)}.")
    else:
        typer.echo(relays.token(secret, token))
