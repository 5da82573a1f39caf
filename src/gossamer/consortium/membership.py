"""The folder of one site: its key, which is made here and never leaves, and the roster that its operator accepted.

mercy/site.toml           what the operator fills in
mercy/site.key            private, its owner's alone
mercy/mercy.request       to send to whoever invited it
mercy/site.crt            its certificate, once a roster has it
mercy/authority.crt       whom it believes
mercy/consortium.roster   the roster that was accepted last
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from gossamer.consortium import files
from gossamer.consortium.authority import key_words, make_site_key, pem, private_pem, public_bytes
from gossamer.consortium.invite import MOST_RECORDS, Invite, Request
from gossamer.consortium.names import NONE, bind_address, check_address, now
from gossamer.consortium.roster import Roster, check_successor, differences
from gossamer.consortium.site import FILE, Site
from gossamer.errors import UserError

AUTHORITY, WAITING = "authority.crt", "roster.waiting"


def join(
    invite: Invite,
    *,
    listen: str | None,
    records: int,
    folder: Path | None = None,
    data: str | None = None,
    cap: float | None = None,
    clock: Callable[[], datetime] = now,
) -> tuple[Path, str]:
    """Make the site's folder; the request to send back, and a mark of the key to compare."""
    invite.refuse_expired(clock())
    address = check_address("--listen", listen)
    if not 1 <= records <= MOST_RECORDS:
        raise UserError(
            f"--records {records} must be a number of records: a public one, rounded as you like."
        )
    folder = Path(invite.site) if folder is None else folder
    key = make_site_key()
    request = Request.make(invite, key, address, records)
    files.make_folder(folder)
    files.write_new(folder / "site.key", private_pem(key), 0o600)
    files.write_new(folder / FILE, _site_file(invite, address, data, cap).encode())
    files.write_new(folder / f"{invite.site}.request", request)
    return folder / f"{invite.site}.request", key_words(key.public_key())


def _site_file(invite: Invite, address: str | None, data: str | None, cap: float | None) -> str:
    return f"""\
# Site {invite.site} of the consortium {invite.consortium}. It stays here; paths are relative to it.
consortium = "{invite.consortium}"
site = "{invite.site}"
authority = "{invite.authority}"  # whose signatures count

{_line("data", data and str(Path(data).absolute()), "records.csv")}  # the records; they never leave
{_line("cap", cap and float(cap), 8.0)}  # most proven ε of all studies on these records together
# test = "test.csv"  # the study's public test rows, if it has some

listen = "{bind_address(address) or NONE}"  # where this machine listens; none: it only dials out
rosters = "ask"  # ask: a new roster waits for `gossamer pki accept`; auto: the authority's word is enough
durable = "on"  # all is on disk before anything is sent; off is quicker, and a crash costs the last rounds
"""


def _line(key: str, value: str | float | None, example: str | float) -> str:
    """What was said, or a line to fill in. Text is written in JSON's way, which is TOML's too."""
    return f"# {key} = {json.dumps(example)}" if value is None else f"{key} = {json.dumps(value)}"


def accept(
    path: Path,
    content: bytes,
    where: str,
    agree: Callable[[Sequence[str]], bool],
    clock: Callable[[], datetime] = now,
) -> tuple[Roster, list[str]]:
    """Make a roster the site's own, if it follows from what is held and the operator agrees; with what to know."""
    site = Site.begun(path)
    offered = Roster.read(content, where, site.asked.authority)
    if offered.consortium != site.asked.consortium:
        raise UserError(
            f"{where} is of the consortium {offered.consortium!r}, and this site is in {site.asked.consortium!r}."
        )
    with files.locked(path.parent):
        held = site.roster() if site.roster_file.exists() else None
        new = held is None or check_successor(held, offered)
        entry = next((one for one in offered.sites if one.name == site.name), None)
        if held is None and entry is None:
            raise UserError(
                f"{where} (version {offered.version}) does not have {site.name} yet; send its request, then ask for "
                "the next version."
            )
        if (
            entry is not None
            and entry.left is None
            and public_bytes(entry.public_key) != public_bytes(site.key())
        ):
            raise UserError(
                f"{where} has another key of {site.name} than {site.key_file}: somebody else answered the invite; tell "
                "whoever runs the consortium at once."
            )
        if new and not agree(differences(held, offered)):
            stays = f"roster {held.version} stays" if held else "there is none yet"
            raise UserError(f"roster {offered.version} was not accepted; {stays}.")
        if entry is not None:
            files.write(site.certificate_file, entry.certificate.encode())
        files.write(path.parent / AUTHORITY, pem(offered.authority).encode())
        files.write(site.roster_file, offered.content)  # last: what it says holds from here on
    return offered, offered.warnings(clock())


def offered(
    path: Path, content: bytes, where: str, clock: Callable[[], datetime] = now
) -> tuple[Roster | None, str]:
    """A roster that came over a link: the site's own from now on where site.toml says "auto", else kept for a word.

    With a sentence for the log; one that does not follow from what is held is refused as `accept` does.
    """
    site = Site.begun(path)
    if site.asked.rosters == "auto":
        made, _ = accept(path, content, where, lambda changes: True, clock)
        return made, f"roster {made.version} is accepted, as site.toml says"
    new = Roster.read(content, where, site.asked.authority)
    if not check_successor(site.roster(), new):
        return None, f"roster {new.version} is held already"
    files.write(path.parent / WAITING, content)
    return None, f"roster {new.version} waits for a word: gossamer pki accept {path.parent / WAITING}"
