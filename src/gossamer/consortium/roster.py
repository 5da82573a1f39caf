"""The roster: which sites belong to a consortium, by which certificates, from and until which round.

The authority signs it. Every version knows the digests of all before it, so that a later one can be told
from a fork. A change holds in studies packed later from their start, in those packed earlier from its round on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field

from gossamer.consortium.authority import (
    Authority,
    expiry_warning,
    fingerprint,
    pem,
    public_bytes,
    read_authority_certificate,
    read_site_certificate,
)
from gossamer.consortium.formats import (
    Address,
    Digest,
    Name,
    Records,
    Stamp,
    Strict,
    parse,
    read_signed,
    stamp,
    write_signed,
)
from gossamer.errors import UserError
from gossamer.options.nearest import ending

KIND = "roster"
MAX_ROUND = 10**9
_Round = Annotated[int, Field(ge=0, le=MAX_ROUND)]
_Version = Annotated[int, Field(ge=1, le=10**6)]


class Joined(Strict):
    version: _Version
    at_round: _Round = 0


class Left(Joined):
    revoked: bool = False  # its links go down at once, and not only at the round


class Member(Strict):
    """A site as the roster has it. All of it is public."""

    name: Name
    certificate: str  # PEM
    address: Address | None  # where others find it; None: it only dials out
    records: Records  # declared, a public constant
    joined: Joined
    left: Left | None = None

    @cached_property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())

    @property
    def public_key(self) -> Any:
        return self.parsed.public_key()

    @property
    def revoked(self) -> bool:
        return self.left is not None and self.left.revoked

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.parsed)

    def takes_part(self, t: int, since: int) -> bool:
        """In round t of a study that was packed with version `since`?"""
        gone = self.left is not None and (self.left.version <= since or self.left.at_round <= t)
        return not gone and (self.joined.version <= since or self.joined.at_round <= t)


class _Body(Strict):
    consortium: Name
    version: _Version
    issued: Stamp
    history: list[Digest]  # of all versions before, the first one first
    authority: str  # PEM
    sites: list[Member]


@dataclass(frozen=True)
class Roster:
    """One version, verified: there is no other way to get one than `read` and the authority's `next_version`."""

    content: bytes  # the file
    body: _Body
    authority: x509.Certificate

    @classmethod
    def read(cls, content: bytes, where: str, authority: str | None = None) -> Roster:
        """Of a signed file. `authority`: the fingerprint that it must be signed under; any, if None."""
        file = read_signed(KIND, content, where)
        body = parse(_Body, file.body, f"{where} is damaged")
        try:
            signer = read_authority_certificate(body.authority, body.consortium)
        except ValueError as error:
            raise UserError(
                f"{where} is damaged: the authority's certificate cannot be used, {error}."
            ) from None
        if authority is not None and fingerprint(signer) != authority:
            raise UserError(
                f"{where} is another consortium's roster: its authority is {fingerprint(signer)[:16]}…, not "
                f"{authority[:16]}…."
            )
        key = signer.public_key()
        assert isinstance(key, Ed25519PublicKey)
        file.check(key)
        try:
            _check(body, signer)
        except ValueError as error:
            raise UserError(f"{where} cannot be used: {error}.") from None
        return cls(content, body, signer)

    @property
    def consortium(self) -> str:
        return self.body.consortium

    @property
    def version(self) -> int:
        return self.body.version

    @property
    def issued(self) -> str:
        return self.body.issued

    @property
    def fingerprint(self) -> str:
        """Of the authority's certificate."""
        return fingerprint(self.authority)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def sites(self) -> Sequence[Member]:
        """All that were ever in, by name."""
        return self.body.sites

    @property
    def public_key(self) -> Ed25519PublicKey:
        key = self.authority.public_key()
        assert isinstance(key, Ed25519PublicKey)
        return key

    def site(self, name: str) -> Member:
        member = next((site for site in self.sites if site.name == name), None)
        if member is None:
            names = [site.name for site in self.sites]
            raise UserError(f"{name!r} is no site of {self.consortium}{ending(name, names)}")
        return member

    def members(self, t: int | None = None, since: int | None = None) -> dict[str, Member]:
        """Those of round t of a study that was packed with version `since` (this one, if None), by name.

        Without a round: all to whom there may be a link, those who join later and those who will leave among them.
        """
        since = self.version if since is None else since
        chosen = (
            [site for site in self.sites if site.takes_part(t, since)]
            if t is not None
            else [site for site in self.sites if not site.revoked and not _gone_before(site, since)]
        )
        return {site.name: site for site in chosen}

    def epochs(self, since: int, rounds: int) -> list[tuple[int, tuple[str, ...]]]:
        """(first round, its sites by name) of every epoch of a study with so many rounds."""
        starts = {0}
        for site in self.sites:
            for change in (site.joined, site.left):
                if change is not None and change.version > since and change.at_round < rounds:
                    starts.add(change.at_round)
        spans: list[tuple[int, tuple[str, ...]]] = []
        for t in sorted(starts):
            names = tuple(self.members(t, since))
            if not spans or spans[-1][1] != names:
                spans.append((t, names))
        return spans

    def warnings(self, now: datetime) -> list[str]:
        """Certificates that end within 14 days, or have ended."""
        active = [site for site in self.sites if site.left is None]
        warnings = [expiry_warning(site.name, site.parsed, now) for site in active]
        return [sentence for sentence in warnings if sentence]


def _gone_before(site: Member, since: int) -> bool:
    return site.left is not None and site.left.version <= since


def _check(body: _Body, authority: x509.Certificate) -> None:
    """A signature says who wrote it, not that it holds together."""
    if len(body.history) != body.version - 1:
        raise ValueError(f"version {body.version} must know {body.version - 1} versions before it")
    names = [site.name for site in body.sites]
    if names != sorted(set(names)):
        raise ValueError("its sites are not listed once each, by name")
    keys = set()
    for site in body.sites:
        try:
            read_site_certificate(site.certificate, authority, body.consortium, site.name)
        except ValueError as error:
            raise ValueError(f"the certificate of {site.name} cannot be used: {error}") from None
        keys.add(public_bytes(site.public_key))
        if max(site.joined.version, site.left.version if site.left else 1) > body.version:
            raise ValueError(f"site {site.name} changes in a version that is still to come")
    if len(keys) < len(names):
        raise ValueError("two sites have the same key")


def first_version(authority: Authority, consortium: str, now: datetime) -> Roster:
    return _signed(authority, _Body(
        consortium=consortium, version=1, issued=stamp(now), history=[], authority=pem(authority.certificate), sites=[]
    ))  # fmt: skip


def next_version(authority: Authority, last: Roster, sites: Sequence[Member], now: datetime) -> Roster:
    return _signed(authority, _Body(
        consortium=last.consortium,
        version=last.version + 1,
        issued=stamp(now),
        history=[*last.body.history, last.digest],
        authority=last.body.authority,
        sites=sorted(sites, key=lambda site: site.name),
    ))  # fmt: skip


def _signed(authority: Authority, body: _Body) -> Roster:
    """Read back before it leaves: what would be refused elsewhere is never written."""
    return Roster.read(
        write_signed(KIND, body.model_dump(), authority.key.sign),
        "the new roster",
        fingerprint(authority.certificate),
    )


def check_successor(present: Roster, offered: Roster) -> bool:
    """Tell whether `offered` is a later version; False where it is the same, a UserError for all else."""
    if offered.consortium != present.consortium or offered.fingerprint != present.fingerprint:
        raise UserError(
            f"roster {offered.version} is of the consortium {offered.consortium!r} with the authority "
            f"{offered.fingerprint[:16]}…, and this site is in {present.consortium!r} with {present.fingerprint[:16]}…."
        )
    if offered.digest == present.digest:
        return False
    if offered.version < present.version:
        raise UserError(
            f"roster {offered.version} is older than roster {present.version}, which is accepted; ask for the newest."
        )
    if offered.version == present.version or offered.body.history[present.version - 1] != present.digest:
        raise UserError(
            f"roster {offered.version} does not follow from roster {present.version} that is accepted: there are two "
            "of one version, so the authority's folder was copied or its key stolen; ask its operator by telephone."
        )
    return True


def differences(present: Roster | None, offered: Roster) -> list[str]:
    """Describe the changes that an operator agrees to, a line each."""
    before = {site.name: site for site in present.sites} if present is not None else {}
    lines = []
    for site in offered.sites:
        old, where = before.get(site.name), site.address or "dials out only"
        if old is None or (old.left and not site.left):
            if site.left is None:
                lines.append(
                    f"{site.name} joins{_when(site.joined)} ({site.records} records declared, {where})"
                )
        elif site.left and not old.left:
            how = "is revoked, its links go down at once, and it is out" if site.left.revoked else "leaves"
            lines.append(f"{site.name} {how}{_when(site.left)}")
        else:
            lines += _altered(old, site)
    return lines


def _altered(old: Member, new: Member) -> list[str]:
    lines = []
    if old.left and new.left and new.left.revoked and not old.left.revoked:
        lines.append(f"{new.name} is revoked, its links go down at once")
    if old.certificate != new.certificate:
        same = public_bytes(old.public_key) == public_bytes(new.public_key)
        lines.append(f"{new.name} has a new certificate" + ("" if same else " with ANOTHER KEY"))
    if old.address != new.address:
        lines.append(
            f"{new.name} is found at {new.address or 'no address'} instead of {old.address or 'no address'}"
        )
    if old.records != new.records:
        lines.append(f"{new.name} declares {new.records} records instead of {old.records}")
    return lines


def _when(change: Joined) -> str:
    return f" at round {change.at_round} of studies that are packed already" if change.at_round else ""
