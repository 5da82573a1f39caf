"""Invites, which are one line of text, and the requests that sites send back for them.

An invite holds a secret that is good once and for a while. A request is authenticated with that secret (HMAC): without
the invite nobody can make one, nor change one on its way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field, ValidationError

from gossamer.consortium.authority import requested_key, signing_request
from gossamer.consortium.formats import (
    Address,
    Digest,
    Name,
    Records,
    Stamp,
    Strict,
    parse,
    read_signed,
    read_stamp,
    write_signed,
)
from gossamer.errors import UserError
from gossamer.results.words import day

_PREFIX, _CHECKSUM = "gossamer-invite-1.", 8
REQUEST = "request"


class Invite(Strict):
    consortium: Name
    site: Name
    authority: Digest  # fingerprint of its certificate: all that the site will trust
    secret: Digest = Field(default_factory=lambda: secrets.token_hex(32))
    expires: Stamp

    def text(self) -> str:
        body = json.dumps(list(self.model_dump().values()), separators=(",", ":")).encode()
        return _PREFIX + _encode(body + _checksum(body))

    @classmethod
    def read(cls, text: str) -> Invite:
        """Read an invite; a UserError if it was cut or mistyped. The authority knows whether it is still good."""
        encoded = text.strip().removeprefix(_PREFIX)
        try:
            raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            body = raw[:-_CHECKSUM]
            if _PREFIX + _encode(body + _checksum(body)) == text.strip():
                return cls.model_validate(dict(zip(cls.model_fields, json.loads(body), strict=True)))
        except (ValueError, TypeError, RecursionError, binascii.Error, ValidationError):
            pass
        raise UserError(
            f"this is no invite ({text.strip()[:24]!r}…): a character is missing or changed; copy the whole line that "
            "`gossamer pki invite` printed."
        )

    def refuse_expired(self, now: datetime) -> None:
        if now >= read_stamp(self.expires):
            raise UserError(
                f"the invite of {self.site} ended on {day(self.expires)}; ask for a new one "
                f"(`gossamer pki invite {self.site}`)."
            )

    def authenticate(self, content: bytes) -> bytes:
        return hmac.digest(bytes.fromhex(self.secret), content, "sha256")


class Request(Strict):
    """A site's request for a certificate for its key, with what everyone will know of it."""

    consortium: Name
    site: Name
    address: Address | None
    records: Records
    request: str  # a certificate signing request

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        return requested_key(self.request, self.consortium, self.site)


def write_request(
    invite: Invite, key: ec.EllipticCurvePrivateKey, address: str | None, records: int
) -> bytes:
    signing = signing_request(key, invite.consortium, invite.site)
    request = Request(
        consortium=invite.consortium, site=invite.site, address=address, records=records, request=signing
    )
    return write_signed(REQUEST, request.model_dump(), invite.authenticate)


def read_request(content: bytes, invite: Invite, where: str) -> Request:
    """Read what the holder of this invite requested; a UserError for all else."""
    file = read_signed(REQUEST, content, where)
    if not hmac.compare_digest(invite.authenticate(file.signed), file.signature):
        raise UserError(
            f"{where} was not made with the open invite of {invite.site}: it is for an older invite, or was changed on "
            "its way; ask the site, and invite it again if need be."
        )
    request = parse(Request, file.body, f"{where} is damaged")
    try:
        if (request.consortium, request.site) != (invite.consortium, invite.site):
            raise ValueError("it is in another name")
        _ = request.key
    except ValueError as error:
        raise UserError(f"{where} is damaged: {error}.") from None
    return request


def _checksum(body: bytes) -> bytes:
    """Against typing errors; the request's HMAC is what an attacker cannot make."""
    return hashlib.sha256(b"gossamer invite\n" + body).digest()[:_CHECKSUM]


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
