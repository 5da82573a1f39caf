"""The server of the ranks' meeting point: a few short texts, for those alone who prove the run's secret.

One thread, nothing blocks. What strangers can do is connect: they are given a fixed number of bytes, five seconds and
`MOST_STRANGERS` places, the oldest of which gives way to the next. Ranks that have joined do not notice.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from contextlib import suppress

from gossamer.runtime.transport import frames
from gossamer.runtime.transport.base import LostError, count_resets
from gossamer.runtime.transport.frames import FrameError, Line
from gossamer.runtime.transport.secret import Secret

MOST_STRANGERS = 64
MOST_BYTES = 1 << 26  # of all texts together
_PATIENCE = 5.0  # seconds for a handshake


class MeetingServer:
    """Serves from its making to `close`, or to the end of the process."""

    def __init__(self, secret: Secret, host: str = "127.0.0.1", port: int = 0):
        self._secret, self._texts, self._bytes = secret, dict[bytes, bytes](), 0
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # in the order of their coming
        self._connections: set[asyncio.StreamWriter] = set()
        self.joined = 0  # connections that have proven the secret and are still there
        self._loop = asyncio.new_event_loop()
        count_resets(self._loop)
        # In a thread of its own from the start: the caller's may have a loop already, as in a notebook.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="gossamer-meeting")
        self._thread.start()
        starting = asyncio.start_server(self._serve, host, port, limit=frames.MOST + frames.HEAD)
        try:
            self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        except OSError as error:
            self._stop()
            raise LostError(error.strerror or str(error)) from None
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def linger(self, seconds: float, besides: int = 0) -> None:
        """Until nobody else is connected: after a failure the others still have to read why."""
        deadline = time.monotonic() + seconds
        while self.joined > besides and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for writer in [*self._connections]:
                writer.transport.abort()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(end(), self._loop).result(5.0)
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._strangers[writer] = None
        self._connections.add(writer)
        if len(self._strangers) > MOST_STRANGERS:
            next(iter(self._strangers)).transport.abort()
        try:
            async with asyncio.timeout(_PATIENCE):
                lines = await self._handshake(reader, writer)
            if lines is None:
                return
            self._strangers.pop(writer)
            self.joined += 1
            try:
                await self._answer(reader, writer, *lines)
            finally:
                self.joined -= 1
        except (OSError, EOFError, ValueError, FrameError):  # TimeoutError is an OSError
            pass  # gone, too slow, or not one of us: nothing anybody here must hear of
        finally:
            self._strangers.pop(writer, None)
            self._connections.discard(writer)
            with suppress(Exception):
                writer.close()

    async def _handshake(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Line, Line] | None:
        greeting = frames.MAGIC + secrets.token_bytes(frames.NONCE)
        writer.write(greeting)
        said = await reader.readexactly(frames.HELLO)
        if not frames.proven(self._secret, greeting, said):
            writer.write(frames.REFUSED)
            await writer.drain()
            return None
        writer.write(frames.welcome(self._secret, greeting, said))
        return Line(self._secret, greeting, said, b"up"), Line(self._secret, greeting, said, b"down")

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: Line, down: Line
    ) -> None:
        while True:
            head = await reader.readexactly(frames.HEAD)
            content = await reader.readexactly(up.length(head))
            writer.write(down.seal(self._do(up.open(head, content))))
            await writer.drain()

    def _do(self, asked: list[bytes]) -> list[bytes]:
        """[] for: there is no such text."""
        match asked:
            case [b"get", key]:
                return [self._texts[key]] if key in self._texts else []
            case [b"set", key, text]:
                return [self._put(key, text)]
            case [b"claim", key, text]:
                return [self._texts[key] if key in self._texts else self._put(key, text)]
            case [b"add", key, number]:
                return [self._put(key, str(int(self._texts.get(key, b"0")) + int(number)).encode())]
            case [b"delete", key]:
                gone = self._texts.pop(key, None)
                self._bytes -= 0 if gone is None else len(key) + len(gone)
                return [] if gone is None else [gone]
        raise FrameError("a wish that is not known")

    def _put(self, key: bytes, text: bytes) -> bytes:
        before = self._texts.get(key)
        size = self._bytes + len(text) + (len(key) if before is None else -len(before))
        if size > MOST_BYTES:
            raise FrameError(f"more than {MOST_BYTES} bytes of texts")
        self._texts[key], self._bytes = text, size
        return text
