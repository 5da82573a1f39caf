"""An organisation's own signature under a certificate: who vouches for it, beside the run's key, which says no name.

The signature (Ed25519) stands in `certificate.json` under `signatures`, so that one file can be handed over. It covers
what the run itself had signed in that file (not what an audit adds later), the signer's name and the date. The name is
the signer's word: that a key is theirs a reader has to know from elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gossamer.errors import UserError
from gossamer.results.certificate import ADDED_LATER, SIGNATURES
from gossamer.results.files import read_bytes

_DOMAIN = b"gossamer certificate 1\n"  # a signature over a certificate is one over nothing else
_FIELDS = ("signer", "key", "at", "signature")
_HEX = re.compile(r"[0-9a-f]{64}")
LONGEST_NAME = 120


def make_key(path: Path) -> str:
    """A new private key in a file of its owner's alone; its public half in 64 hexadecimal digits."""
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UserError(f"--out {path} exists; a key is never overwritten: name a new file.") from None
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None
    with os.fdopen(fd, "wb") as file:
        file.write(text)
    return _public_half(key)


def read_private(path: Path) -> Ed25519PrivateKey:
    content = read_bytes(path)
    if path.stat().st_mode & 0o077:
        raise UserError(f"--key {path} can be read by others than its owner; chmod 600 it, then sign.")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise UserError(f"--key {path} is locked by a passphrase; unlock a copy of it to sign.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(
            f"--key {path} is not a private key in PEM; `gossamer certificate key` makes one."
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"--key {path} is not an Ed25519 key; `gossamer certificate key` makes one.")
    return key


def read_public(text: str) -> str:
    """64 hexadecimal digits: as given, or of the public key in a PEM file."""
    if _HEX.fullmatch(text.strip().lower()):
        return text.strip().lower()
    wanted = f"--public-key {text} is neither 64 hexadecimal digits nor a PEM file with an Ed25519 public key"
    if not Path(text).exists():
        raise UserError(f"{wanted}.")
    try:
        key = serialization.load_pem_public_key(read_bytes(Path(text)))
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{wanted}.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{wanted}.")
    return key.public_bytes_raw().hex()


def signed(certificate: Mapping[str, Any], key: Ed25519PrivateKey, signer: str, at: str) -> dict[str, Any]:
    """The certificate with this signature; an earlier one of the same key is replaced."""
    if not 0 < len(signer.strip()) <= LONGEST_NAME or not signer.isprintable():
        raise UserError(f"--name {signer[:40]!r} must be one line of at most {LONGEST_NAME} characters.")
    public = _public_half(key)
    words = {"signer": signer.strip(), "key": public, "at": at}
    mine = {**words, "signature": key.sign(_message(certificate, words)).hex()}
    kept = [one for one in certificate.get(SIGNATURES, []) if one["key"] != public]
    return {**certificate, SIGNATURES: [*kept, mine]}


def check_signatures(certificate: Mapping[str, Any], path: Path) -> list[dict[str, str]]:
    """Every signature in it; a sentence where one does not fit."""
    found = certificate.get(SIGNATURES, [])
    if not isinstance(found, list) or not all(_is_signature(one) for one in found):
        raise UserError(f"{path} is damaged: its {SIGNATURES!r} are not signatures.")
    for one in found:
        if not _fits(certificate, one):
            raise UserError(
                f"{path} is not what {one['signer']!r} signed at {one['at']}: it was changed since; put it back, or "
                "let them sign it again."
            )
    return found


def _is_signature(one: Any) -> bool:
    if not isinstance(one, dict) or set(one) != set(_FIELDS):
        return False
    if not all(isinstance(one[name], str) and one[name].isprintable() for name in _FIELDS):
        return False
    return bool(_HEX.fullmatch(one["key"])) and bool(re.fullmatch(r"[0-9a-f]{128}", one["signature"]))


def _fits(certificate: Mapping[str, Any], one: Mapping[str, Any]) -> bool:
    words = {name: one[name] for name in _FIELDS if name != "signature"}
    if has_small_order(bytes.fromhex(one["key"])):
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(one["key"]))
        public.verify(bytes.fromhex(one["signature"]), _message(certificate, words))
    except (InvalidSignature, ValueError):
        return False
    return True


def has_small_order(key: bytes) -> bool:
    """Is this one of the points under which one signature fits everything? Nobody's key is.

    They are the points whose eightfold is zero: y = 1, −1 and 0 of orders 1, 2 and 4; those of order 8 double to y = 0,
    which is y² = −x², and on the curve −x² + y² = 1 + d x² y² that is d y⁴ + 2 y² = 1.
    """
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p
    y = (int.from_bytes(key, "little") & (2**255 - 1)) % p
    return y in (0, 1, p - 1) or (d * y**4 + 2 * y**2 - 1) % p == 0


def _message(certificate: Mapping[str, Any], words: Mapping[str, str]) -> bytes:
    """What is signed: the certificate as JSON with sorted names, however its file is laid out."""
    said = {name: value for name, value in certificate.items() if name not in ADDED_LATER}
    return _DOMAIN + json.dumps([said, dict(words)], sort_keys=True).encode()


def _public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()
