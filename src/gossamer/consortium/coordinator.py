"""The folder of a consortium's operator: the authority's key, the open invites, the newest roster.

north/authority.key     private, its owner's alone
north/authority.crt     its certificate
north/north.roster      the newest version, signed: what all sites get
north/mercy.invite      an open invite, private
north/*.study           the studies that were packed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from gossamer.consortium import files
from gossamer.consortium.authority import (
    WARN_DAYS,
    Authority,
    days_left,
    fingerprint,
    issue,
    key_words,
    make_authority,
    pem,
    private_pem,
    public_bytes,
    read_authority_key,
)
from gossamer.consortium.formats import check_name, now, stamp
from gossamer.consortium.invite import Invite, read_request
from gossamer.consortium.roster import MAX_ROUND, Joined, Left, Member, Roster, first_version, next_version
from gossamer.errors import UserError

KEY, CERTIFICATE = "authority.key", "authority.crt"
INVITE_DAYS = 7

Clock = Callable[[], datetime]


class Coordinator:
    """The holder of the authority's key. Every change is one new version of the roster, written at once or not."""

    def __init__(self, folder: Path, clock: Clock = now):
        self.folder, self._clock = folder, clock
        key = read_authority_key(files.read_private(folder / KEY), str(folder / KEY))
        try:
            certificate = x509.load_pem_x509_certificate(files.read(folder / CERTIFICATE))
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"{folder / CERTIFICATE} is damaged: it is not a certificate; restore it."
            ) from None
        if certificate.public_key() != key.public_key():
            raise UserError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}; restore both.")
        self.authority = Authority(key, certificate)

    @classmethod
    def init(cls, name: str, folder: Path | None = None, clock: Clock = now) -> Coordinator:
        check_name("the consortium's name", name)
        folder = Path(name) if folder is None else folder
        authority = make_authority(name, clock())
        roster = first_version(authority, name, clock())
        files.make_folder(folder)
        files.write_new(folder / KEY, private_pem(authority.key), 0o600)
        files.write_new(folder / CERTIFICATE, pem(authority.certificate).encode())
        files.write_new(folder / f"{name}.roster", roster.content)
        return cls(folder, clock)

    @classmethod
    def find(cls, folder: Path | None, clock: Clock = now) -> Coordinator:
        """In the folder that was named, in this one, or in the only one here."""
        return cls(files.only_folder_with(KEY, "--dir", "consortium's folder", folder), clock)

    @property
    def roster_file(self) -> Path:
        rosters = sorted(self.folder.glob("*.roster"))
        if len(rosters) != 1:
            raise UserError(
                f"{self.folder} must hold one file that ends in .roster, and has {len(rosters)}; restore it."
            )
        return rosters[0]

    def roster(self) -> Roster:
        path = self.roster_file
        return Roster.read(files.read(path), str(path), fingerprint(self.authority.certificate))

    def invite(self, site: str, days: float = INVITE_DAYS) -> Invite:
        """A new one; an open one of the same site is good no longer."""
        check_name("the site's name", site)
        if not 0 < days <= 90:
            raise UserError(f"--days {days:g} must be more than 0 and at most 90.")
        with files.locked(self.folder):
            roster = self.roster()
            ends = self._clock() + timedelta(days=days)
            invite = Invite(
                consortium=roster.consortium, site=site, authority=roster.fingerprint, expires=stamp(ends)
            )
            files.write(self._invite_file(site), f"{invite.text()}\n".encode(), 0o600)
        return invite

    def approve(self, site: str, request: bytes, where: str, at_round: int = 0) -> tuple[Roster, str]:
        """The roster with the site in it, and a mark of its key to compare with what the site sees."""
        check_name("the site's name", site)
        _check_round(at_round)
        with files.locked(self.folder):
            roster, invite = self.roster(), self._open_invite(site)
            requested = read_request(request, invite, where)
            members = {one.name: one for one in roster.sites}
            if any(public_bytes(one.public_key) == public_bytes(requested.key) for one in roster.sites):
                raise UserError(
                    f"{where} asks for a key that a site of {roster.consortium} has already; join again."
                )
            old = members.get(site)
            # A site that lost its key keeps its node; one that had left joins again.
            joined = (
                old.joined if old and not old.left else Joined(version=roster.version + 1, at_round=at_round)
            )
            certificate = issue(self.authority, roster.consortium, site, requested.key, self._clock())
            members[site] = Member(
                name=site,
                certificate=pem(certificate),
                address=requested.address,
                records=requested.records,
                joined=joined,
            )
            published = self._publish(roster, list(members.values()))
            self._invite_file(site).unlink(missing_ok=True)  # good once
        return published, key_words(requested.key)

    def revoke(self, site: str, at_round: int = 0) -> Roster:
        """Remove a site at once, whose key is lost or who broke the rules; the others continue without it."""
        return self._remove(site, at_round, revoked=True)

    def leave(self, site: str, at_round: int) -> Roster:
        """Remove a site as agreed: it takes part until the round."""
        return self._remove(site, at_round, revoked=False)

    def renew(self, names: Sequence[str] = ()) -> tuple[Roster, list[str]]:
        """New certificates for the same keys: of these sites, or of all that end within 14 days."""
        with files.locked(self.folder):
            roster, today = self.roster(), self._clock()
            for name in names:
                if roster.site(name).left is not None:
                    raise UserError(
                        f"{name} has left {roster.consortium}; `gossamer pki invite {name}` lets it in again."
                    )
            due = [
                site.name
                for site in roster.sites
                if site.left is None
                and (site.name in names if names else days_left(site.parsed, today) < WARN_DAYS)
            ]
            if not due:
                return roster, []
            return self._publish(
                roster, [self._renewed(s) if s.name in due else s for s in roster.sites]
            ), due

    def _renewed(self, site: Member) -> Member:
        consortium = self.roster().consortium
        certificate = issue(self.authority, consortium, site.name, site.public_key, self._clock())
        return site.model_copy(update={"certificate": pem(certificate)})

    def _remove(self, name: str, at_round: int, *, revoked: bool) -> Roster:
        _check_round(at_round)
        with files.locked(self.folder):
            roster = self.roster()
            site = roster.site(name)
            if site.left is not None and (site.left.revoked or not revoked):
                raise UserError(
                    f"{name} has left {roster.consortium} already, in roster {site.left.version}."
                )
            left = Left(version=roster.version + 1, at_round=at_round, revoked=revoked)
            if (
                site.left is not None and not at_round
            ):  # its links go down, and it is out when it would have been
                left = site.left.model_copy(update={"revoked": True})
            published = self._publish(
                roster, [s.model_copy(update={"left": left}) if s.name == name else s for s in roster.sites]
            )
            self._invite_file(name).unlink(missing_ok=True)
        return published

    def _publish(self, last: Roster, sites: Sequence[Member]) -> Roster:
        roster = next_version(self.authority, last, sites, self._clock())
        files.write(self.roster_file, roster.content)
        return roster

    def _open_invite(self, site: str) -> Invite:
        path = self._invite_file(site)
        if not path.exists():
            raise UserError(
                f"no invite of {site!r} is open: there was none, or it was answered already; "
                f"`gossamer pki invite {site}` makes one."
            )
        invite = Invite.read(files.read_private(path).decode(errors="replace"))
        if invite.site != site:
            raise UserError(
                f"{path} is an invite of {invite.site}; `gossamer pki invite {site}` makes a new one."
            )
        invite.refuse_expired(self._clock())
        return invite

    def _invite_file(self, site: str) -> Path:
        return self.folder / f"{site}.invite"


def _check_round(at_round: int) -> None:
    if not 0 <= at_round <= MAX_ROUND:
        raise UserError(f"--at-round {at_round} must be a round's number: 0 or more.")
