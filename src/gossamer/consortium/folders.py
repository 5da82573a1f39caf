"""The folders of a consortium: that of its operator, and that of each site.

north/authority.key       private, the operator's alone
north/north.roster        the newest version, signed: what all sites get
north/mercy.invite        an open invite, private
north/*.study             the studies that were packed

mercy/site.toml           what the site's operator fills in; it stays there
mercy/site.key            private, made here; it never leaves
mercy/mercy.request       to send back for the invite
mercy/consortium.roster   the roster that was accepted last, with the site's certificate
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, PrivateAttr

from gossamer.config.recipes import read_toml
from gossamer.consortium import authority as pki
from gossamer.consortium import files
from gossamer.consortium.authority import Authority, Invite
from gossamer.consortium.files import NONE, Digest, Listen, Name, Records, Strict, check_field, now, stamp
from gossamer.consortium.roster import (
    Joined,
    Left,
    Member,
    Roster,
    Round,
    check_successor,
    differences,
    sign_roster,
)
from gossamer.errors import UserError
from gossamer.options.types import AccountName, Epsilon
from gossamer.results.rundir import read_private
from gossamer.results.signatures import private_pem, read_private_key

AUTHORITY_KEY = "authority.key"
INVITE_DAYS = 7

Clock = Callable[[], datetime]


class Coordinator:
    """The holder of the authority's key. Every change is one new version of the roster, written at once or not."""

    def __init__(self, folder: Path, clock: Clock = now):
        self.folder, self._clock = folder, clock
        self._key: Ed25519PrivateKey = read_private_key(folder / AUTHORITY_KEY, Ed25519PrivateKey)
        self.roster()

    @classmethod
    def init(cls, name: str, folder: Path | None = None, clock: Clock = now) -> Coordinator:
        check_field(Name, "the consortium's name", name)
        folder = Path(name) if folder is None else folder
        authority = pki.make_authority(name, clock())
        roster = sign_roster(authority, name, [], clock())
        files.make_folder(folder)
        files.write(folder / AUTHORITY_KEY, private_pem(authority.key), 0o600, new=True)
        files.write(folder / f"{name}.roster", roster.content, new=True)
        return cls(folder, clock)

    @classmethod
    def find(cls, folder: Path | None, clock: Clock = now) -> Coordinator:
        """Open the folder that was named, this one, or the only one here."""
        return cls(files.only_folder_with(AUTHORITY_KEY, "--dir", "consortium's folder", folder), clock)

    @property
    def roster_file(self) -> Path:
        rosters = sorted(self.folder.glob("*.roster"))
        if len(rosters) != 1:
            raise UserError(f"{self.folder} must hold one file *.roster, and has {len(rosters)}; restore it.")
        return rosters[0]

    def roster(self) -> Roster:
        path = self.roster_file
        roster = Roster.read(files.read(path), str(path))
        if roster.public_key != self._key.public_key():
            raise UserError(f"{self.folder / AUTHORITY_KEY} is not the key that signed {path}; restore both.")
        return roster

    @property
    def authority(self) -> Authority:
        return Authority(self._key, self.roster().signer)

    def invite(self, site: str, days: float = INVITE_DAYS) -> Invite:
        """Make a new invite; an open one of the same site is good no longer."""
        check_field(Name, "the site's name", site)
        if not 0 < days <= 90:
            raise UserError(f"--days {days:g} must be more than 0 and at most 90.")
        with files.locked(self.folder / AUTHORITY_KEY):
            roster, ends = self.roster(), stamp(self._clock() + timedelta(days=days))
            name, mark = roster.consortium, roster.fingerprint
            invite = Invite(consortium=name, site=site, authority=mark, expires=ends)
            files.write(self._invite_file(site), f"{invite.text()}\n".encode(), 0o600)
        return invite

    def approve(self, site: str, request: bytes, where: str, at_round: int = 0) -> tuple[Roster, str]:
        """Return the roster with the site in it, and a mark of its key to compare with what the site sees."""
        check_field(Name, "the site's name", site)
        check_field(Round, "--at-round", at_round)
        with files.locked(self.folder / AUTHORITY_KEY):
            roster = self.roster()
            requested = pki.read_request(request, self._open_invite(site), where)
            key = requested.key()
            if any(member.public_key == key for member in roster.sites):
                raise UserError(f"{where} asks for a key that another site has; join again.")
            old = next((member for member in roster.sites if member.name == site), None)
            # A site that lost its key keeps its node; one that had left joins again.
            joined = old.joined if old and not old.left else None
            member = Member(
                name=site,
                certificate=self._certificate(roster, site, key),
                address=requested.address,
                records=requested.records,
                joined=joined or Joined(version=roster.version + 1, at_round=at_round),
            )
            published = self._publish(roster, {site: member})
            self._invite_file(site).unlink(missing_ok=True)  # good once
        return published, pki.key_words(key)

    def revoke(self, site: str, at_round: int = 0) -> Roster:
        """Remove a site at once, whose key is lost or who broke the rules; the others continue without it."""
        return self._remove(site, at_round, revoked=True)

    def leave(self, site: str, at_round: int) -> Roster:
        """Remove a site as agreed: it takes part until the round."""
        return self._remove(site, at_round, revoked=False)

    def renew(self, names: Sequence[str] = ()) -> tuple[Roster, list[str]]:
        """Make new certificates for the same keys: of these sites, or of all that end within 14 days."""
        with files.locked(self.folder / AUTHORITY_KEY):
            roster, today = self.roster(), self._clock()
            active = {site.name: site for site in roster.sites if site.left is None}
            for name in names:
                if roster.site(name).name not in active:
                    raise UserError(f"{name} has left; `gossamer pki invite {name}` lets it in again.")
            left = {name: pki.days_left(site.parsed, today) for name, site in active.items()}
            due = sorted(set(names)) or [name for name in active if left[name] < pki.WARN_DAYS]
            if not due:
                return roster, []
            changed = {}
            for name in due:
                certificate = self._certificate(roster, name, active[name].public_key)
                changed[name] = active[name].model_copy(update={"certificate": certificate})
            return self._publish(roster, changed), due

    def _certificate(self, roster: Roster, site: str, key: EllipticCurvePublicKey) -> str:
        return pki.pem(pki.issue(self.authority, roster.consortium, site, key, self._clock()))

    def _remove(self, name: str, at_round: int, *, revoked: bool) -> Roster:
        check_field(Round, "--at-round", at_round)
        with files.locked(self.folder / AUTHORITY_KEY):
            roster = self.roster()
            site = roster.site(name)
            if site.left is not None and (site.left.revoked or not revoked):
                raise UserError(f"{name} has left already, in roster {site.left.version}.")
            left = Left(version=roster.version + 1, at_round=at_round, revoked=revoked)
            if site.left is not None and not at_round:
                # Its links go down, and it is out when it would have been.
                left = site.left.model_copy(update={"revoked": True})
            published = self._publish(roster, {name: site.model_copy(update={"left": left})})
            self._invite_file(name).unlink(missing_ok=True)
        return published

    def _publish(self, last: Roster, changed: Mapping[str, Member]) -> Roster:
        """Write the next version, in which these sites are new or changed."""
        members = {**{site.name: site for site in last.sites}, **changed}
        roster = sign_roster(self.authority, last.consortium, list(members.values()), self._clock(), last)
        files.write(self.roster_file, roster.content)
        return roster

    def _open_invite(self, site: str) -> Invite:
        path = self._invite_file(site)
        if not path.exists():
            raise UserError(f"no invite of {site!r} is open; `gossamer pki invite {site}` makes one.")
        invite = Invite.read(read_private(path).decode(errors="replace"))
        if invite.site != site:
            raise UserError(f"{path} is an invite of {invite.site}, not of {site}; invite {site} again.")
        invite.check_expiry(self._clock())
        return invite

    def _invite_file(self, site: str) -> Path:
        return self.folder / f"{site}.invite"


FILE, KEY, ROSTER = "site.toml", "site.key", "consortium.roster"


_Path = Annotated[str, Field(pattern=r"^[^\x00]+$")]


class Site(Strict):
    """The keys of site.toml; paths are relative to it."""

    consortium: Name
    site: Annotated[Name, "the name in its certificate"]
    authority: Annotated[Digest, "fingerprint of the authority whose signatures count"]
    data: Annotated[_Path, "the records: CSV, Parquet or npz, as the study says"]
    test: Annotated[_Path | None, "the study's public test rows, if it has some"] = None
    cap: Annotated[Epsilon, "most proven ε of all studies on these records together"]
    account: Annotated[AccountName | None, "name of the account of its people"] = None
    accounts: Annotated[_Path | None, "folder of the accounts, if not the user's own"] = None
    public: Annotated[bool, "are the records public? then no cap holds"] = False
    listen: Annotated[Listen, "host:port here, or none"] = NONE
    _path: Path = PrivateAttr()

    @classmethod
    def read(cls, path: Path, **defaults: Any) -> Site:
        path = path / FILE if path.is_dir() else path
        site = files.parse(cls, {**defaults, **read_toml(path)}, str(path))
        site._path = path
        return site

    @property
    def path(self) -> Path:
        return self._path

    @property
    def name(self) -> str:
        return self.site

    def file(self, name: str) -> Path:
        """Return the path of a file next to site.toml, or where the operator says it is."""
        return self._path.parent / Path(name).expanduser()

    @property
    def listener(self) -> str | None:
        return None if self.listen == NONE else self.listen

    def data_file(self) -> Path:
        if not self.file(self.data).is_file():
            raise UserError(f"{self._path}: data = {self.data!r} is not a file; name one.")
        return self.file(self.data)

    def key(self) -> ec.EllipticCurvePrivateKey:
        key: ec.EllipticCurvePrivateKey = read_private_key(self.file(KEY), ec.EllipticCurvePrivateKey)
        return key

    def roster(self) -> Roster:
        """Read the roster that the operator accepted last."""
        path = self.file(ROSTER)
        if not path.exists():
            raise UserError(f"{path} is missing; run `gossamer pki accept FILE` with the roster you got.")
        return self.read_roster(files.read(path), str(path))

    def read_roster(self, content: bytes, where: str) -> Roster:
        roster = Roster.read(content, where, self.authority)
        if roster.consortium != self.consortium:
            raise UserError(f"{where} is of {roster.consortium!r}, and {self._path} of {self.consortium!r}.")
        return roster

    def check(self, now: datetime) -> list[str]:
        """Refuse a site that cannot take part, as far as its own files tell; return warnings."""
        entry = self.roster().site(self.name)
        if entry.public_key != self.key().public_key():
            raise UserError(f"{self.file(KEY)} is not the key of {self.name} in the roster; restore it.")
        warning = pki.expiry_warning(self.name, entry.parsed, now)
        if warning is not None and pki.days_left(entry.parsed, now) < 0:
            raise UserError(warning)
        self.data_file()
        return [warning] if warning else []


def join(
    invite: Invite,
    *,
    listen: str = NONE,
    records: int,
    folder: Path | None = None,
    data: str | None = None,
    cap: float | None = None,
    clock: Clock = now,
) -> tuple[Path, str]:
    """Make the site's folder; return the request to send back, and a mark of the key to compare."""
    invite.check_expiry(clock())
    check_field(Listen, "--listen", listen)
    check_field(Records, "--records", records)
    address = None if listen == NONE else listen
    folder = Path(invite.site) if folder is None else folder
    key, request = pki.make_site_key(), folder / f"{invite.site}.request"
    content = pki.write_request(invite, key, address=address, records=records)
    files.make_folder(folder)
    files.write(folder / KEY, private_pem(key), 0o600, new=True)
    files.write(folder / FILE, _site_toml(invite, address, data, cap).encode(), new=True)
    files.write(request, content, new=True)
    return request, pki.key_words(key.public_key())


def _site_toml(invite: Invite, address: str | None, data: str | None, cap: float | None) -> str:
    return f"""\
# Site {invite.site} of the consortium {invite.consortium}. It stays here; paths are relative to it.
consortium = "{invite.consortium}"
site = "{invite.site}"
authority = "{invite.authority}"  # whose signatures count

{_line("data", data and str(Path(data).absolute()), "records.csv")}  # the records; they never leave
{_line("cap", cap and float(cap), 8.0)}  # most proven ε of all studies on these records together
# account = "patients of {invite.site}"  # whose records they are: studies on other versions of the file count too
# accounts = "/srv/gossamer/accounts"  # the folder where that is kept; one of your own if not set
# test = "test.csv"  # the study's public test rows, if it has some

listen = "{files.bind_address(address)}"  # where this machine listens; none: it only dials out
"""


def _line(key: str, value: str | float | None, example: str | float) -> str:
    """Write a setting, or a comment to fill in. JSON's way to write text is TOML's too."""
    return f"# {key} = {json.dumps(example)}" if value is None else f"{key} = {json.dumps(value)}"


def accept(
    path: Path, content: bytes, where: str, agree: Callable[[Sequence[str]], bool], clock: Clock = now
) -> tuple[Roster, list[str]]:
    """Make a roster the site's own, if it follows from the present one and the operator agrees; with warnings."""
    site = Site.read(path, data="(not set)", cap=1.0)  # the operator may not have filled them in yet
    offered = site.read_roster(content, where)
    with files.locked(path):
        present = site.roster() if site.file(ROSTER).exists() else None
        is_new = present is None or check_successor(present, offered)
        entry = next((member for member in offered.sites if member.name == site.name), None)
        if present is None and entry is None:
            raise UserError(f"{where} does not have {site.name} yet; ask for the next version.")
        if entry and entry.left is None and entry.public_key != site.key().public_key():
            what = f"{where} has another key of {site.name} than {site.file(KEY)}"
            raise UserError(f"{what}: somebody else answered the invite; tell the operator at once.")
        if is_new and not agree(differences(present, offered)):
            remains = f"roster {present.version} remains" if present else "there is none yet"
            raise UserError(f"roster {offered.version} was not accepted; {remains}.")
        files.write(site.file(ROSTER), offered.content)
    return offered, offered.warnings(clock())
