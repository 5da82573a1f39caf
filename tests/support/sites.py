"""Sites of a consortium with real certificates, made in milliseconds, and members of a roster for them."""

from __future__ import annotations

import datetime
import time

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from gossamer.consortium.grpc_links import GrpcLinks, Identity, Timeouts
from gossamer.consortium.roster import Joined, Member

QUICK = Timeouts(unanswered=1.0, recent=1.5, handshake=3.0, redial=0.3, patience=0.3)


def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """A certificate authority; what it issues is right unless asked otherwise."""

    def __init__(self, name: str = "consortium"):
        self._name, self._key = name, ed25519.Ed25519PrivateKey.generate()
        self.pem = self._certificate(name, self._key.public_key(), authority=True)

    def site(
        self, name: str, own: ec.EllipticCurvePrivateKey | None = None, days: tuple[int, int] = (-1, 90)
    ) -> Identity:
        """A site of that name, with a fresh key unless one is given."""
        own = own or key()
        secret = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Identity(name, self.pem, self._certificate(name, own.public_key(), days=days), secret)

    def _certificate(
        self,
        name: str,
        public: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey,
        authority: bool = False,
        days: tuple[int, int] = (-1, 90),
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self._name))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        return made.sign(self._key, None).public_bytes(serialization.Encoding.PEM)


def member(site: Identity, address: str | None = None) -> Member:
    """As the roster has it."""
    certificate = site.certificate.decode()
    return Member(name=site.name, certificate=certificate, address=address, records=100, joined=Joined(version=1))


def wait_up(links: GrpcLinks, deadline: float) -> bool:
    """Until all links are up; False at the deadline."""
    while any(state != "up" for state in links.states().values()):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
