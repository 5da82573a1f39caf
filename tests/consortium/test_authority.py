from __future__ import annotations

import contextlib
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID
from tests.support.consortia import START
from tests.support.refusals import expect_refusal

from gossamer.consortium import authority as ca
from gossamer.consortium import files
from gossamer.consortium.files import now
from gossamer.results.signatures import private_pem, read_private_key

NORTH, SOUTH = ca.make_authority("north", START), ca.make_authority("south", START)
KEY = ca.make_site_key()
MERCY = ca.issue(NORTH, "north", "mercy", KEY.public_key(), START)


def test_a_certificate_is_the_sites_for_ninety_days() -> None:
    found = ca.read_site_certificate(ca.pem(MERCY), NORTH.certificate, "north", "mercy")
    assert found.not_valid_after_utc - START == timedelta(days=90)
    assert ca.days_left(found, START) == 90
    assert ca.public_bytes(found.public_key()) == ca.public_bytes(KEY)
    assert ca.fingerprint(found) == found.fingerprint(hashes.SHA256()).hex()


def handshake(folder: Path, client: ca.Authority, name: str) -> str:
    """Mutual TLS in memory between mercy and a client certified by `client`; the client's name as the server saw it."""
    today = now()
    north = ca.make_authority("north", today)
    client = north if client is NORTH else client
    ends = {}
    for end, site, by in (("server", "mercy", north), ("client", "clinic", client)):
        key = ca.make_site_key()
        (folder / f"{end}.key").write_bytes(private_pem(key))
        (folder / f"{end}.crt").write_text(ca.pem(ca.issue(by, "north", site, key.public_key(), today)))
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if end == "server" else ssl.PROTOCOL_TLS_CLIENT)
        made.load_cert_chain(folder / f"{end}.crt", folder / f"{end}.key")
        made.load_verify_locations(cadata=ca.pem(north.certificate))
        made.verify_mode = ssl.CERT_REQUIRED
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends[end] = (made, there, back)
    (s, s_in, s_out), (c, c_in, c_out) = ends["server"], ends["client"]
    server = s.wrap_bio(s_in, s_out, server_side=True)
    one = c.wrap_bio(c_in, c_out, server_hostname=name)
    for _ in range(4):
        for side in (one, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            c_in.write(s_out.read()), s_in.write(c_out.read())
    found = server.getpeercert()
    return dict(entry[0] for entry in found["subject"])["commonName"]


def test_openssl_makes_a_connection_with_both_ends_certified(tmp_path: Path) -> None:
    assert handshake(tmp_path, NORTH, "mercy") == "clinic"


def test_openssl_refuses_another_name_and_another_authority(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)hostname"):
        handshake(tmp_path, NORTH, "lab")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        handshake(tmp_path, ca.make_authority("north", now()), "mercy")


@pytest.mark.parametrize(
    ("text", "consortium", "site", "why"),
    [
        (ca.pem(MERCY), "north", "clinic", "in another name"),
        (ca.pem(MERCY), "south", "mercy", "in another name"),
        (
            ca.pem(ca.issue(SOUTH, "north", "mercy", KEY.public_key(), START)),
            "north",
            "mercy",
            "did not sign",
        ),
        (ca.pem(NORTH.certificate), "north", "north authority", "no SubjectAlternativeName"),
        (ca.pem(MERCY) + "more", "north", "mercy", "more in it|not a certificate"),
        ("-----BEGIN CERTIFICATE-----", "north", "mercy", "not a certificate"),
        ("", "north", "mercy", "not a certificate"),
        ("é", "north", "mercy", "not a certificate"),
    ],
)
def test_what_is_not_the_sites_is_refused(text: str, consortium: str, site: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ca.read_site_certificate(text, NORTH.certificate, consortium, site)


def test_a_serial_number_that_the_library_warns_of_is_refused() -> None:
    der = MERCY.public_bytes(serialization.Encoding.DER)
    serial = MERCY.serial_number.to_bytes((MERCY.serial_number.bit_length() + 8) // 8, "big")
    below_zero = der.replace(serial, bytes([serial[0] | 0x80]) + serial[1:], 1)
    text = ssl.DER_cert_to_PEM_cert(below_zero)
    with pytest.raises(ValueError, match="not a certificate in PEM"):
        ca.read_site_certificate(text, NORTH.certificate, "north", "mercy")


def altered(**change: object) -> str:
    """A certificate signed by the authority that `issue` would never make."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "north"),
            x509.NameAttribute(NameOID.COMMON_NAME, "mercy"),
        ]
    )
    made = (
        x509.CertificateBuilder(subject_name=name, issuer_name=NORTH.certificate.subject)
        .public_key(change.get("key", KEY.public_key()))
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(START + timedelta(days=1))
    )
    hosts = [x509.DNSName(host) for host in change.get("hosts", ["mercy"])]
    made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    made = made.add_extension(x509.BasicConstraints(change.get("ca", False), None), critical=True)
    return ca.pem(made.sign(NORTH.key, None))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hosts": ["mercy", "clinic"]}, "another host name"),
        ({"hosts": ["clinic"]}, "another host name"),
        ({"ca": True}, "an authority's"),
        ({"key": Ed25519PrivateKey.generate().public_key()}, "not on the curve P-256"),
        ({"key": ec.generate_private_key(ec.SECP384R1()).public_key()}, "not on the curve P-256"),
    ],
)
def test_also_one_that_the_authority_signed_is_looked_at(change: dict[str, object], why: str) -> None:
    assert ca.read_site_certificate(altered(), NORTH.certificate, "north", "mercy")
    with pytest.raises(ValueError, match=why):
        ca.read_site_certificate(altered(**change), NORTH.certificate, "north", "mercy")


def test_an_authority_is_known_by_name_key_and_its_own_signature() -> None:
    text = ca.pem(NORTH.certificate)
    assert ca.read_authority_certificate(text, "north") == NORTH.certificate
    with pytest.raises(ValueError, match="another consortium"):
        ca.read_authority_certificate(text, "south")
    with pytest.raises(ValueError, match="not one that can sign"):
        ca.read_authority_certificate(ca.pem(MERCY), "north")


def test_an_authority_whose_key_everyone_can_sign_with_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Ed25519PublicKey.from_public_bytes(b"\x01" + bytes(31))
    name = NORTH.certificate.subject
    made = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name)
        .public_key(small)
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(START + timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .sign(NORTH.key, None)
    )
    with pytest.raises(ValueError, match="not one that can sign"):
        ca.read_authority_certificate(ca.pem(made), "north")


def test_no_certificate_outlives_its_authority() -> None:
    end = NORTH.certificate.not_valid_after_utc
    last = ca.issue(NORTH, "north", "mercy", KEY.public_key(), end - timedelta(days=10))
    assert last.not_valid_after_utc == end
    with expect_refusal(key="authority", names="certificate"):
        ca.issue(NORTH, "north", "mercy", KEY.public_key(), end)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (75.9, None),
        (76.1, "ends in 13 days"),
        (88.5, "ends in a day"),
        (89.5, "ends today"),
        (90.5, "ended on"),
    ],
)
def test_warnings_begin_fourteen_days_before_the_end(days: float, said: str | None) -> None:
    found = ca.expiry_warning("mercy", MERCY, START + timedelta(days=days))
    assert (found is None) if said is None else (said in found and "pki renew mercy" in found)


def test_a_request_proves_the_key_and_the_name() -> None:
    text = ca.signing_request(KEY, "north", "mercy")
    assert ca.public_bytes(ca.requested_key(text, "north", "mercy")) == ca.public_bytes(KEY)
    with pytest.raises(ValueError, match="another name"):
        ca.requested_key(text, "north", "clinic")
    with pytest.raises(ValueError, match="not a signing request"):
        ca.requested_key(text[:-60], "north", "mercy")
    other = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(ValueError, match="P-256"):
        ca.requested_key(ca.signing_request(other, "north", "mercy"), "north", "mercy")


def test_keys_of_another_kind_are_refused_by_name(tmp_path: Path) -> None:
    for name, content in (
        ("site", private_pem(KEY)),
        ("authority", private_pem(NORTH.key)),
        ("no", b"nothing"),
    ):
        files.write(tmp_path / name, content, 0o600)
    site, curve = (
        read_private_key(tmp_path / "site", ec.EllipticCurvePrivateKey),
        "EllipticCurvePrivateKey",
    )
    assert ca.public_bytes(site) == ca.public_bytes(KEY)
    for name in ("authority", "no"):
        with expect_refusal(name, names=[curve]):
            read_private_key(tmp_path / name, ec.EllipticCurvePrivateKey)
    with expect_refusal(key="site", names="PEM"):
        read_private_key(tmp_path / "site", Ed25519PrivateKey)


def test_the_mark_of_a_key_is_short_and_its_own() -> None:
    marks = {ca.key_words(ca.make_site_key().public_key()) for _ in range(20)}
    assert len(marks) == 20
    assert all(len(mark) == 19 for mark in marks)
