"""Keys and certificates: the authority of a consortium, and the sites that it vouches for.

The authority's key is Ed25519: it signs certificates, rosters and studies, and never speaks TLS itself. A site's key is
on the curve P-256: gRPC's TLS library (BoringSSL) verifies an Ed25519 signature in a certificate, but by default makes
no connection with an Ed25519 key.
"""

from __future__ import annotations

import hashlib
import warnings
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossamer.consortium.formats import stamp
from gossamer.errors import UserError
from gossamer.results.signatures import has_small_order
from gossamer.results.words import day

SITE_DAYS, AUTHORITY_DAYS, WARN_DAYS = 90, 3650, 14
Kind = TypeVar("Kind", bound=x509.ExtensionType)
_SKEW = timedelta(hours=1)  # clocks of sites differ: a certificate is valid a little earlier than it is made


class Authority(NamedTuple):
    """An authority's key with its own certificate."""

    key: Ed25519PrivateKey
    certificate: x509.Certificate


def make_authority(consortium: str, now: datetime) -> Authority:
    key = Ed25519PrivateKey.generate()
    name = _name(consortium, f"{consortium} authority")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    return Authority(key, certificate)


def issue(
    authority: Authority, consortium: str, site: str, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.Certificate:
    """Issue a certificate of 90 days for `key` in the site's name."""
    own = authority.certificate
    ends = min(now + timedelta(days=SITE_DAYS), own.not_valid_after_utc)
    if ends <= now:
        raise UserError(
            f"the authority's certificate ended on {_day(own)}; begin a new consortium with "
            "`gossamer pki init`."
        )
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(_name(consortium, site))
        .issuer_name(own.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(site)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
        .sign(authority.key, None)
    )


def read_authority_certificate(text: str, consortium: str) -> x509.Certificate:
    """The authority's own certificate; ValueError where it is none that `make_authority` makes."""
    certificate = _certificate(text)
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey) or has_small_order(key.public_bytes_raw()):
        raise ValueError("its key is not one that can sign")
    if certificate.subject != _name(consortium, f"{consortium} authority"):
        raise ValueError("it is another consortium's")
    if not _extension(certificate, x509.BasicConstraints).ca:
        raise ValueError("it is no authority's")
    _issued_by(certificate, certificate)
    return certificate


def read_site_certificate(
    text: str, authority: x509.Certificate, consortium: str, site: str
) -> x509.Certificate:
    """A site's certificate; ValueError where this authority did not issue it for this name. Dates are not looked at."""
    certificate = _certificate(text)
    if certificate.subject != _name(consortium, site):
        raise ValueError("it is in another name")
    if _extension(certificate, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) != [site]:
        raise ValueError("it is for another host name")
    if _extension(certificate, x509.BasicConstraints).ca:
        raise ValueError("it is an authority's")
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not on the curve P-256")
    _issued_by(certificate, authority)
    return certificate


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("the authority did not sign it") from None


def _certificate(text: str) -> x509.Certificate:
    """Read a certificate completely: the sender may have written it by hand."""
    try:
        with warnings.catch_warnings():
            # What the library only warns of (a serial number below 1) is no certificate of ours.
            warnings.simplefilter("error", CryptographyDeprecationWarning)
            certificate = x509.load_pem_x509_certificate(text.encode("ascii"))
            _ = certificate.public_key(), certificate.subject, certificate.extensions
    except (
        ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
        CryptographyDeprecationWarning,
    ):  # fmt: skip
        raise ValueError("it is not a certificate in PEM") from None
    if pem(certificate) != text:
        raise ValueError("there is more in it than a certificate")
    return certificate


def _extension(certificate: x509.Certificate, kind: type[Kind]) -> Kind:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        raise ValueError(f"it has no {kind.__name__}") from None


def _name(consortium: str, common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def fingerprint(certificate: x509.Certificate) -> str:
    """sha256 of the certificate (DER), hex: what others pin."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def public_bytes(key: ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey) -> bytes:
    """SubjectPublicKeyInfo (DER)."""
    public = key.public_key() if isinstance(key, ec.EllipticCurvePrivateKey) else key
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_words(key: ec.EllipticCurvePublicKey) -> str:
    """A short mark of a key that two people can compare over the telephone: 64 bits in fours."""
    digest = hashlib.sha256(public_bytes(key)).hexdigest()[:16]
    return " ".join(digest[k : k + 4] for k in range(0, 16, 4))


def days_left(certificate: x509.Certificate, now: datetime) -> int:
    """Whole days until it ends; below 0 once it has."""
    return (certificate.not_valid_after_utc - now) // timedelta(days=1)


def expiry_warning(site: str, certificate: x509.Certificate, now: datetime) -> str | None:
    """Warn of a certificate's end from 14 days before it on."""
    left, ends = days_left(certificate, now), _day(certificate)
    if left < 0:
        return f"the certificate of {site} ended on {ends}; `gossamer pki renew {site}` makes the next."
    if left < WARN_DAYS:
        when = {0: "today", 1: "in a day"}.get(left, f"in {left} days")
        return (
            f"the certificate of {site} ends {when}, on {ends}; `gossamer pki renew {site}` makes the next."
        )
    return None


def _day(certificate: x509.Certificate) -> str:
    return day(stamp(certificate.not_valid_after_utc))


def make_site_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def read_site_key(content: bytes, where: str) -> ec.EllipticCurvePrivateKey:
    key = _private(content, where)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UserError(f"{where} is not a site's key (curve P-256); `gossamer pki join` makes one.")
    return key


def read_authority_key(content: bytes, where: str) -> Ed25519PrivateKey:
    key = _private(content, where)
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{where} is not an authority's key (Ed25519); `gossamer pki init` makes one.")
    return key


def _private(content: bytes, where: str) -> object:
    try:
        return serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UserError(f"{where} is damaged: it is not a private key in PEM; put it back.") from None


def signing_request(key: ec.EllipticCurvePrivateKey, consortium: str, site: str) -> str:
    """A CSR: the public half and the name, signed by the private half, which stays."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name(consortium, site))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(site)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM).decode("ascii")


def requested_key(text: str, consortium: str, site: str) -> ec.EllipticCurvePublicKey:
    """The key of a CSR; ValueError unless its owner signed it, for this name. Nothing else of it is taken over."""
    try:
        request = x509.load_pem_x509_csr(text.encode("ascii"))
        key, good = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a signing request in PEM") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not on the curve P-256")
    if not good:
        raise ValueError("it is not signed by the key that it names")
    if request.subject != _name(consortium, site):
        raise ValueError("it is in another name")
    return key
