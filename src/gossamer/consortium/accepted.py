"""The roster that a site's operator accepted last, followed while the site takes part.

A revoked site must lose its link within seconds, however long a round takes: a thread of its own looks at the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gossamer.consortium.epochs import members_of
from gossamer.consortium.links import Links
from gossamer.consortium.ready import Ready
from gossamer.consortium.roster import Roster
from gossamer.errors import UserError

EVERY = 1.0  # seconds


class AcceptedRoster:
    """`newest()` for the rounds; the links get a new one at once."""

    def __init__(self, found: Ready, links: Links, say: Callable[[str], None], every: float = EVERY):
        self._site, self._study, self._links, self._say = found.site, found.study, links, say
        self._roster = found.roster
        self._seen: tuple[int, int] | None = None
        self._failed: UserError | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(every,), daemon=True)
        self._thread.start()

    def newest(self) -> Roster:
        """Raises what is wrong with it."""
        self._look()
        if self._failed is not None:
            raise self._failed
        return self._roster

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self, every: float) -> None:
        while not self._over.wait(every):
            self._look()

    def _look(self) -> None:
        with self._lock:
            if self._over.is_set() or self._failed is not None:
                return
            try:
                self._take_up()
            except UserError as error:
                self._failed = error
                self._links.close()  # whoever lost his right to a link has none, whatever else is wrong

    def _mark(self) -> tuple[int, int] | None:
        try:
            said = self._site.roster_file.stat()
        except OSError:
            return None
        return said.st_mtime_ns, said.st_ino

    def _take_up(self) -> None:
        mark = self._mark()
        if mark is not None and mark == self._seen:
            return
        self._seen, roster = mark, self._site.roster()
        if roster.version <= self._roster.version:
            return
        if roster.site(self._site.name).revoked:
            self._links.close()
        else:
            self._links.update(members_of(self._study, roster).values())
        self._roster = roster
        self._say(f"roster {roster.version} is accepted and holds")
