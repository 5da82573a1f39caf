"""The way in: an invite, which is one string, and the request that a site sends back for it.

The invite holds a secret that is good once and for a while. The request carries a code over all that it says, made with
that secret: whoever has not seen the invite cannot make one, nor change one on its way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from gossamer.accounting.chain import no_name_twice
from gossamer.consortium.authority import requested_key, signing_request
from gossamer.consortium.names import is_address, is_name, read_stamp, stamp
from gossamer.errors import UserError
from gossamer.results.words import day

_MARK, _SUM = "gossamer-invite-1.", 8
_FIRST = b"gossamer request 1\n"
_LAST = re.compile(rb"code ([0-9a-f]{64})\n")
MOST_RECORDS = 10**12


@dataclass(frozen=True)
class Invite:
    consortium: str
    site: str
    authority: str  # fingerprint of its certificate: what the site will believe, and nothing else
    secret: bytes
    expires: datetime

    @classmethod
    def make(cls, consortium: str, site: str, authority: str, expires: datetime) -> Invite:
        return cls(consortium, site, authority, secrets.token_bytes(32), expires)

    def text(self) -> str:
        said = json.dumps(
            [self.consortium, self.site, self.authority, self.secret.hex(), stamp(self.expires)],
            separators=(",", ":"),
        ).encode()
        return _MARK + _encoded(said + _check_sum(said))

    @classmethod
    def read(cls, text: str) -> Invite:
        """A sentence for a string that was cut or mistyped; whether its secret is still good the authority knows."""
        wrong = UserError(
            f"this is no invite ({text.strip()[:24]!r}…): a character is missing or changed; copy the whole line that "
            "`gossamer pki invite` printed."
        )
        body = text.strip()
        if not body.startswith(_MARK) or len(body) > 1000:
            raise wrong
        try:
            raw = base64.urlsafe_b64decode((body := body.removeprefix(_MARK)) + "=" * (-len(body) % 4))
            said, check = raw[:-_SUM], raw[-_SUM:]
            if _encoded(raw) != body or check != _check_sum(said):
                raise wrong
            consortium, site, authority, secret, expires = json.loads(said)
            made = cls(consortium, site, authority, bytes.fromhex(secret), read_stamp(expires))
        except (ValueError, TypeError, binascii.Error):
            raise wrong from None
        if (
            not is_name(made.consortium)
            or not is_name(made.site)
            or not re.fullmatch("[0-9a-f]{64}", made.authority)
        ):
            raise wrong
        return made

    def refuse_expired(self, now: datetime) -> None:
        if now >= self.expires:
            raise UserError(
                f"the invite of {self.site} ended on {day(stamp(self.expires))}; ask for a new one "
                f"(`gossamer pki invite {self.site}`)."
            )


@dataclass(frozen=True)
class Request:
    """What a site asks for: a certificate for its key, and what everyone will know of it."""

    consortium: str
    site: str
    key: ec.EllipticCurvePublicKey
    address: str | None
    records: int

    @staticmethod
    def make(invite: Invite, key: ec.EllipticCurvePrivateKey, address: str | None, records: int) -> bytes:
        body = {
            "consortium": invite.consortium,
            "site": invite.site,
            "address": address,
            "records": records,
            "request": signing_request(key, invite.consortium, invite.site),
        }
        said = _FIRST + json.dumps(body, indent=1).encode() + b"\n"
        return said + f"code {_code(invite.secret, said)}\n".encode()

    @classmethod
    def read(cls, content: bytes, invite: Invite, where: str) -> Request:
        """What the holder of this invite asked for; a sentence for all else."""
        cut = content.rfind(b"\n", 0, -1) + 1
        said, last = content[:cut], _LAST.fullmatch(content[cut:])
        if not content.startswith(_FIRST) or last is None:
            raise UserError(f"{where} is no request: copy the whole file that `gossamer pki join` wrote.")
        if not hmac.compare_digest(_code(invite.secret, said), last[1].decode()):
            raise UserError(
                f"{where} was not made with the open invite of {invite.site}: it is of an older invite, or was changed "
                "on its way; ask the site, and invite it again if need be."
            )
        try:
            return cls._of(json.loads(said.removeprefix(_FIRST), object_pairs_hook=no_name_twice), invite)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(f"{where} is damaged: {error}.") from None

    @classmethod
    def _of(cls, body: Any, invite: Invite) -> Request:
        """The code shows who wrote it, not that he wrote what this program does."""
        if set(body) != {"consortium", "site", "address", "records", "request"}:
            raise ValueError("it does not say what a request says")
        if (body["consortium"], body["site"]) != (invite.consortium, invite.site):
            raise ValueError("it is in another name")
        address, records = body["address"], body["records"]
        if address is not None and not (isinstance(address, str) and is_address(address)):
            raise ValueError("its address is not host:port")
        if type(records) is not int or not 1 <= records <= MOST_RECORDS:
            raise ValueError("its number of records is none")
        if not isinstance(body["request"], str):
            raise ValueError("its signing request is none")
        return cls(*_names(invite), requested_key(body["request"], *_names(invite)), address, records)


def _names(invite: Invite) -> tuple[str, str]:
    return invite.consortium, invite.site


def _code(secret: bytes, said: bytes) -> str:
    return hmac.new(secret, said, "sha256").hexdigest()


def _check_sum(said: bytes) -> bytes:
    """Against slips of the hand, not of the mind: the request's code is what an attacker cannot make."""
    return hashlib.sha256(b"gossamer invite\n" + said).digest()[:_SUM]


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
