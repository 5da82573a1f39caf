"""Keys, certificates and invites: the authority of a consortium, and the sites that it vouches for.

The authority's key is Ed25519: it signs certificates, rosters and studies, and never speaks TLS itself. A site's key is
on the curve P-256: gRPC's TLS library (BoringSSL) verifies an Ed25519 signature in a certificate, but by default makes
no connection with an Ed25519 key.

An invite is one line of text with a secret that is good once and for a while. The site's request is authenticated with
that secret (HMAC): without the invite it can be neither made nor changed on its way.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import warnings
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from pydantic import Field

from gossamer.consortium import files
from gossamer.consortium.files import Address, Digest, Name, Records, Stamp, Strict, read_stamp, stamp
from gossamer.errors import UserError
from gossamer.results.signatures import has_small_order
from gossamer.results.words import day

SITE_DAYS, AUTHORITY_DAYS, WARN_DAYS = 90, 3650, 14
REQUEST = "request"
_PREFIX, _CHECKSUM = "gossamer-invite-1.", 8
_SKEW = timedelta(hours=1)  # clocks of sites differ: a certificate is valid a little earlier than it is made
Kind = TypeVar("Kind", bound=x509.ExtensionType)

# Certificates


class Authority(NamedTuple):
    """An authority's key with its own certificate."""

    key: Ed25519PrivateKey
    certificate: x509.Certificate


def make_authority(consortium: str, now: datetime) -> Authority:
    key = Ed25519PrivateKey.generate()
    name, public = _name(consortium, f"{consortium} authority"), key.public_key()
    builder = _builder(name, name, public, now, now + timedelta(days=AUTHORITY_DAYS), is_authority=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    return Authority(key, builder.add_extension(identifier, critical=False).sign(key, None))


def issue(
    authority: Authority, consortium: str, site: str, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.Certificate:
    """Issue a certificate of 90 days for `key` in the site's name."""
    own = authority.certificate
    ends = min(now + timedelta(days=SITE_DAYS), own.not_valid_after_utc)
    if ends <= now:
        raise UserError(f"the authority's certificate ended on {_last_day(own)}; begin a new consortium.")
    builder = _builder(_name(consortium, site), own.subject, key, now, ends, is_authority=False)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    for extension in (usage, x509.SubjectAlternativeName([x509.DNSName(site)]), issuer):
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(authority.key, None)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, now: datetime, ends: datetime, *, is_authority: bool
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )


def read_authority_certificate(text: str, consortium: str) -> x509.Certificate:
    """Read the authority's own certificate; ValueError where `make_authority` cannot have made it."""
    certificate = _read_certificate(text)
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey) or has_small_order(key.public_bytes_raw()):
        raise ValueError("its key is not one that can sign")
    if certificate.subject != _name(consortium, f"{consortium} authority"):
        raise ValueError("it is another consortium's")
    if not _extension(certificate, x509.BasicConstraints).ca:
        raise ValueError("it is not an authority's")
    _check_issuer(certificate, certificate)
    return certificate


def read_site_certificate(text: str, authority: x509.Certificate, consortium: str, site: str) -> x509.Certificate:
    """Read a site's certificate; ValueError where this authority did not issue it for this name. Ignores dates."""
    certificate = _read_certificate(text)
    if certificate.subject != _name(consortium, site):
        raise ValueError("it is in another name")
    if _extension(certificate, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) != [site]:
        raise ValueError("it is for another host name")
    if _extension(certificate, x509.BasicConstraints).ca:
        raise ValueError("it is an authority's")
    _check_curve(certificate.public_key())
    _check_issuer(certificate, authority)
    return certificate


def _check_issuer(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("the authority did not sign it") from None


def _check_curve(key: object) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not on the curve P-256")
    return key


def _read_certificate(text: str) -> x509.Certificate:
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
    parts = {NameOID.ORGANIZATION_NAME: consortium, NameOID.COMMON_NAME: common}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def fingerprint(certificate: x509.Certificate) -> str:
    """sha256 of the certificate (DER), hex: what others pin."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def days_left(certificate: x509.Certificate, now: datetime) -> int:
    """Whole days until it ends; below 0 once it has."""
    return (certificate.not_valid_after_utc - now) // timedelta(days=1)


def expiry_warning(site: str, certificate: x509.Certificate, now: datetime) -> str | None:
    """Warn of a certificate's end from 14 days before it on."""
    left = days_left(certificate, now)
    if left >= WARN_DAYS:
        return None
    when = {0: "ends today,", 1: "ends in a day,"}.get(left, f"ends in {left} days," if left > 0 else "ended")
    last = _last_day(certificate)
    return f"the certificate of {site} {when} on {last}; `gossamer pki renew {site}` makes the next."


def _last_day(certificate: x509.Certificate) -> str:
    return day(stamp(certificate.not_valid_after_utc))


# Keys


def make_site_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_bytes(key: ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey) -> bytes:
    """SubjectPublicKeyInfo (DER)."""
    public = key.public_key() if isinstance(key, ec.EllipticCurvePrivateKey) else key
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_words(key: ec.EllipticCurvePublicKey) -> str:
    """A short mark of a key that two people can compare over the telephone: 64 bits in fours."""
    digest = hashlib.sha256(public_bytes(key)).hexdigest()[:16]
    return " ".join(digest[k : k + 4] for k in range(0, 16, 4))


# Invites and requests


class Invite(Strict):
    consortium: Name
    site: Name
    authority: Digest  # fingerprint of its certificate: all that the site will trust
    secret: Digest = Field(default_factory=lambda: secrets.token_hex(32))
    expires: Stamp

    def text(self) -> str:
        body = json.dumps(list(self.model_dump().values()), separators=(",", ":")).encode()
        # The checksum is against typing errors; the request's HMAC is what an attacker cannot make.
        checksum = hashlib.sha256(b"gossamer invite\n" + body).digest()[:_CHECKSUM]
        return _PREFIX + base64.urlsafe_b64encode(body + checksum).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Invite:
        """Read an invite; a UserError if it was cut or mistyped. The authority knows whether it is still good."""
        text = text.strip()
        encoded = text.removeprefix(_PREFIX)
        try:
            body = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))[:-_CHECKSUM]
            invite = cls.model_validate(dict(zip(cls.model_fields, json.loads(body), strict=True)))
            if invite.text() == text:
                return invite
        except (ValueError, TypeError, RecursionError):
            pass
        raise UserError(f"the invite is cut or mistyped ({text[:24]!r}…); copy the whole line of `pki invite`.")

    def check_expiry(self, now: datetime) -> None:
        if now >= read_stamp(self.expires):
            raise UserError(f"the invite of {self.site} ended on {day(self.expires)}; ask for a new one.")

    def authenticate(self, content: bytes) -> bytes:
        return hmac.digest(bytes.fromhex(self.secret), content, "sha256")


class Request(Strict):
    """A site's request for a certificate for its key, with what everyone will know of it."""

    consortium: Name
    site: Name
    address: Address | None
    records: Records
    request: str  # a certificate signing request

    def key(self) -> ec.EllipticCurvePublicKey:
        return requested_key(self.request, self.consortium, self.site)


def write_request(invite: Invite, key: ec.EllipticCurvePrivateKey, **facts: Any) -> bytes:
    """Write the request of a new site; `facts`: its `address` and number of `records`."""
    consortium, site = invite.consortium, invite.site
    signing = signing_request(key, consortium, site)
    request = Request(consortium=consortium, site=site, request=signing, **facts)
    return files.write_signed(REQUEST, request.model_dump(), invite.authenticate)


def read_request(content: bytes, invite: Invite, where: str) -> Request:
    """Read what the holder of this invite requested; a UserError for all else."""
    file = files.read_signed(REQUEST, content, where)
    if not hmac.compare_digest(invite.authenticate(file.signed), file.signature):
        raise UserError(f"{where} was not made with the open invite of {invite.site}; invite it again.")
    request = files.parse(Request, file.body, f"{where} is damaged")
    try:
        if (request.consortium, request.site) != (invite.consortium, invite.site):
            raise ValueError("it is in another name")
        request.key()
    except ValueError as error:
        raise UserError(f"{where} is damaged: {error}.") from None
    return request


def signing_request(key: ec.EllipticCurvePrivateKey, consortium: str, site: str) -> str:
    """Make a CSR: the public half and the name, signed by the private half, which stays."""
    builder = x509.CertificateSigningRequestBuilder(_name(consortium, site))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")


def requested_key(text: str, consortium: str, site: str) -> ec.EllipticCurvePublicKey:
    """Return the key of a CSR; ValueError unless its owner signed it, for this name. Nothing else of it is used."""
    try:
        request = x509.load_pem_x509_csr(text.encode("ascii"))
        key, is_valid = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a signing request in PEM") from None
    if not is_valid:
        raise ValueError("it is not signed by the key that it names")
    if request.subject != _name(consortium, site):
        raise ValueError("it is in another name")
    return _check_curve(key)
