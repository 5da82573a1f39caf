"""Formats of a consortium's files: field types, dates, and files with a signature.

    gossamer roster 1
    { … }
    signature 3b5f…

The signature is over the very bytes above it, so there is one way to write what was signed; the first line is among
them, so that a signature over a roster is one over nothing else.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gossamer.accounting.chain import no_name_twice
from gossamer.errors import UserError, short
from gossamer.options.sentences import user_error
from gossamer.results.signatures import has_small_order

FORMAT = 1
NONE = "none"  # the address of a site that only dials out
MAX_RECORDS = 10**12
# A name is a folder, a host name in a certificate and a word in a message: these characters suit all three.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_SIGNATURE = re.compile(rb"signature ((?:[0-9a-f]{2})+)\n")


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


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text))


def is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
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


def check_name(what: str, text: str) -> str:
    if not is_name(text):
        raise UserError(
            f"{what} {short(text)} must be at most 40 small letters, digits and hyphens between them, for example "
            "mercy-hospital."
        )
    return text


def check_address(key: str, text: str | None) -> str | None:
    """Return the address, or None for "none": such a site dials out and never listens."""
    if text is None or text == NONE:
        return None
    if not is_address(text):
        raise UserError(
            f"{key} {short(text)} must be host:port, for example mercy.example.org:7443, or {NONE} for a site that "
            "only dials out."
        )
    return text


def _valid(check: Callable[[str], object], rule: str) -> AfterValidator:
    def validate(text: str) -> str:
        try:
            good = check(text)
        except ValueError:
            good = False
        if not good:
            raise ValueError(rule)
        return text

    return AfterValidator(validate)


Name = Annotated[str, _valid(is_name, "it must be small letters, digits and hyphens between them")]
Address = Annotated[str, _valid(is_address, "it must be host:port, for example 0.0.0.0:7443")]
Stamp = Annotated[str, _valid(read_stamp, "it must be a date such as 2026-03-09T10:20:30Z")]
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
        raise UserError(f"{where}: {user_error(error, dict(tables), model=model)}") from None


@dataclass(frozen=True)
class SignedFile:
    """A signed file that was read; `check` tells whether the authority signed it."""

    where: str  # the file, for messages
    body: dict[str, Any]
    signed: bytes
    signature: bytes

    def check(self, key: Ed25519PublicKey) -> None:
        try:
            good = not has_small_order(key.public_bytes_raw())
            key.verify(self.signature, self.signed)
        except InvalidSignature:
            good = False
        if not good:
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
    if signature is None:
        raise UserError(f"{where} is damaged: it does not end with a signature; get it again.")
    try:
        body = json.loads(content[len(first) : end].decode("ascii"), object_pairs_hook=no_name_twice)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UserError(f"{where} is damaged: its body is not a JSON object; get it again.")
    return SignedFile(where, body, content[:end], bytes.fromhex(signature[1].decode()))
