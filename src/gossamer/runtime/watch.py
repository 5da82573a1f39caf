"""Who is to blame when a run of several processes ends: every rank says where it is, and the first to fail says why.

This is beside the messages, never in their way: each rank writes a line about itself to the ranks' common notes about
once a second, and reads the others' only once something has gone wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from gossamer.errors import UserError
from gossamer.runtime.forms import FormError, count, maybe, row, shown
from gossamer.runtime.transport.base import LostError, Notes, SilentError

_LINE = row(count, count, maybe(count))  # beats, round, the rank waited for
FAILURE, KILLED = "gossamer/failure", "gossamer/killed"


class RankError(UserError):
    """A rank died, hung or refused: one sentence that says which, and in which round."""


def name_of(rank: int, blocks: Sequence[range]) -> str:
    block = blocks[rank]
    nodes = f"node {block.start}" if len(block) == 1 else f"nodes {block.start}–{block.stop - 1}"
    return f"rank {rank} ({nodes})"


class Watch:
    """This rank's line in the notes, and what the others' lines tell."""

    def __init__(self, notes: Notes, rank: int, blocks: Sequence[range], timeout: float):
        self._notes, self._rank, self._blocks, self._timeout = notes, rank, blocks, timeout
        self._every = min(1.0, timeout / 10)
        self._at: tuple[int, int | None] = (0, None)  # the round, and the rank waited for
        self._begun: int | None = None  # the round of the run, where somebody counts them
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="gossamer-watch")
        self._thread.start()

    def begin(self, round_: int) -> None:
        """From now on it is this round, whichever of its exchanges is under way."""
        self._begun = round_

    def round_of(self, exchange: int) -> int:
        return exchange if self._begun is None else self._begun

    def computing(self, exchange: int) -> None:
        self._at = (self.round_of(exchange), None)

    def waiting(self, exchange: int, rank: int) -> None:
        self._at = (self.round_of(exchange), rank)

    @property
    def round(self) -> int:
        return self._at[0]

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=0.5)  # it may still be connecting; nobody needs to wait for that

    def lost(self, rank: int, error: LostError) -> RankError:
        """This rank got nothing from that one. What everybody will say about it, whoever found it first."""
        said, silent = self._read(FAILURE), isinstance(error, SilentError)
        if said is None and not silent and self._lives(rank):
            # Its connection broke but it is there: it has given up on somebody else and is about to say on whom.
            deadline = time.monotonic() + 10 * self._every
            while said is None and time.monotonic() < deadline:
                time.sleep(self._every / 4)
                said = self._read(FAILURE)
        if said is not None:
            return RankError(shown(said))
        killed = self._read(KILLED)
        # By whoever started it: surer than anything the messages tell.
        if killed is not None and killed.isdecimal() and int(killed) < len(self._blocks):
            return self.tell(f"{name_of(int(killed), self._blocks)} ended in round {self.round}")
        if not silent:
            return self.tell(f"{name_of(rank, self._blocks)} ended in round {self.round}")
        culprit, at, how = self._follow(rank)
        return self.tell(f"{name_of(culprit, self._blocks)} {how} in round {at}")

    def terminated(self) -> RankError | None:
        """Somebody ends this process. What everybody says, if that is because another rank has ended; None if not."""
        ranks = [rank for rank in range(len(self._blocks)) if rank != self._rank]
        before = [self._line(rank) for rank in ranks]
        if self._read(FAILURE) is None:
            time.sleep(2.5 * self._every)
        if (said := self._read(FAILURE)) is not None:
            return RankError(shown(said))
        # Where the notes are gone nobody's line can be read: the first rank held them.
        still = [rank for rank, line in zip(ranks, before, strict=True) if self._line(rank) == line]
        return self.tell(f"{name_of(still[0], self._blocks)} ended in round {self.round}") if still else None

    def tell(self, sentence: str) -> RankError:
        """Say why the run ends, unless somebody has said so before."""
        try:
            return RankError(shown(self._notes.claim(FAILURE, sentence)))
        except (
            LostError
        ):  # the notes are gone with the process that held them: all are left with what they saw
            return RankError(f"{sentence}; the ranks' meeting point is gone too")

    def _read(self, key: str) -> str | None:
        try:
            return self._notes.read(key)
        except LostError:
            return None

    def _follow(self, rank: int) -> tuple[int, int, str]:
        """From the rank waited for to the one it waits for, and so on, to one that waits for nobody."""
        at, seen = self.round, {self._rank}
        while True:
            line = self._line(rank) if self._lives(rank) else None
            if line is None:
                return rank, at, f"has not answered for {self._timeout:g} s"
            _, there, waits_for = line
            if waits_for is None:
                return rank, there, f"has kept the others waiting for {self._timeout:g} s"
            if waits_for in seen or waits_for >= len(self._blocks):
                return rank, there, f"has not answered for {self._timeout:g} s"
            seen.add(rank)
            rank, at = waits_for, there

    def _lives(self, rank: int) -> bool:
        """Does it still write its line?"""
        before = self._line(rank)
        time.sleep(2.5 * self._every)
        return self._line(rank) != before

    def _line(self, rank: int) -> tuple[int, int, int | None] | None:
        """What it wrote about itself, if that is three numbers."""
        line = self._read(f"gossamer/at/{rank}")
        try:
            beats, at, waits_for = _LINE(json.loads(line or "null"))
        except (ValueError, RecursionError, FormError):
            return None
        return beats, at, waits_for

    def _beat(self) -> None:
        count = 0
        try:
            notes = self._notes.clone()
            while True:
                count += 1
                notes.write(f"gossamer/at/{self._rank}", json.dumps([count, *self._at]))
                if self._ended.wait(self._every):
                    return
        except LostError:
            return  # nobody is left to read it
