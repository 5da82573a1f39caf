"""A signed file: a first line that says what it is, a body in JSON, and the authority's signature over both.

    gossamer roster 1
    { … }
    signature 3b5f…

The signature (Ed25519) is over the very bytes above it, so there is one way to write what was signed, and a signature
over a roster is one over nothing else: its first line is part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gossamer.accounting.chain import no_name_twice
from gossamer.errors import UserError
from gossamer.results.signatures import has_small_order

FORMAT = 1
_LAST = re.compile(rb"signature ([0-9a-f]{128})\n")


@dataclass(frozen=True)
class Envelope:
    """What a file says, and by which bytes; `check` says whether somebody signed it."""

    where: str  # the file, for sentences
    kind: str
    body: dict[str, Any]
    said: bytes
    signature: bytes

    def check(self, key: Ed25519PublicKey) -> None:
        """A sentence unless the owner of this key signed it."""
        if not signed_by(key, self.signature, self.said):
            raise UserError(
                f"{self.where} is not what the consortium's authority signed: it was changed or made up; get it anew."
            )


def sealed(kind: str, body: Mapping[str, Any], key: Ed25519PrivateKey) -> bytes:
    said = f"gossamer {kind} {FORMAT}\n{json.dumps(body, indent=1, ensure_ascii=True)}\n".encode()
    return said + f"signature {key.sign(said).hex()}\n".encode()


def unpacked(kind: str, content: bytes, where: str) -> Envelope:
    """Of a file that says it is a `kind`; who signed it is not looked at yet."""
    first, _, rest = content.partition(b"\n")
    if first != f"gossamer {kind} {FORMAT}".encode():
        if re.fullmatch(f"gossamer {kind} [0-9]+".encode(), first):
            raise UserError(
                f"{where} was made by another version of gossamer; this one reads format {FORMAT}."
            )
        raise UserError(f"{where} is no {kind}: its first line is not 'gossamer {kind} {FORMAT}'.")
    said, last = content[: content.rfind(b"\n", 0, -1) + 1], content[content.rfind(b"\n", 0, -1) + 1 :]
    signature = _LAST.fullmatch(last)
    if signature is None:
        raise UserError(f"{where} is damaged: it does not end with a signature; get it anew.")
    try:
        body = json.loads(rest[: len(rest) - len(last)].decode("ascii"), object_pairs_hook=no_name_twice)
    except (ValueError, RecursionError):
        raise UserError(f"{where} is damaged: its body is not JSON; get it anew.") from None
    if not isinstance(body, dict):
        raise UserError(f"{where} is damaged: its body is not a JSON object; get it anew.")
    return Envelope(where, kind, body, said, bytes.fromhex(signature[1].decode()))


def signed_by(key: Ed25519PublicKey, signature: bytes, said: bytes) -> bool:
    if has_small_order(key.public_bytes_raw()):
        return False
    try:
        key.verify(signature, said)
    except InvalidSignature:
        return False
    return True
