"""The roster: which sites belong to a consortium, by which certificates, from and until which round.

The authority signs it. Every version knows the digests of all before it, so that a later one can be told
from a fork. A change holds in studies packed later from their start, in those packed earlier from its round on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from itertools import compress
from typing import Annotated, Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field

from gossamer.consortium import authority as pki
from gossamer.consortium import files
from gossamer.consortium.files import Address, Digest, Name, Records, Stamp, Strict
from gossamer.errors import UserError, ending

KIND = "roster"
Round = Annotated[int, Field(ge=0, le=10**9)]
Version = Annotated[int, Field(ge=1, le=10**6)]
Span = tuple[int, tuple[str, ...]]  # an epoch: (first round, sites by name)


class Joined(Strict):
    version: Version
    at_round: Round = 0


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
        return pki.fingerprint(self.parsed)

    def takes_part(self, t: int, since: int) -> bool:
        """Tell whether it is in round t of a study that was packed with version `since`."""
        gone = self.left is not None and (self.left.version <= since or self.left.at_round <= t)
        return not gone and (self.joined.version <= since or self.joined.at_round <= t)

    def may_link(self, since: int) -> bool:
        """Tell whether there may be a link to it in such a study: also before it joins and until it leaves."""
        return not self.revoked and (self.left is None or self.left.version > since)


class Roster(files.SignedModel):
    """One version, verified: there is no other way to get one than `read` and the authority's `sign_roster`."""

    consortium: Name
    version: Version
    issued: Stamp
    history: list[Digest]  # of all versions before, the first one first
    authority: str  # PEM
    sites: list[Member]  # all that were ever in, by name

    @classmethod
    def read(cls, content: bytes, where: str, authority: str | None = None) -> Roster:
        """Read a signed file. `authority`: the fingerprint that it must be signed under; any, if None."""
        roster = cls.open(KIND, content, where)
        try:
            signer = roster.signer
        except ValueError as error:
            raise UserError(f"{where} is damaged: its authority's certificate, {error}.") from None
        if authority is not None and pki.fingerprint(signer) != authority:
            raise UserError(f"{where} is another consortium's roster ({roster.fingerprint[:16]}…).")
        roster._file.check(roster.public_key)
        try:
            roster._check()
        except ValueError as error:
            raise UserError(f"{where} cannot be used: {error}.") from None
        return roster

    def _check(self) -> None:
        """Refuse what does not hold together: a signature says who wrote it, no more."""
        if len(self.history) != self.version - 1:
            raise ValueError(f"version {self.version} must know {self.version - 1} versions before it")
        names = [site.name for site in self.sites]
        if names != sorted(set(names)):
            raise ValueError("its sites are not listed once each, by name")
        for site in self.sites:
            try:
                pki.read_site_certificate(site.certificate, self.signer, self.consortium, site.name)
            except ValueError as error:
                raise ValueError(f"the certificate of {site.name} cannot be used: {error}") from None
            if max(site.joined.version, site.left.version if site.left else 1) > self.version:
                raise ValueError(f"site {site.name} changes in a version that is still to come")
        if len({pki.public_bytes(site.public_key) for site in self.sites}) < len(names):
            raise ValueError("two sites have the same key")

    @cached_property
    def signer(self) -> x509.Certificate:
        return pki.read_authority_certificate(self.authority, self.consortium)

    @property
    def public_key(self) -> Ed25519PublicKey:
        key = self.signer.public_key()
        assert isinstance(key, Ed25519PublicKey)
        return key

    @property
    def fingerprint(self) -> str:
        """Of the authority's certificate."""
        return pki.fingerprint(self.signer)

    def site(self, name: str) -> Member:
        by_name = {site.name: site for site in self.sites}
        if name not in by_name:
            raise UserError(f"{name!r} is not a site of {self.consortium}{ending(name, list(by_name))}")
        return by_name[name]

    def members(self, t: int | None = None, since: int | None = None) -> dict[str, Member]:
        """Those of round t of a study that was packed with version `since` (this one, if None), by name.

        Without a round: all to whom there may be a link, those who join later and those who will leave among them.
        """
        since = self.version if since is None else since
        chosen = [site.may_link(since) if t is None else site.takes_part(t, since) for site in self.sites]
        return {site.name: site for site in compress(self.sites, chosen)}

    def epochs(self, since: int, rounds: int) -> list[Span]:
        """(first round, its sites by name) of every epoch of a study with so many rounds."""
        changes = [change for site in self.sites for change in (site.joined, site.left) if change]
        starts = {c.at_round for c in changes if c.version > since and c.at_round < rounds}
        spans: list[Span] = []
        for t in sorted({0, *starts}):
            names = tuple(self.members(t, since))
            if not spans or spans[-1][1] != names:
                spans.append((t, names))
        return spans

    def warnings(self, now: datetime | None = None) -> list[str]:
        """Certificates that end within 14 days, or have ended."""
        at, present = now or files.now(), [site for site in self.sites if not site.left]
        return [text for site in present if (text := pki.expiry_warning(site.name, site.parsed, at))]


def sign_roster(
    authority: pki.Authority,
    consortium: str,
    sites: Sequence[Member],
    now: datetime,
    last: Roster | None = None,
) -> Roster:
    """Sign the first version, or the one after `last`; what would be refused elsewhere is never written."""
    body = {
        "consortium": consortium,
        "version": last.version + 1 if last else 1,
        "issued": files.stamp(now),
        "history": [*last.history, last.digest] if last else [],
        "authority": pki.pem(authority.certificate),
        "sites": [site.model_dump() for site in sorted(sites, key=lambda site: site.name)],
    }
    content = files.write_signed(KIND, body, authority.key.sign)
    return Roster.read(content, "the new roster", pki.fingerprint(authority.certificate))


def check_successor(present: Roster, offered: Roster) -> bool:
    """Tell whether `offered` is a later version; False where it is the same, a UserError for all else."""
    if offered.consortium != present.consortium or offered.fingerprint != present.fingerprint:
        raise UserError(f"roster {offered.version} is of another consortium, {offered.consortium!r}.")
    if offered.digest == present.digest:
        return False
    if offered.version < present.version:
        raise UserError(f"roster {offered.version} is older than roster {present.version}, the accepted one.")
    if offered.version == present.version or offered.history[present.version - 1] != present.digest:
        what = f"roster {offered.version} does not follow from roster {present.version}, the accepted one"
        why = "there are two of one version, so the authority's folder was copied or its key stolen"
        raise UserError(f"{what}: {why}; ask its operator by telephone.")
    return True


def differences(present: Roster | None, offered: Roster) -> list[str]:
    """Describe the changes that an operator agrees to, a line each."""
    before = {site.name: site for site in present.sites} if present is not None else {}
    lines = []
    for site in offered.sites:
        old, name = before.get(site.name), site.name
        if old is None or (old.left and not site.left):
            if site.left is None:
                where = site.address or "dials out only"
                lines.append(f"{name} joins{_when(site.joined)} ({site.records} records declared, {where})")
            continue
        if site.left and not old.left:
            how = "is revoked, its links go down at once, and it is out" if site.revoked else "leaves"
            lines.append(f"{name} {how}{_when(site.left)}")
            continue
        if site.revoked and not old.revoked:
            lines.append(f"{name} is revoked, its links go down at once")
        if old.certificate != site.certificate:
            same = old.public_key == site.public_key
            lines.append(f"{name} has a new certificate" + ("" if same else " with ANOTHER KEY"))
        if old.address != site.address:
            there, here = (one.address or "no address" for one in (site, old))
            lines.append(f"{name} is found at {there} instead of {here}")
        if old.records != site.records:
            lines.append(f"{name} declares {site.records} records instead of {old.records}")
    return lines


def _when(change: Joined) -> str:
    return f" at round {change.at_round} of studies that are packed already" if change.at_round else ""
