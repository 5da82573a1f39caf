"""The meeting point of the ranks: where they find each other and leave their notes, with the run's secret alone."""

from __future__ import annotations

import secrets
import socket
import threading
import time

from gossamer.runtime.transport import frames
from gossamer.runtime.transport.base import LostError
from gossamer.runtime.transport.frames import FrameError, Line
from gossamer.runtime.transport.secret import Secret
from gossamer.runtime.transport.server import MeetingServer

PLACE = "GOSSAMER_MEETING_POINT"  # host:port, set by whoever serves it and starts the ranks
PARENT = -1  # not a rank: the process that started them
_PATIENCE = 5.0  # seconds for an answer


class ForeignError(LostError):
    """Somebody answers there, but without this run's secret."""


class MeetingNotes:
    """Notes at a meeting point; one connection, which threads share call by call."""

    def __init__(self, secret: Secret, host: str, port: int, rank: int, patience: float = _PATIENCE):
        """Within `patience` seconds, in which the place may still be opening."""
        self._secret, self._where, self._rank = secret, (host, port), rank
        self._lock, self._prefix = threading.Lock(), b""
        deadline = time.monotonic() + patience
        while True:
            try:
                self._connection = self._join(max(0.1, deadline - time.monotonic()))
                return
            except ForeignError:
                raise
            except (OSError, EOFError) as error:
                if time.monotonic() > deadline:
                    raise LostError(str(error) or "the connection was closed") from None
                time.sleep(0.05)

    def under(self, prefix: str) -> MeetingNotes:
        """The same connection, with keys of its own."""
        made = object.__new__(MeetingNotes)
        made.__dict__.update(self.__dict__)
        made._prefix = self._prefix + prefix.encode() + b"/"
        return made

    def clone(self) -> MeetingNotes:
        made = MeetingNotes(self._secret, *self._where, self._rank)
        made._prefix = self._prefix
        return made

    def read(self, key: str) -> str | None:
        found = self.get(key)
        return None if found is None else found.decode(errors="replace")

    def write(self, key: str, text: str) -> None:
        self.set(key, text.encode())

    def claim(self, key: str, text: str) -> str:
        return self._ask(b"claim", key, text.encode())[0].decode(errors="replace")

    def get(self, key: str) -> bytes | None:
        return next(iter(self._ask(b"get", key)), None)

    def set(self, key: str, text: bytes) -> None:
        self._ask(b"set", key, text)

    def add(self, key: str, number: int) -> int:
        return int(self._ask(b"add", key, str(number).encode())[0])

    def delete(self, key: str) -> bool:
        return bool(self._ask(b"delete", key))

    def close(self) -> None:
        self._connection.close()

    def _join(self, seconds: float) -> socket.socket:
        connection = socket.create_connection(self._where, timeout=min(seconds, _PATIENCE))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting = _exactly(connection, frames.GREETING)
            if not greeting.startswith(frames.MAGIC):
                raise ForeignError("what answers there is not a meeting point of gossamer")
            said = frames.hello(self._secret, greeting, secrets.token_bytes(frames.NONCE), self._rank)
            connection.sendall(said)
            answer = _exactly(connection, len(frames.REFUSED))
            if answer == frames.REFUSED:
                raise ForeignError("it has another secret")
            if answer != frames.welcome(self._secret, greeting, said):
                raise ForeignError("it does not prove the run's secret")
        except BaseException:
            connection.close()
            raise
        self._up = Line(self._secret, greeting, said, b"up")
        self._down = Line(self._secret, greeting, said, b"down")
        connection.settimeout(_PATIENCE)
        return connection

    def _ask(self, what: bytes, key: str, *values: bytes) -> list[bytes]:
        with self._lock:
            try:
                self._connection.sendall(self._up.seal([what, self._prefix + key.encode(), *values]))
                head = _exactly(self._connection, frames.HEAD)
                return self._down.open(head, _exactly(self._connection, self._down.length(head)))
            except (OSError, EOFError, FrameError) as error:
                self._connection.close()  # after half an answer nothing that follows could be read
                raise LostError(str(error) or type(error).__name__) from None


class Meeting:
    """A meeting point on this machine alone, with a secret of its own."""

    def __init__(self) -> None:
        self.secret = Secret.fresh()
        self.server = MeetingServer(self.secret)
        self.notes = MeetingNotes(self.secret, "127.0.0.1", self.server.port, PARENT)

    def environment(self) -> dict[str, str]:
        """By which a child finds it."""
        return {PLACE: f"127.0.0.1:{self.server.port}", **self.secret.environment()}

    def close(self) -> None:
        self.notes.close()
        self.server.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 16))
        if not part:
            raise EOFError("the connection was closed")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
