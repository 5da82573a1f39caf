"""The commands of a consortium: `gossamer pki …` and `gossamer study …`. Arguments in, one call, a few lines out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossamer.arguments import DataDir, Set
from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.consortium.roster import Roster

pki_app = typer.Typer(
    help="Who belongs to a consortium: keys, invites and the signed roster.", no_args_is_help=True
)
study_app = typer.Typer(help="What a consortium trains together, as one signed file.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="The consortium's folder (default: this one, or the only one here)."),
]
Name = Annotated[str, typer.Argument(metavar="SITE", help="The site's name: small letters, digits, hyphens.")]
AtRound = Annotated[int, typer.Option(help="In studies that are packed already: from this round on.")]


def say(text: str) -> None:
    from gossamer.results.terminal import terminal

    terminal().print(text, soft_wrap=True, highlight=False)


def warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        typer.echo(f"gossamer: {sentence}", err=True)


@pki_app.command("init")
def pki_init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the consortium.")],
    folder: Annotated[Path | None, typer.Option("--dir", help="The folder to make (default: NAME).")] = None,
) -> None:
    """Begin a consortium: its key, and a roster without sites."""
    from gossamer.consortium.coordinator import KEY, Coordinator

    coordinator = Coordinator.init(name, folder)
    say(f"consortium {name} begun in {coordinator.folder}")
    say(f"authority: {coordinator.roster().fingerprint}")
    say(f"keep {coordinator.folder / KEY} to yourself and make a copy: who has it can let anybody in")
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
    from gossamer.consortium.coordinator import Coordinator
    from gossamer.results.words import day

    invite = Coordinator.find(folder).invite(site, days)
    if out is None:
        typer.echo(invite.text())
    else:
        files.write_new(out, f"{invite.text()}\n".encode(), 0o600)
        say(f"invite: {out}")
    typer.echo(f"good once, until {day(invite.expires)}; who has it can join as {site}", err=True)


@pki_app.command("join")
def pki_join(
    invite: Annotated[
        str, typer.Argument(metavar="INVITE", help="The line that you were sent, or a file with it.")
    ],
    records: Annotated[int, typer.Option(help="How many records you declare: public, rounded as you like.")],
    listen: Annotated[
        str, typer.Option(help="host:port where others find you; none: you only dial out.")
    ] = "none",
    data: Annotated[Path | None, typer.Option(help="Your file of records, for site.toml.")] = None,
    cap: Annotated[
        float | None, typer.Option(help="Most proven ε that they may cost, for site.toml.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="The folder to make (default: the site's name).")
    ] = None,
) -> None:
    """At a site: make its key and a request. The key never leaves; the request is sent back."""
    from gossamer.consortium import files
    from gossamer.consortium.invite import Invite
    from gossamer.consortium.site import join

    text = invite
    if not invite.startswith("gossamer-invite-"):
        text = files.read(Path(invite)).decode(errors="replace")
    parsed = Invite.read(text)
    request, mark = join(
        parsed, listen=listen, records=records, folder=folder, data=str(data) if data else None, cap=cap
    )
    say(f"site {parsed.site} of {parsed.consortium}: its key and site.toml are in {request.parent}")
    say(f"send {request} back to those who invited you; it holds no secret")
    say(f"when they approve it, compare the key by telephone: {mark}")
    say("next: gossamer pki accept ROSTER, with the roster that they send you")


@pki_app.command("approve")
def pki_approve(
    site: Name,
    request: Annotated[
        str | None,
        typer.Argument(metavar="REQUEST", help="What came back (default: SITE.request; - reads it)."),
    ] = None,
    at_round: AtRound = 0,
    folder: Folder = None,
) -> None:
    """Let a site in: a certificate of 90 days, and the next roster."""
    from gossamer.consortium import files
    from gossamer.consortium.coordinator import Coordinator

    coordinator = Coordinator.find(folder)
    where = request or f"{site}.request"
    content = sys.stdin.buffer.read(files.LARGEST) if where == "-" else files.read(Path(where))
    roster, mark = coordinator.approve(site, content, where, at_round)
    say(f"{site} is in; its key, to compare by telephone: {mark}")
    _published(coordinator.roster_file, roster)


@pki_app.command("revoke")
def pki_revoke(site: Name, at_round: AtRound = 0, folder: Folder = None) -> None:
    """Put a site out, at once. Its links go down as soon as the others have the next roster."""
    from gossamer.consortium.coordinator import Coordinator

    coordinator = Coordinator.find(folder)
    roster = coordinator.revoke(site, at_round)
    say(f"{site} is revoked")
    _published(coordinator.roster_file, roster)


@pki_app.command("leave")
def pki_leave(
    site: Name,
    at_round: Annotated[
        int, typer.Option(help="In studies that are packed already: its first round without.")
    ],
    folder: Folder = None,
) -> None:
    """Let a site go as agreed: it takes part until the round."""
    from gossamer.consortium.coordinator import Coordinator

    coordinator = Coordinator.find(folder)
    roster = coordinator.leave(site, at_round)
    say(f"{site} leaves at round {at_round}")
    _published(coordinator.roster_file, roster)


@pki_app.command("renew")
def pki_renew(
    sites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SITE", help="Which (default: all that end within 14 days)."),
    ] = None,
    folder: Folder = None,
) -> None:
    """New certificates of 90 days for the same keys. Sites accept the next roster and do nothing else."""
    from gossamer.consortium.coordinator import Coordinator

    coordinator = Coordinator.find(folder)
    roster, renewed = coordinator.renew(sites or [])
    if not renewed:
        say("no certificate ends within 14 days; name a site to renew it all the same")
        return
    say(f"new certificates: {', '.join(renewed)}")
    _published(coordinator.roster_file, roster)


def _published(file: Path, roster: Roster) -> None:
    from gossamer.consortium.formats import now

    say(f"roster {roster.version}: {file}; send it to all sites, it holds no secret")
    warn(roster.warnings(now()))


@pki_app.command("accept")
def pki_accept(
    roster: Annotated[Path, typer.Argument(metavar="ROSTER", help="The file that the consortium sent.")],
    site: Annotated[
        Path | None,
        typer.Option("--site", help="The site's folder or site.toml (default: the only one here)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
) -> None:
    """At a site: look at a new roster and make it your own."""
    from gossamer.consortium import files
    from gossamer.consortium.site import FILE, accept

    path = files.only_folder_with(FILE, "--site", "site's folder", site) / FILE

    def agree(changes: Sequence[str]) -> bool:
        for sentence in changes or ["nothing changes but its number"]:
            say(f"  {sentence}")
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UserError(
                f"{roster} needs your agreement, and there is no terminal to ask; use --yes to agree."
            )
        return typer.confirm("accept it?", default=False)

    accepted, warnings = accept(path, files.read(roster), str(roster), agree)
    names = ", ".join(accepted.members()) or "none"
    say(f"roster {accepted.version} of {accepted.consortium} is accepted; its sites: {names}")
    warn(warnings)


@pki_app.command("show")
def pki_show(
    what: Annotated[
        Path | None,
        typer.Argument(
            metavar="ROSTER|FOLDER", help="A roster, or a consortium's or site's folder (default: here)."
        ),
    ] = None,
) -> None:
    """List the sites: records, addresses, when certificates end."""
    from gossamer.consortium import files
    from gossamer.consortium.authority import days_left, key_words
    from gossamer.consortium.formats import now, stamp
    from gossamer.consortium.roster import Roster
    from gossamer.results.words import day

    file = _roster_in(what)
    roster = Roster.read(files.read(file), str(file))
    say(f"consortium {roster.consortium}, roster {roster.version}, of {day(roster.issued)}")
    say(f"authority: {roster.fingerprint}")
    today = now()
    for site in roster.sites:
        say("")
        if site.left is not None:
            how = "revoked" if site.left.revoked else f"left, at round {site.left.at_round}"
            say(f"{site.name}  {how}, in roster {site.left.version}")
            continue
        since = f", from round {site.joined.at_round}" if site.joined.at_round else ""
        say(f"{site.name}  {site.records} records, {site.address or 'dials out only'}{since}")
        ends, left = site.parsed.not_valid_after_utc, days_left(site.parsed, today)
        say(f"  key {key_words(site.public_key)}; certificate ends on {day(stamp(ends))} ({left} days)")
    if not roster.sites:
        say("no sites yet: gossamer pki invite SITE")
    warn(roster.warnings(today))


def _roster_in(what: Path | None) -> Path:
    if what is not None and not what.is_dir():
        return what
    folder = Path() if what is None else what
    rosters = sorted(folder.glob("*.roster")) or sorted(folder.glob("*/*.roster"))
    if len(rosters) != 1:
        raise UserError(f"{folder} has {len(rosters)} rosters; name the file of one.")
    return rosters[0]


@study_app.command("pack")
def study_pack(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or a TOML file.")],
    overrides: Set = None,
    deadline: Annotated[float, typer.Option(help="Seconds that a round waits for a neighbour.")] = 30.0,
    late: Annotated[int, typer.Option(help="Rounds after which a late message counts no longer.")] = 4,
    tick: Annotated[
        float, typer.Option(help="Messages leave at multiples of so many seconds: a lot's time stays hidden.")
    ] = 0.25,
    out: Annotated[
        Path | None, typer.Option(help="The file to make (default: NAME-1.study in the folder).")
    ] = None,
    for_science: Annotated[
        bool,
        typer.Option("--for-science", help="Also noise that protects nobody, on records that need none."),
    ] = False,
    folder: Folder = None,
    data_dir: DataDir = None,
) -> None:
    """Sign a recipe for the sites there are. Nodes and records are the newest roster's; trains nothing."""
    from gossamer.config.layers import parse_overrides
    from gossamer.consortium.coordinator import Coordinator
    from gossamer.consortium.formats import now
    from gossamer.consortium.packing import pack

    study, path, plan = pack(
        Coordinator.find(folder),
        recipe,
        parse_overrides(overrides or []),
        deadline=deadline,
        late=late,
        tick=tick,
        for_science=for_science,
        data_dir=data_dir,
        out=out,
    )
    _describe(study)
    figures = plan.privacy.figures()
    if figures["epsilon_proven"] is not None and not plan.seeded:
        say(
            f"planned: proven ε ≤ {figures['epsilon_proven']:.3g} at every site (δ = {figures['delta']:g}, "
            f"{figures['adjacency']}, unit: {plan.privacy.unit}; observer: {plan.privacy.observer.description})"
        )
    say(f"study: {path}; send it to all sites, with the test rows if it has some")
    warn(study.roster.warnings(now()))


@study_app.command("show")
def study_show(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A file that `study pack` wrote.")],
    authority: Annotated[
        str | None, typer.Option(metavar="HEX", help="It must be signed under this authority.")
    ] = None,
    recipe: Annotated[bool, typer.Option("--recipe", help="Print the whole recipe as TOML instead.")] = False,
) -> None:
    """Describe a study, after its signatures are checked."""
    from gossamer.consortium.study import Study

    verified = Study.read(study, authority)
    if recipe:
        typer.echo(verified.body.recipe, nl=False)
        return
    _describe(verified)
    if authority is None:
        say(
            f"whose consortium this is must be known from elsewhere; compare --authority {verified.roster.fingerprint}"
        )


def _describe(study: Any) -> None:
    from gossamer.results.words import day

    config, terms, body = study.config, study.terms, study.body
    say(f"study {study.name}, version {study.version}, of {day(body.issued)}: {study.identity[:16]}")
    say(f"consortium {study.roster.consortium}, roster {study.roster.version}: {', '.join(study.sites)}")
    epsilon = config.privacy.epsilon
    goal = (
        f"ε ≤ {epsilon if isinstance(epsilon, list) else f'{epsilon:g}'}"
        if epsilon is not None
        else "a noise multiplier"
    )
    delta, unit = config.privacy.delta, config.privacy.protects.words()
    guarantee = (
        f"δ = {delta if isinstance(delta, list) else f'{delta:g}'}, {config.privacy.adjacency}, unit: {unit}"
    )
    say(f"{config.algorithm.kind}, {config.rounds} rounds, target: {goal} ({guarantee}; observer: everyone)")
    say(f"model {config.model.kind}, {body.model.parameters} parameters, begins as {body.model.digest[:16]}")
    rows = (
        f"{body.test.rows} public rows in {body.test.file}, {body.test.digest[:16]}" if body.test else "none"
    )
    say(f"test rows: {rows}")
    say(
        f"a round waits {terms.deadline:g} s; messages leave every {terms.tick:g} s and count for {terms.late} rounds"
    )
    if terms.for_science:
        say("FOR SCIENCE: its noise may protect nobody; use it on records that need no privacy")
