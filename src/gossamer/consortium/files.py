"""Files of a consortium: field types, signed files, and reading and writing without loose ends.

    gossamer roster 1
    { … }
    signature 3b5f…

The signature is over the very bytes above it, so there is one way to write what was signed; the first line is among
them, so that a signature over a roster is one over nothing else.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError

from gossamer.accounting.chain import no_name_twice
from gossamer.errors import UserError, short
from gossamer.options.sentences import user_error
from gossamer.results.rundir import lock_file, read_bytes, write_atomically
from gossamer.results.signatures import has_small_order

FORMAT = 1
LARGEST = 16 << 20  # bytes: a roster of a thousand sites has two million
MAX_RECORDS = 10**12
NONE = "none"  # the address of a site that only dials out
# A name is a folder, a host name in a certificate and a word in a message: these characters suit all three.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_SIGNATURE = re.compile(rb"signature ((?:[0-9a-f]{2})+)\n")

# Fields


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def stamp(at: datetime) -> str:
    """2026-03-09T10:20:30Z"""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_stamp(text: str) -> datetime:
    """Read a date that `stamp` wrote; ValueError for any other way to write one."""
    at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    if stamp(at) != text:
        raise ValueError(f"{text!r} is not a date")
    return at


def is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        return False
    if host.startswith("[") and host.endswith("]"):
        return _is_ip(host[1:-1], 6)
    # Digits and dots alone are an IP address or a mistake, never a host name.
    return _is_ip(host, 4) if re.fullmatch(r"[0-9.]+", host) else bool(_HOST.fullmatch(host))


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version and "%" not in host
    except ValueError:
        return False


def bind_address(address: str | None) -> str:
    """Return where a site listens that others find at `address`: there if it is a number, else everywhere."""
    if address is None:
        return NONE
    host, _, port = address.rpartition(":")
    return address if host.startswith("[") or _is_ip(host, 4) else f"0.0.0.0:{port}"


def _valid(check: Callable[[str], object], rule: str) -> AfterValidator:
    def validate(text: str) -> str:
        try:
            valid = check(text)
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"it must be {rule}")
        return text

    return AfterValidator(validate)


_ADDRESS = "host:port, for example mercy.example.org:7443"
Name = Annotated[str, _valid(_NAME.fullmatch, "at most 40 small letters, digits and hyphens between them")]
Address = Annotated[str, _valid(is_address, _ADDRESS)]
_OR_NONE = f"{_ADDRESS}, or {NONE} to dial out only"
Listen = Annotated[str, _valid(lambda text: text == NONE or is_address(text), _OR_NONE)]
Stamp = Annotated[str, _valid(read_stamp, "a date such as 2026-03-09T10:20:30Z")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Records = Annotated[int, Field(ge=1, le=MAX_RECORDS)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], tables: Mapping[str, Any], where: str) -> Model:
    """Validate the content of a file; a UserError begins with `where`."""
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        raise user_error(error, dict(tables), model=model, where=where) from None


def check_field(kind: Any, key: str, value: Any) -> None:
    """Validate an argument of a command by the type that it has in a file."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"{key} {short(value)} does not fit: {rule}.") from None


# Signed files


class SignedFile(NamedTuple):
    """A signed file that was read; `check` tells whether the authority signed it."""

    where: str  # the file, for messages
    content: bytes
    body: dict[str, Any]
    signed: bytes
    signature: bytes

    def check(self, key: Ed25519PublicKey) -> None:
        try:
            valid = not has_small_order(key.public_bytes_raw())
            key.verify(self.signature, self.signed)
        except InvalidSignature:
            valid = False
        if not valid:
            raise UserError(f"{self.where} is not what the consortium's authority signed; get it again.")


def write_signed(kind: str, body: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    signed = f"gossamer {kind} {FORMAT}\n{json.dumps(body, indent=1, ensure_ascii=True)}\n".encode()
    return signed + f"signature {sign(signed).hex()}\n".encode()


def read_signed(kind: str, content: bytes, where: str) -> SignedFile:
    """Read a file that claims to be a `kind`; the signature is not checked yet."""
    first = f"gossamer {kind} {FORMAT}\n".encode()
    if not content.startswith(first):
        raise UserError(f"{where} is no {kind}: its first line is not 'gossamer {kind} {FORMAT}'.")
    end = content.rfind(b"\n", 0, -1) + 1
    signature = _SIGNATURE.fullmatch(content[end:])
    try:
        body = json.loads(content[len(first) : end].decode("ascii"), object_pairs_hook=no_name_twice)
    except (ValueError, RecursionError):
        body = None
    if signature is None or not isinstance(body, dict):
        raise UserError(f"{where} is damaged: it is not a JSON object and a signature; get it again.")
    return SignedFile(where, content, body, content[:end], bytes.fromhex(signature[1].decode()))


class SignedModel(Strict):
    """The content of a signed file."""

    _file: SignedFile = PrivateAttr()

    @classmethod
    def open(cls, kind: str, content: bytes, where: str) -> Self:
        """Read and validate it; the signature is not checked yet."""
        file = read_signed(kind, content, where)
        model = parse(cls, file.body, f"{where} is damaged")
        model._file = file
        return model

    @property
    def content(self) -> bytes:
        return self._file.content

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


# Reading and writing


def read(path: Path) -> bytes:
    content = read_bytes(path, LARGEST + 1)
    if len(content) > LARGEST:
        raise UserError(f"{path} has more than {LARGEST >> 20} MB; it is not a file of a consortium.")
    return content


def write(path: Path, content: bytes, mode: int = 0o644, *, new: bool = False) -> None:
    """Write a file, all or nothing; a `new` one must not exist yet. A UserError says what is wrong."""
    try:
        write_atomically(path, content, mode, new=new)
    except FileExistsError:
        raise UserError(f"{path} exists and is not overwritten; name another place.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def make_folder(path: Path) -> None:
    """Make a folder that only its owner may read: it will hold a key."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise UserError(f"{path} exists; name another place with --dir, or remove it.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be created: {error.strerror}.") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Run one command at a time by a lock on this file: two at once would make two rosters of one version."""
    lock = lock_file(path, f"another command is at work in {path.parent}; try again when it has ended.")
    try:
        yield
    finally:
        lock.release()


def only_folder_with(name: str, option: str, what: str, given: Path | None) -> Path:
    """Return the folder that was given, or else this one or the only one in it that holds a file `name`."""
    if given is not None:
        folder = given.parent if given.name == name else given
        if not (folder / name).exists():
            raise UserError(f"{option} {given} is no {what}: it has no {name}.")
        return folder
    folders = [Path()] if Path(name).exists() else sorted(path.parent for path in Path().glob(f"*/{name}"))
    if len(folders) != 1:
        several = f": there are {', '.join(map(str, folders[:5]))}" if folders else " and none is here"
        raise UserError(f"no {what} is named{several}; name its folder with {option}.")
    return folders[0]
