"""The folder of one site: site.toml, its key, which is made here and never leaves, and the roster it accepted.

mercy/site.toml           what the operator fills in; nobody else sees it
mercy/site.key            private, its owner's alone
mercy/mercy.request       to send back for the invite
mercy/consortium.roster   the roster that was accepted last, with the site's certificate
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field, PrivateAttr

from gossamer.config.recipes import read_toml
from gossamer.consortium import authority as pki
from gossamer.consortium import files
from gossamer.consortium.authority import Invite
from gossamer.consortium.files import NONE, Digest, Listen, Name, Records, Strict, check_field, now
from gossamer.consortium.roster import Roster, check_successor, differences
from gossamer.errors import UserError
from gossamer.options.types import AccountName, Epsilon
from gossamer.results.signatures import private_pem, read_private_key

FILE, KEY, ROSTER = "site.toml", "site.key", "consortium.roster"


_Path = Annotated[str, Field(pattern=r"^[^\x00]+$")]


class Site(Strict):
    """The keys of site.toml; paths are relative to it."""

    consortium: Name
    site: Name = Field(description="the name in its certificate")
    authority: Digest = Field(description="fingerprint of the authority whose signatures count")
    data: _Path = Field(description="the records: CSV, Parquet or npz, as the study says")
    test: _Path | None = Field(default=None, description="the study's public test rows, if it has some")
    cap: Epsilon = Field(description="most proven ε of all studies on these records together")
    account: AccountName | None = Field(default=None, description="name of the account of its people")
    accounts: _Path | None = Field(default=None, description="folder of the accounts, if not the user's own")
    public: bool = Field(default=False, description="are the records public? then no cap holds")
    listen: Listen = Field(default=NONE, description="host:port here, or none")
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
            raise UserError(f"{self._path}: data = {self.data!r} is not a file.")
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
    clock: Callable[[], datetime] = now,
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
    path: Path,
    content: bytes,
    where: str,
    agree: Callable[[Sequence[str]], bool],
    clock: Callable[[], datetime] = now,
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
