"""Signatures name both ends, both certificates and both nonces; a key that does not fit is found at once."""

from __future__ import annotations

import dataclasses

import pytest
from tests.support.sites import Authority, key, member

from gossamer.consortium.identity import (
    DIALLER,
    LISTENER,
    Identity,
    ProofError,
    check,
    fingerprint,
    transcript,
)
from gossamer.errors import UserError

CA = Authority()
SITE = CA.site("clinic")
ENDS = ("a", "1" * 64), ("b", "2" * 64), (b"n" * 32, b"m" * 32)


def test_a_site_knows_its_name_and_fingerprint_and_never_shows_its_key() -> None:
    assert SITE.name == "clinic"
    assert SITE.fingerprint == fingerprint(SITE.certificate) == member(SITE).fingerprint
    assert len(SITE.fingerprint) == 64
    assert "PRIVATE" not in repr(SITE)


def test_a_signature_fits_its_key_and_its_words_alone() -> None:
    said = transcript(LISTENER, *ENDS)
    signature = SITE.sign(said)
    check(member(SITE), said, signature)
    for other_member, other_said, other in (
        (member(CA.site("clinic")), said, signature),  # the same name and authority, another key
        (member(SITE), transcript(DIALLER, *ENDS), signature),
        (member(SITE), said, signature[:-1]),
        (member(SITE), said, b""),
        (dataclasses.replace(member(SITE), public_key=b"nonsense"), said, signature),
    ):
        with pytest.raises(ProofError, match="clinic"):
            check(other_member, other_said, other)


def test_no_two_connections_sign_the_same_words() -> None:
    dialler, listener, nonces = ENDS
    variants = {
        transcript(LISTENER, dialler, listener, nonces),
        transcript(DIALLER, dialler, listener, nonces),
        transcript(LISTENER, listener, dialler, nonces),
        transcript(LISTENER, dialler, listener, (nonces[1], nonces[0])),
        transcript(LISTENER, ("ab", dialler[1]), ("", listener[1]), nonces),
        transcript(LISTENER, ("a", dialler[1]), ("b", "3" * 64), nonces),
        transcript(LISTENER, ("a", "3" * 64), listener, nonces),
    }
    assert len(variants) == 7
    # TLS signs 64 bytes of padding or two randoms first; ours begin with 64 bytes that no random is.
    assert len({said[:64] for said in variants}) == 1


def test_keys_that_do_not_fit_are_refused_in_one_sentence() -> None:
    other = CA.site("other")
    with pytest.raises(UserError, match="not that of the certificate of 'clinic'"):
        Identity(CA.pem, SITE.certificate, other.key).sign(b"")
    with pytest.raises(UserError, match="cannot be read"):
        Identity(CA.pem, SITE.certificate, b"nonsense").sign(b"")


def test_a_key_that_grpc_cannot_use_is_refused() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(UserError, match="P-256"):
        Identity(CA.pem, SITE.certificate, pem).sign(b"")


def test_a_renewed_certificate_with_the_same_key_is_another_one() -> None:
    own = key()
    assert CA.site("clinic", own).fingerprint != CA.site("clinic", own).fingerprint
