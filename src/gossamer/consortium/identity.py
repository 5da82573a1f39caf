"""Who a site is: its key, and the proof of it that both ends of a connection give before the first parcel."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gossamer.consortium.links import Member
from gossamer.errors import UserError

NONCE = 32  # bytes
# Constant over the 64 bytes in which TLS has its randoms or its padding: no signature of a handshake is one of ours.
_LABEL = b"gossamer peer link v1: who holds the keys of this connection".ljust(64, b".")
LISTENER, DIALLER = b"listener", b"dialler"


class ProofError(Exception):
    """The other end is not who it should be; one sentence."""


def fingerprint(pem: bytes) -> str:
    """Of a certificate as TLS hands it over."""
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(der).hexdigest()


@dataclass(frozen=True)
class Identity:
    """One's own certificate and key, and the authority that all certificates of the consortium come from. All PEM."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Identity({self.name})"  # never the key

    @cached_property
    def name(self) -> str:
        subject = x509.load_pem_x509_certificate(self.certificate).subject
        named = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(named) != 1:
            raise UserError("the site's certificate has no single common name; ask for a new one.")
        return str(named[0].value)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate)

    @cached_property
    def _private_key(self) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError):
            raise UserError("the site's key cannot be read; it must be PEM without a pass phrase.") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UserError("the site's key is not on an elliptic curve; gRPC's TLS takes keys of P-256.")
        own = x509.load_pem_x509_certificate(self.certificate).public_key()
        if own != key.public_key():
            raise UserError(f"the key is not that of the certificate of {self.name!r}.")
        return key

    def sign(self, said: bytes) -> bytes:
        return self._private_key.sign(said, ec.ECDSA(hashes.SHA256()))


def transcript(
    role: bytes, dialler: tuple[str, str], listener: tuple[str, str], nonces: tuple[bytes, bytes]
) -> bytes:
    """What `role` signs: names and fingerprints of both, and the nonces of both.

    The listener puts in the fingerprint that *its* connection has proven. Whoever sits between two sites with a
    certificate of his own gets a signature that names him, and the dialler does not take that.
    """
    parts = [role, *(part.encode() for part in (*dialler, *listener)), *nonces]
    return _LABEL + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def check(member: Member, said: bytes, signature: bytes) -> None:
    """By the key that the roster has for the member."""
    try:
        key = serialization.load_der_public_key(member.public_key)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ProofError(f"the roster's key of {member.name!r} is not on an elliptic curve")
        key.verify(signature, said, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        raise ProofError(f"what answers as {member.name!r} does not hold the key in the roster") from None
