"""The secret of a relay, and message authentication codes by keys derived from it."""

from __future__ import annotations

import hmac
import os
import stat
import struct
from pathlib import Path

from gossamer.errors import UserError

VARIABLE, FILE = "GOSSAMER_SECRET", "GOSSAMER_SECRET_FILE"
SHORTEST = 32  # characters: as many random hexadecimal digits are 128 bits
TAG = 32  # bytes of a seal


class Seal:
    """A key for one purpose: HMAC-SHA256 over parts that cannot run into each other."""

    def __init__(self, key: bytes):
        self._key = key

    def tag(self, *parts: bytes | memoryview) -> bytes:
        code = hmac.new(self._key, digestmod="sha256")
        for part in parts:
            code.update(struct.pack("<Q", len(part)))
            code.update(part)
        return code.digest()

    def fits(self, tag: bytes, *parts: bytes | memoryview) -> bool:
        return hmac.compare_digest(tag, self.tag(*parts))


class Secret(Seal):
    """Never shown, never written, never sent."""

    def __init__(self, text: str):
        super().__init__(text.encode())

    @classmethod
    def of_environment(cls) -> Secret | None:
        """From the file that GOSSAMER_SECRET_FILE names, or from GOSSAMER_SECRET itself; None where neither is set."""
        named = os.environ.get(FILE)
        if named:
            return cls(_long_enough(_content(Path(named)), f"the secret in {FILE} = {named}"))
        text = os.environ.get(VARIABLE)
        return cls(_long_enough(text.strip(), f"the secret in {VARIABLE}")) if text else None


def _content(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{FILE} = {path} is not a file; name one with the relay's secret in it.")
        if status.st_mode & 0o077:
            raise UserError(f"{FILE} = {path} can be read by other users; run `chmod 600 {path}`.")
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UserError(f"{FILE} = {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{FILE} = {path} is not text; `openssl rand -hex 32` prints a secret.") from None


def _long_enough(text: str, what: str) -> str:
    if len(text) < SHORTEST:
        raise UserError(
            f"{what} has {len(text)} characters, but {SHORTEST} are needed; `openssl rand -hex 32` prints one."
        )
    return text
