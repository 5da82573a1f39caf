"""What an operator should read of the links: one sentence each, and none of them over and over."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict

LOG = logging.getLogger("gossamer.peers")
_REMEMBERED = 256


class Notices:
    """Says a sentence again only after a while: what others cause must not fill a disk."""

    def __init__(self, again: float = 60.0):
        self._again = again
        self._said: OrderedDict[str, float] = OrderedDict()

    def say(self, sentence: str) -> None:
        sentence, now = plain(sentence, 400), time.monotonic()
        if now - self._said.get(sentence, -self._again) < self._again:
            return
        self._said[sentence] = now
        self._said.move_to_end(sentence)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        LOG.warning("%s", sentence)


def plain(text: str, most: int = 200) -> str:
    """One line of printable characters, whoever wrote it."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:most])
