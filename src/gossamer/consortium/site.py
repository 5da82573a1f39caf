"""The folder of one site: site.toml, its key, which is made here and never leaves, and the roster it accepted.

mercy/site.toml           what the operator fills in; nobody else sees it
mercy/site.key            private, its owner's alone
mercy/mercy.request       to send back for the invite
mercy/site.crt            its certificate, once a roster has it
mercy/authority.crt       the authority it trusts
mercy/consortium.roster   the roster that was accepted last
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import AfterValidator, Field

from gossamer.consortium import files
from gossamer.consortium.authority import (
    days_left,
    expiry_warning,
    key_words,
    make_site_key,
    pem,
    private_pem,
    public_bytes,
    read_site_key,
)
from gossamer.consortium.formats import (
    MAX_RECORDS,
    NONE,
    Digest,
    Name,
    Strict,
    bind_address,
    check_address,
    is_address,
    now,
    parse,
)
from gossamer.consortium.invite import Invite, write_request
from gossamer.consortium.roster import Roster, check_successor, differences
from gossamer.errors import UserError
from gossamer.options.toml import read_toml
from gossamer.options.types import Epsilon

FILE, AUTHORITY = "site.toml", "authority.crt"


def _listen(text: str) -> str:
    if text != NONE and not is_address(text):
        raise ValueError(
            f"it must be host:port, for example 0.0.0.0:7443, or {NONE} for a site that only dials out"
        )
    return text


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("it must be the path of a file")
    return text


_Path = Annotated[str, AfterValidator(_path)]


class Settings(Strict):
    """The keys of site.toml; paths are relative to it."""

    consortium: Name
    site: Name = Field(description="the name in its certificate")
    authority: Digest = Field(description="fingerprint of the authority whose signatures count")
    data: _Path = Field(description="the records: CSV, Parquet or npz, as the study says")
    test: _Path | None = Field(default=None, description="the study's public test rows, if it has some")
    cap: Epsilon = Field(description="most proven ε of all studies on these records together")
    public: bool = Field(
        default=False, description="the records are public: no cap, and studies for science may use them"
    )
    listen: Annotated[str, AfterValidator(_listen)] = Field(
        default=NONE, description="host:port here, or none"
    )
    durable: Literal["on", "off"] = Field(default="on", description="is all on disk before anything is sent?")
    key: _Path = "site.key"
    certificate: _Path = "site.crt"
    roster: _Path = "consortium.roster"


@dataclass(frozen=True)
class Site:
    """A site.toml that was read, with paths that hold in any working directory."""

    path: Path  # of site.toml
    settings: Settings

    @classmethod
    def read(cls, path: Path, **defaults: Any) -> Site:
        path = path / FILE if path.is_dir() else path
        return cls(path, parse(Settings, {**defaults, **read_toml(path)}, str(path)))

    @property
    def name(self) -> str:
        return self.settings.site

    @property
    def listen(self) -> str | None:
        return None if self.settings.listen == NONE else self.settings.listen

    @property
    def cap(self) -> float | None:
        """None: the operator declared the records public."""
        return None if self.settings.public else self.settings.cap

    @property
    def data(self) -> Path:
        return self._file(self.settings.data)

    @property
    def test(self) -> Path | None:
        return None if self.settings.test is None else self._file(self.settings.test)

    @property
    def key_file(self) -> Path:
        return self._file(self.settings.key)

    @property
    def certificate_file(self) -> Path:
        return self._file(self.settings.certificate)

    @property
    def roster_file(self) -> Path:
        return self._file(self.settings.roster)

    def _file(self, name: str) -> Path:
        return self.path.parent / Path(name).expanduser()

    def key(self) -> ec.EllipticCurvePrivateKey:
        return read_site_key(files.read_private(self.key_file), str(self.key_file))

    def roster(self) -> Roster:
        """Read the roster that the operator accepted last."""
        if not self.roster_file.exists():
            raise UserError(
                f"{self.roster_file} is missing: {self.name} has accepted no roster yet; run `gossamer pki accept "
                "FILE` with the roster that the consortium sent."
            )
        roster = Roster.read(files.read(self.roster_file), str(self.roster_file), self.settings.authority)
        self._check_consortium(roster, str(self.roster_file))
        return roster

    def _check_consortium(self, roster: Roster, where: str) -> None:
        if roster.consortium != self.settings.consortium:
            raise UserError(
                f"{self.path}: consortium = {self.settings.consortium!r}, but {where} is a roster of "
                f"{roster.consortium!r}."
            )

    def check(self, now: datetime) -> list[str]:
        """Refuse a site that cannot take part, as far as its own files tell; return warnings."""
        key, entry = self.key(), self.roster().site(self.name)
        if public_bytes(entry.public_key) != public_bytes(key):
            raise UserError(
                f"{self.key_file} is not the key that the roster has of {self.name}; restore it, or join again with a "
                "new invite."
            )
        if files.read(self.certificate_file) != entry.certificate.encode():
            raise UserError(
                f"{self.certificate_file} is not the certificate that the roster has of {self.name}; "
                f"`gossamer pki accept {self.roster_file}` restores it."
            )
        warning = expiry_warning(self.name, entry.parsed, now)
        if warning is not None and days_left(entry.parsed, now) < 0:
            raise UserError(warning)
        if not self.data.is_file():
            raise UserError(f"{self.path}: data = {self.settings.data!r} is not a file.")
        return [warning] if warning else []


def join(
    invite: Invite,
    *,
    listen: str | None,
    records: int,
    folder: Path | None = None,
    data: str | None = None,
    cap: float | None = None,
    clock: Callable[[], datetime] = now,
) -> tuple[Path, str]:
    """Make the site's folder; return the request to send back, and a mark of the key to compare."""
    invite.refuse_expired(clock())
    address = check_address("--listen", listen)
    if not 1 <= records <= MAX_RECORDS:
        raise UserError(
            f"--records {records} must be a number of records: a public one, rounded as you like."
        )
    folder = Path(invite.site) if folder is None else folder
    key = make_site_key()
    request = write_request(invite, key, address, records)
    files.make_folder(folder)
    files.write_new(folder / "site.key", private_pem(key), 0o600)
    files.write_new(folder / FILE, _site_toml(invite, address, data, cap).encode())
    files.write_new(folder / f"{invite.site}.request", request)
    return folder / f"{invite.site}.request", key_words(key.public_key())


def _site_toml(invite: Invite, address: str | None, data: str | None, cap: float | None) -> str:
    return f"""\
# Site {invite.site} of the consortium {invite.consortium}. It stays here; paths are relative to it.
consortium = "{invite.consortium}"
site = "{invite.site}"
authority = "{invite.authority}"  # whose signatures count

{_line("data", data and str(Path(data).absolute()), "records.csv")}  # the records; they never leave
{_line("cap", cap and float(cap), 8.0)}  # most proven ε of all studies on these records together
# test = "test.csv"  # the study's public test rows, if it has some

listen = "{bind_address(address)}"  # where this machine listens; none: it only dials out
durable = "on"  # all is on disk before anything is sent; off is quicker, and a crash costs the last rounds
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
    offered = Roster.read(content, where, site.settings.authority)
    site._check_consortium(offered, where)
    with files.locked(path.parent):
        present = site.roster() if site.roster_file.exists() else None
        is_new = present is None or check_successor(present, offered)
        entry = next((member for member in offered.sites if member.name == site.name), None)
        if present is None and entry is None:
            raise UserError(
                f"{where} (version {offered.version}) does not have {site.name} yet; send its request, then ask for "
                "the next version."
            )
        if entry and entry.left is None and public_bytes(entry.public_key) != public_bytes(site.key()):
            raise UserError(
                f"{where} has another key of {site.name} than {site.key_file}: somebody else answered the invite; tell "
                "the consortium's operator at once."
            )
        if is_new and not agree(differences(present, offered)):
            remains = f"roster {present.version} remains" if present else "there is none yet"
            raise UserError(f"roster {offered.version} was not accepted; {remains}.")
        if entry is not None:
            files.write(site.certificate_file, entry.certificate.encode())
        files.write(path.parent / AUTHORITY, pem(offered.authority).encode())
        files.write(site.roster_file, offered.content)  # last: it is in force from here on
    return offered, offered.warnings(clock())
