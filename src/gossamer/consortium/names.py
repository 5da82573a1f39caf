"""What sites and consortia may be called, where they listen, and how dates are written."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime

from gossamer.errors import UserError, short

# A name is a folder, a host name in a certificate and a word in a sentence: what all three take.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
NONE = "none"


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text))


def check_name(what: str, text: str) -> str:
    if not is_name(text):
        raise UserError(
            f"{what} {short(text)} must be at most 40 small letters, digits and hyphens between them, for example "
            "mercy-hospital."
        )
    return text


def check_address(key: str, text: str | None) -> str | None:
    """`host:port` as it is; None for "none": such a site dials out and never listens."""
    if text is None or text == NONE:
        return None
    if not is_address(text):
        raise UserError(
            f"{key} {short(text)} must be host:port, for example mercy.example.org:7443, or {NONE} for a site that "
            "only dials out."
        )
    return text


def is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        return False
    if host.startswith("[") and host.endswith("]"):
        return _is_ip(host[1:-1], 6)
    # Whatever consists of digits and dots alone is an address or a mistake, never a name.
    return _is_ip(host, 4) if re.fullmatch(r"[0-9.]+", host) else bool(_HOST.fullmatch(host))


def bind_address(address: str | None) -> str | None:
    """Where a site listens that others find at `address`: there if it is a number, else everywhere at that port."""
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    return address if host.startswith("[") or _is_ip(host, 4) else f"0.0.0.0:{port}"


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version and "%" not in host
    except ValueError:
        return False


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def stamp(at: datetime) -> str:
    """2026-03-09T10:20:30Z"""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_stamp(text: str) -> datetime:
    """The date that `stamp` wrote; ValueError for any other way to write one."""
    found = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    if stamp(found) != text:
        raise ValueError(f"{text!r} is not a date")
    return found
