"""An organisation's signature covers the certificate, the name and the date, and nothing else opens or makes one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.certificates import audit, dated
from tests.support.refusals import expect_refusal

from gossamer.errors import UserError
from gossamer.results.signatures import (
    check_signatures,
    has_small_order,
    make_key,
    read_private_key,
    read_public,
    signed,
)

AT = "2026-03-10T08:00:00Z"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


def under(certificate: dict[str, Any], key: Path, name: str = "Hospital A") -> dict[str, Any]:
    return json.loads(json.dumps(signed(certificate, read_private_key(key, Ed25519PrivateKey), name, AT)))


def check(certificate: dict[str, Any]) -> list[dict[str, str]]:
    return check_signatures(certificate, Path("certificate.json"))


def test_a_key_is_its_owners_alone_and_never_overwritten(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    with expect_refusal(key="--out", names="overwritten", remedy=True):
        make_key(key)
    assert key.read_bytes() == before
    with expect_refusal(key="--out", names="/nowhere/key.pem"):
        make_key(key.parent / "nowhere" / "key.pem")


def test_two_may_sign_and_an_audit_later_changes_neither(key: Path) -> None:
    other = key.with_name("other.pem")
    public = make_key(other)
    certificate = under(under(dated(), key), other, "Hospital B")
    assert [(one["signer"], one["at"]) for one in check(certificate)] == [
        ("Hospital A", AT),
        ("Hospital B", AT),
    ]
    assert check(certificate)[1]["key"] == public
    assert len(check({**certificate, "audit": audit(), "epsilon_audited": 0.7})) == 2
    assert len(check(under(certificate, key, "Hospital A again"))) == 2  # a key signs once
    assert check(dated()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(epsilon_proven=0.1),
        lambda c: c.update(issued="2027-01-01T00:00:00Z"),
        lambda c: c["digests"]["models"].reverse() or c["digests"]["models"].append("0" * 64),
        lambda c: c.pop("run"),
        lambda c: c.update(more=1),
        lambda c: c["signatures"][0].update(signer="Hospital B"),
        lambda c: c["signatures"][0].update(at="2020-01-01T00:00:00Z"),
        lambda c: c["signatures"][0].update(key="00" * 32),
    ],
)
def test_whatever_is_changed_afterwards_is_noticed(key: Path, change: Any) -> None:
    certificate = under(dated(), key)
    change(certificate)
    with expect_refusal(key="certificate.json", names="since"):
        check(certificate)


@pytest.mark.parametrize(
    "made", [7, {}, [7], [{}], [{"signer": "a", "key": "b", "at": "c", "signature": "d"}], "text", None]
)
def test_what_are_no_signatures_is_said(made: Any) -> None:
    with expect_refusal(key="certificate.json", names="signatures"):
        check(dated(signatures=made))


def test_keys_of_other_kinds_are_refused_in_a_sentence(key: Path, tmp_path: Path) -> None:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"secret")
    wrong = {
        "private": b"no key",
        "kind": rsa.generate_private_key(65537, 2048).private_bytes(pem, pkcs8, serialization.NoEncryption()),
        "passphrase": Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked),
    }
    for sentence, content in wrong.items():
        path = tmp_path / "wrong.pem"
        path.write_bytes(content)
        path.chmod(0o600)
        with expect_refusal(key="wrong.pem", names=sentence):
            read_private_key(path, Ed25519PrivateKey)
    key.chmod(0o640)
    with expect_refusal(key="key.pem", names="600", remedy=True):
        read_private_key(key, Ed25519PrivateKey)
    for name in ("", "two\nlines", "x" * 200):
        with expect_refusal(key="--name", names="line", remedy=True):
            signed(dated(), Ed25519PrivateKey.generate(), name, AT)


def test_a_public_key_is_digits_or_a_file(key: Path, tmp_path: Path) -> None:
    half = read_private_key(key, Ed25519PrivateKey).public_key()
    digits, file = half.public_bytes_raw().hex(), tmp_path / "public.pem"
    file.write_bytes(half.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    assert read_public(digits.upper()) == read_public(str(file)) == digits
    for wrong in ("abc", str(key), str(tmp_path / "nowhere")):
        with expect_refusal(key="--public-key", names="64 PEM"):
            read_public(wrong)


def test_a_key_made_by_openssl_signs_too(tmp_path: Path) -> None:
    path = tmp_path / "openssl.pem"
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no key here: {error}")
    path.chmod(0o600)
    assert len(check(under(dated(), path))) == 1


# The points whose eightfold is zero, as published: of orders 1, 2, 4 (two signs) and 8, and in other writings.
SMALL = [
    "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80", "ed" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]  # fmt: skip


def test_a_key_under_which_one_signature_fits_everything_is_nobodys(key: Path) -> None:
    certificate = under(dated(), key)
    assert all(has_small_order(bytes.fromhex(point)) for point in SMALL)
    assert not any(has_small_order(bytes.fromhex(make_key(key.parent / f"{i}.pem"))) for i in range(20))
    forged = {**certificate["signatures"][0], "key": SMALL[0], "signature": SMALL[0] + "00" * 32}
    with pytest.raises(UserError):
        check({**certificate, "signatures": [forged]})
