"""site.toml: what one site knows of itself, and nobody else is told: its file, its key, its own cap on ε."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gossamer.consortium import files
from gossamer.consortium.authority import days_left, expiry_warning, public_bytes, read_site_key
from gossamer.consortium.names import NONE, is_address, is_name
from gossamer.consortium.roster import Roster
from gossamer.errors import UserError
from gossamer.options.sentences import user_error
from gossamer.options.toml import read_toml
from gossamer.options.types import Epsilon

FILE = "site.toml"


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("it must be small letters, digits and hyphens between them")
    return text


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


class SiteFile(BaseModel):
    """The keys of site.toml; paths are relative to it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    consortium: Annotated[str, AfterValidator(_name)]
    site: Annotated[str, AfterValidator(_name)] = Field(description="the name in its certificate")
    authority: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(description="whose signatures count")
    data: _Path = Field(description="the records: CSV, Parquet or npz, as the study says")
    test: _Path | None = Field(default=None, description="the study's public test rows, if it has some")
    cap: Epsilon = Field(description="most proven ε of all studies on these records together")
    public: bool = Field(
        default=False,
        description="anybody may know these records: no cap, and studies for science may use them",
    )
    listen: Annotated[str, AfterValidator(_listen)] = Field(
        default=NONE, description="host:port here, or none"
    )
    rosters: Literal["auto", "ask"] = Field(default="ask", description="who agrees to a new roster")
    durable: Literal["on", "off"] = Field(default="on", description="is all on disk before anything is sent?")
    key: _Path = "site.key"
    certificate: _Path = "site.crt"
    roster: _Path = "consortium.roster"


@dataclass(frozen=True)
class Site:
    """A site.toml that was read, with paths that hold wherever the command is run."""

    path: Path  # of site.toml
    asked: SiteFile

    @classmethod
    def read(cls, path: Path) -> Site:
        path = path / FILE if path.is_dir() else path
        return cls._checked(path, read_toml(path))

    @classmethod
    def begun(cls, path: Path) -> Site:
        """Of one in which the operator has not said yet where the records are and what they may cost."""
        path = path / FILE if path.is_dir() else path
        return cls._checked(path, {"data": "not said yet", "cap": 1.0, **read_toml(path)})

    @classmethod
    def _checked(cls, path: Path, tables: dict[str, Any]) -> Site:
        try:
            return cls(path, SiteFile.model_validate(tables))
        except ValidationError as error:
            raise UserError(f"{path}: {user_error(error, tables, model=SiteFile)}") from None

    @property
    def name(self) -> str:
        return self.asked.site

    @property
    def listen(self) -> str | None:
        return None if self.asked.listen == NONE else self.asked.listen

    @property
    def cap(self) -> float | None:
        """None: whoever answers for the records has said that they need no protection."""
        return None if self.asked.public else self.asked.cap

    @property
    def data(self) -> Path:
        return self._file("data")

    @property
    def test(self) -> Path | None:
        return None if self.asked.test is None else self._file("test")

    @property
    def key_file(self) -> Path:
        return self._file("key")

    @property
    def certificate_file(self) -> Path:
        return self._file("certificate")

    @property
    def roster_file(self) -> Path:
        return self._file("roster")

    def _file(self, key: str) -> Path:
        return self.path.parent / Path(getattr(self.asked, key)).expanduser()

    def key(self) -> ec.EllipticCurvePrivateKey:
        return read_site_key(files.read_private(self.key_file), str(self.key_file))

    def roster(self) -> Roster:
        """The one that its operator accepted last."""
        if not self.roster_file.exists():
            raise UserError(
                f"{self.roster_file} is not there: {self.name} has accepted no roster yet; `gossamer pki accept FILE` "
                "does, with the roster that the consortium sent."
            )
        found = Roster.read(files.read(self.roster_file), str(self.roster_file), self.asked.authority)
        if found.consortium != self.asked.consortium:
            raise UserError(
                f"{self.path}: consortium = {self.asked.consortium!r}, but its roster is of {found.consortium!r}."
            )
        return found

    def check(self, now: datetime) -> list[str]:
        """What its operator must hear; a sentence where this site cannot take part, as far as its own files tell."""
        key, entry = self.key(), self.roster().site(self.name)
        if public_bytes(entry.public_key) != public_bytes(key):
            raise UserError(
                f"{self.key_file} is not the key that the roster has of {self.name}; put it back, or join anew with a "
                "new invite."
            )
        if files.read(self.certificate_file) != entry.certificate.encode():
            raise UserError(
                f"{self.certificate_file} is not the certificate that the roster has of {self.name}; "
                f"`gossamer pki accept {self.roster_file}` puts it back."
            )
        warning = expiry_warning(self.name, entry.parsed, now)
        if warning is not None and days_left(entry.parsed, now) < 0:
            raise UserError(warning)
        if not self.data.is_file():
            raise UserError(f"{self.path}: data = {self.asked.data!r} is not a file.")
        return [warning] if warning else []
