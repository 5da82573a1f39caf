"""The folder of a consortium's operator: the authority's key, the open invites, the newest roster.

north/authority.key     private, its owner's alone
north/north.roster      the newest version, signed: what all sites get
north/mercy.invite      an open invite, private
north/*.study           the studies that were packed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossamer.consortium import authority as pki
from gossamer.consortium import files
from gossamer.consortium.authority import Authority, Invite
from gossamer.consortium.files import Name, check_field, now, stamp
from gossamer.consortium.roster import Joined, Left, Member, Roster, Round, sign_roster
from gossamer.errors import UserError
from gossamer.results.rundir import read_private
from gossamer.results.signatures import private_pem, read_private_key

KEY = "authority.key"
INVITE_DAYS = 7

Clock = Callable[[], datetime]


class Coordinator:
    """The holder of the authority's key. Every change is one new version of the roster, written at once or not."""

    def __init__(self, folder: Path, clock: Clock = now):
        self.folder, self._clock = folder, clock
        self._key: Ed25519PrivateKey = read_private_key(folder / KEY, Ed25519PrivateKey)
        self.roster()

    @classmethod
    def init(cls, name: str, folder: Path | None = None, clock: Clock = now) -> Coordinator:
        check_field(Name, "the consortium's name", name)
        folder = Path(name) if folder is None else folder
        authority = pki.make_authority(name, clock())
        roster = sign_roster(authority, name, [], clock())
        files.make_folder(folder)
        files.write(folder / KEY, private_pem(authority.key), 0o600, new=True)
        files.write(folder / f"{name}.roster", roster.content, new=True)
        return cls(folder, clock)

    @classmethod
    def find(cls, folder: Path | None, clock: Clock = now) -> Coordinator:
        """Open the folder that was named, this one, or the only one here."""
        return cls(files.only_folder_with(KEY, "--dir", "consortium's folder", folder), clock)

    @property
    def roster_file(self) -> Path:
        rosters = sorted(self.folder.glob("*.roster"))
        if len(rosters) != 1:
            raise UserError(f"{self.folder} must hold one file *.roster, and has {len(rosters)}; restore it.")
        return rosters[0]

    def roster(self) -> Roster:
        path = self.roster_file
        roster = Roster.read(files.read(path), str(path))
        if roster.public_key != self._key.public_key():
            raise UserError(f"{self.folder / KEY} is not the key that signed {path}; restore both.")
        return roster

    @property
    def authority(self) -> Authority:
        return Authority(self._key, self.roster().signer)

    def invite(self, site: str, days: float = INVITE_DAYS) -> Invite:
        """Make a new invite; an open one of the same site is good no longer."""
        check_field(Name, "the site's name", site)
        if not 0 < days <= 90:
            raise UserError(f"--days {days:g} must be more than 0 and at most 90.")
        with files.locked(self.folder / KEY):
            roster, ends = self.roster(), stamp(self._clock() + timedelta(days=days))
            name, mark = roster.consortium, roster.fingerprint
            invite = Invite(consortium=name, site=site, authority=mark, expires=ends)
            files.write(self._invite_file(site), f"{invite.text()}\n".encode(), 0o600)
        return invite

    def approve(self, site: str, request: bytes, where: str, at_round: int = 0) -> tuple[Roster, str]:
        """Return the roster with the site in it, and a mark of its key to compare with what the site sees."""
        check_field(Name, "the site's name", site)
        check_field(Round, "--at-round", at_round)
        with files.locked(self.folder / KEY):
            roster = self.roster()
            requested = pki.read_request(request, self._open_invite(site), where)
            key = requested.key()
            if any(member.public_key == key for member in roster.sites):
                raise UserError(f"{where} asks for a key that another site has; join again.")
            old = next((member for member in roster.sites if member.name == site), None)
            # A site that lost its key keeps its node; one that had left joins again.
            joined = old.joined if old and not old.left else None
            member = Member(
                name=site,
                certificate=self._certificate(roster, site, key),
                address=requested.address,
                records=requested.records,
                joined=joined or Joined(version=roster.version + 1, at_round=at_round),
            )
            published = self._publish(roster, {site: member})
            self._invite_file(site).unlink(missing_ok=True)  # good once
        return published, pki.key_words(key)

    def revoke(self, site: str, at_round: int = 0) -> Roster:
        """Remove a site at once, whose key is lost or who broke the rules; the others continue without it."""
        return self._remove(site, at_round, revoked=True)

    def leave(self, site: str, at_round: int) -> Roster:
        """Remove a site as agreed: it takes part until the round."""
        return self._remove(site, at_round, revoked=False)

    def renew(self, names: Sequence[str] = ()) -> tuple[Roster, list[str]]:
        """Make new certificates for the same keys: of these sites, or of all that end within 14 days."""
        with files.locked(self.folder / KEY):
            roster, today = self.roster(), self._clock()
            active = {site.name: site for site in roster.sites if site.left is None}
            for name in names:
                if roster.site(name).name not in active:
                    raise UserError(f"{name} has left; `gossamer pki invite {name}` lets it in again.")
            left = {name: pki.days_left(site.parsed, today) for name, site in active.items()}
            due = sorted(set(names)) or [name for name in active if left[name] < pki.WARN_DAYS]
            if not due:
                return roster, []
            changed = {}
            for name in due:
                certificate = self._certificate(roster, name, active[name].public_key)
                changed[name] = active[name].model_copy(update={"certificate": certificate})
            return self._publish(roster, changed), due

    def _certificate(self, roster: Roster, site: str, key: EllipticCurvePublicKey) -> str:
        return pki.pem(pki.issue(self.authority, roster.consortium, site, key, self._clock()))

    def _remove(self, name: str, at_round: int, *, revoked: bool) -> Roster:
        check_field(Round, "--at-round", at_round)
        with files.locked(self.folder / KEY):
            roster = self.roster()
            site = roster.site(name)
            if site.left is not None and (site.left.revoked or not revoked):
                raise UserError(f"{name} has left already, in roster {site.left.version}.")
            left = Left(version=roster.version + 1, at_round=at_round, revoked=revoked)
            if site.left is not None and not at_round:
                # Its links go down, and it is out when it would have been.
                left = site.left.model_copy(update={"revoked": True})
            published = self._publish(roster, {name: site.model_copy(update={"left": left})})
            self._invite_file(name).unlink(missing_ok=True)
        return published

    def _publish(self, last: Roster, changed: Mapping[str, Member]) -> Roster:
        """Write the next version, in which these sites are new or changed."""
        members = {**{site.name: site for site in last.sites}, **changed}
        roster = sign_roster(self.authority, last.consortium, list(members.values()), self._clock(), last)
        files.write(self.roster_file, roster.content)
        return roster

    def _open_invite(self, site: str) -> Invite:
        path = self._invite_file(site)
        if not path.exists():
            raise UserError(f"no invite of {site!r} is open; `gossamer pki invite {site}` makes one.")
        invite = Invite.read(read_private(path).decode(errors="replace"))
        if invite.site != site:
            raise UserError(f"{path} is an invite of {invite.site}, not of {site}; invite {site} again.")
        invite.check_expiry(self._clock())
        return invite

    def _invite_file(self, site: str) -> Path:
        return self.folder / f"{site}.invite"
