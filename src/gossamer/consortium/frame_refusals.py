"""Frames that were refused, a sentence each for the log; a member who sends a million of them does not fill a disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger("gossamer.peers")
MOST, AGAIN = 20, 60.0  # sentences about one site in so many seconds


class Refusals:
    """All are counted; of one site at most `MOST` a minute are written, and later how many were not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self.count = 0
        self._said: dict[str, tuple[float, int]] = {}  # site → since when, how many since then

    def say(self, site: str, why: object) -> None:
        """`site`: a name that a connection has proven, so there are few."""
        self.count += 1
        now = self._clock()
        since, found = self._said.get(site, (now, 0))
        if now - since >= AGAIN:
            if found > MOST:
                LOG.warning("%d more frames of %s were refused", found - MOST, site)
            since, found = now, 0
        self._said[site] = since, found + 1
        if found < MOST:
            LOG.warning("a frame of %s was refused: %s", site, why)
        elif found == MOST:
            LOG.warning("further frames of %s are refused without a word for a minute", site)
