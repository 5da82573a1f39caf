"""Ed25519 signatures under a certificate: the run's own, and those of organisations that vouch for it.

All of them, an anchor and the statement of a consortium's site cover `signed_content`: the certificate without what is
added after the run's end. The certificate holds the digests of the run's files, so a signature covers those as well.

A run's key is made when the run begins. Its public half is in the manifest, to which every ledger's first line is
bound; the private half is `run.key`, readable by its owner alone, so that a stopped run can be resumed. It signs once,
at the end, and is deleted: nothing more can be signed in this run's name. docs/tampering.md says what that does not
show. An organisation's name is the signer's word: whose key it is a reader has to know from elsewhere.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gossamer.errors import UserError
from gossamer.results.rundir import read_bytes, read_object, read_private, write_atomically

KEY = "run.key"
SIGNATURE, SIGNATURES, SITE = "signature", "signatures", "site"
# Added after the run's end: signatures, the statement of a consortium's site, and an audit's unsigned figures.
ADDED_LATER = ("epsilon_audited", "violation", "violated", "audit", SIGNATURE, SIGNATURES, SITE)
_BY_RUN, _BY_ORGANISATION = b"gossamer run 1\n", b"gossamer certificate 1\n"
_FIELDS = ("signer", "key", "at", "signature")
_HEX = re.compile(r"[0-9a-f]{64}")
LONGEST_NAME = 120


def signed_content(certificate: Mapping[str, Any], *words: Mapping[str, Any]) -> bytes:
    """Return what is signed: the certificate, and a signer's words, as JSON with sorted names."""
    content = {name: value for name, value in certificate.items() if name not in ADDED_LATER}
    return json.dumps([content, *words], sort_keys=True).encode()


class RunKey:
    """The key of one run, from its beginning to the signature at its end."""

    def __init__(self, path: Path, key: Ed25519PrivateKey):
        self._path, self._key = path, key

    @classmethod
    def create(cls, run: Path) -> RunKey:
        key = Ed25519PrivateKey.generate()
        write_atomically(run / KEY, key.private_bytes_raw().hex().encode() + b"\n", 0o600, new=True)
        return cls(run / KEY, key)

    @classmethod
    def read(cls, run: Path, public: str) -> RunKey:
        """Read the key of a stopped run whose manifest names this public half."""
        path = run / KEY
        try:
            key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(read_bytes(path).decode().strip()))
        except ValueError as error:
            if isinstance(error, UserError) and path.exists():
                raise
            raise UserError(f"{path} is missing or damaged, and needed to resume; run it again.") from None
        if _public_half(key) != public:
            raise UserError(f"{path} is not the key that {run / 'manifest.json'} names; put it back.")
        return cls(path, key)

    @property
    def public(self) -> str:
        return _public_half(self._key)

    def mark(self, secret: str) -> str:
        """Return a keyed digest: equal for the same secret, and of no use to anyone without the key."""
        return hmac.new(self._key.private_bytes_raw(), b"records\n" + secret.encode(), "sha256").hexdigest()

    def sign(self, certificate: Mapping[str, Any]) -> dict[str, Any]:
        message = _BY_RUN + signed_content(certificate)
        return {**certificate, SIGNATURE: self._key.sign(message).hex()}

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate; raise unless the run's own key, which it names, has signed it."""
    certificate = read_object(path, "key", SIGNATURE)
    if not _verifies(certificate["key"], certificate[SIGNATURE], _BY_RUN + signed_content(certificate)):
        raise UserError(f"{path} is not what the run signed at its end; put it back.")
    return certificate


def make_key(path: Path) -> str:
    """A new private key in a file of its owner's alone; its public half in 64 hexadecimal digits."""
    key = Ed25519PrivateKey.generate()
    try:
        write_atomically(path, private_pem(key), 0o600, new=True)
    except FileExistsError:
        raise UserError(f"--out {path} exists; a key is never overwritten: name a new file.") from None
    except OSError as error:
        raise UserError(f"--out {path} cannot be made: {error.strerror}.") from None
    return _public_half(key)


def private_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def read_private_key(path: Path, kind: Any) -> Any:
    """Read a private key of this kind, Ed25519 or elliptic curve, from its owner's file."""
    content, key = read_private(path), None
    with suppress(TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: a passphrase locks it
        key = serialization.load_pem_private_key(content, password=None)
    if not isinstance(key, kind):
        what = f"{path} is no private key in PEM of the kind {kind.__name__}, or a passphrase locks it"
        raise UserError(f"{what}; name or restore the right file.")
    return key


def read_public(text: str) -> str:
    """64 hexadecimal digits: as given, or of the public key in a PEM file."""
    if _HEX.fullmatch(text.strip().lower()):
        return text.strip().lower()
    wanted = f"--public-key {text} is neither 64 hexadecimal digits nor a PEM file with an Ed25519 public key"
    if not Path(text).exists():
        raise UserError(f"{wanted}.")
    content, key = read_bytes(Path(text)), None
    with suppress(ValueError, UnsupportedAlgorithm):
        key = serialization.load_pem_public_key(content)
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{wanted}.")
    return key.public_bytes_raw().hex()


def signed(certificate: Mapping[str, Any], key: Ed25519PrivateKey, signer: str, at: str) -> dict[str, Any]:
    """The certificate with this signature; an earlier one of the same key is replaced."""
    if not 0 < len(signer.strip()) <= LONGEST_NAME or not signer.isprintable():
        raise UserError(f"--name {signer[:40]!r} must be one line of at most {LONGEST_NAME} characters.")
    public = _public_half(key)
    words = {"signer": signer.strip(), "key": public, "at": at}
    message = _BY_ORGANISATION + signed_content(certificate, words)
    others = [one for one in certificate.get(SIGNATURES, []) if one["key"] != public]
    return {**certificate, SIGNATURES: [*others, {**words, "signature": key.sign(message).hex()}]}


def check_signatures(certificate: Mapping[str, Any], path: Path) -> list[dict[str, str]]:
    """Return the organisations' signatures; raise where one does not fit."""
    signatures = certificate.get(SIGNATURES, [])
    if not isinstance(signatures, list) or not all(_is_signature(one) for one in signatures):
        raise UserError(f"{path} is damaged: its {SIGNATURES!r} are not signatures; put it back.")
    for one in signatures:
        words = {name: one[name] for name in _FIELDS if name != "signature"}
        if not _verifies(one["key"], one["signature"], _BY_ORGANISATION + signed_content(certificate, words)):
            what = f"{path} is not what {one['signer']!r} signed at {one['at']}: it was changed since"
            raise UserError(f"{what}; put it back, or let them sign it again.")
    return signatures


def _is_signature(one: Any) -> bool:
    if not isinstance(one, dict) or set(one) != set(_FIELDS):
        return False
    texts = all(isinstance(one[name], str) and one[name].isprintable() for name in _FIELDS)
    return texts and bool(_HEX.fullmatch(one["key"]))


def _verifies(key: Any, signature: Any, message: bytes) -> bool:
    try:
        public = bytes.fromhex(key)
        if has_small_order(public):
            return False
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError, TypeError):
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


def _public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()
