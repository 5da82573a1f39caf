"""The secret of a run: whoever has it belongs to the run. Every proof and every seal is derived from it, here."""

from __future__ import annotations

import hmac
import os
import secrets
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
        made = hmac.new(self._key, digestmod="sha256")
        for part in parts:
            made.update(struct.pack("<Q", len(part)))
            made.update(part)
        return made.digest()

    def fits(self, tag: bytes, *parts: bytes | memoryview) -> bool:
        return hmac.compare_digest(tag, self.tag(*parts))

    def derive(self, *parts: bytes) -> Seal:
        return Seal(self.tag(b"derive", *parts))


class Secret(Seal):
    """Never shown, never written, never sent."""

    def __init__(self, text: str):
        super().__init__(text.encode())
        self._text = text

    @classmethod
    def fresh(cls) -> Secret:
        return cls(secrets.token_hex(32))

    @classmethod
    def of_environment(cls) -> Secret | None:
        """From the file that GOSSAMER_SECRET_FILE names, or from GOSSAMER_SECRET itself; None where neither is set."""
        named = os.environ.get(FILE)
        if named:
            return cls(_long_enough(_content(Path(named)), f"the secret in {FILE} = {named}"))
        text = os.environ.get(VARIABLE)
        return cls(_long_enough(text.strip(), f"the secret in {VARIABLE}")) if text else None

    def environment(self) -> dict[str, str]:
        """For a child process of ours; a file that was named for us is not the child's."""
        return {VARIABLE: self._text, FILE: ""}


def _content(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{FILE} = {path} is not a file; name one with the run's secret in it.")
        if found.st_mode & 0o077:
            raise UserError(f"{FILE} = {path} can be read by other users; `chmod 600 {path}` mends that.")
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UserError(f"{FILE} = {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{FILE} = {path} is not text; `openssl rand -hex 32` makes a secret.") from None


def _long_enough(text: str, what: str) -> str:
    if len(text) < SHORTEST:
        raise UserError(
            f"{what} has {len(text)} characters, but {SHORTEST} are needed; `openssl rand -hex 32` makes one."
        )
    return text
