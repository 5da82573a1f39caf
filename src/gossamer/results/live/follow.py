"""The new lines of a file that is appended to while it is read; never more of it in memory than a bound."""

from __future__ import annotations

import os
from pathlib import Path

from gossamer.accounting.chain import LedgerError, open_to_read

AT_ONCE = 8 << 20  # bytes read in one look; what is left is read in the next one
LONGEST = 1 << 20  # bytes of a line; a longer one is no line that a run writes, and is passed over
_REMEMBERED = 64  # bytes before our place: where they differ, it is another file


class Follower:
    """Complete lines alone: one that is being written is left until its end is there."""

    def __init__(self, path: Path):
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._file: tuple[int, int] | None = None
        self._offset, self._before, self._rest, self._skipping = 0, b"", b"", False

    def look(self) -> tuple[bool, list[bytes]]:
        """(is it another file than before, complete lines since the last look). A missing file has none."""
        try:
            with open_to_read(self._path) as file:
                status = os.fstat(file.fileno())
                found = (status.st_dev, status.st_ino)
                other = self._file is not None and (found != self._file or status.st_size < self._offset)
                if not other and self._before:
                    file.seek(self._offset - len(self._before))
                    other = file.read(len(self._before)) != self._before
                if other:
                    self._forget()
                self._file = found
                file.seek(self._offset)
                data = file.read(AT_ONCE)
        except (OSError, LedgerError):  # not there yet, or not to be read
            gone = self._file is not None
            self._forget()
            return gone, []
        self._offset += len(data)
        self._before = (self._before + data)[-_REMEMBERED:]
        return other, self._lines(data)

    def _lines(self, data: bytes) -> list[bytes]:
        *whole, rest = (self._rest + data).split(b"\n")
        if whole and self._skipping:
            whole, self._skipping = whole[1:], False
        if len(rest) > LONGEST:
            rest, self._skipping = b"", True
        self._rest = b"" if self._skipping else rest
        return [line for line in whole if 0 < len(line) <= LONGEST]
