"""A bad network in user space: a proxy of TCP connections with delay, a rate, cuts, silence and flipped bytes.

`Chaos(port)` listens at `.port` and passes on to `port`. What is set takes effect at once, on open connections too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

_PIECE = 1 << 14
Result = TypeVar("Result")


class Chaos:
    def __init__(self, port: int, delay: float = 0.0, rate: float | None = None):
        """`delay`: seconds one way; `rate`: bytes a second and direction, None: unlimited."""
        self.delay, self.rate = delay, rate
        self.frozen = False  # half-open: connections stay, nothing passes
        self.refusing = False  # new connections are closed at once
        self.corrupt_after: int | None = None  # flip one bit once so many bytes have passed from here on
        self.passed = 0  # bytes, both ways
        self.accepted = 0
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self._whole: set[asyncio.StreamWriter] = set()  # the near ends of connections that reach the target
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(lambda: asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def _run(self, make: Callable[[], object]) -> asyncio.Server:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)  # type: ignore[arg-type]

    def cut(self) -> None:
        """All connections, with a reset and not a farewell."""
        self._run(self._cut)

    def cut_some(self, share: float, pick: random.Random) -> int:
        """Each connection with this probability; how many it were."""

        async def some() -> int:
            hit = [writer for writer in self._whole if pick.random() < share]
            for writer in hit:
                writer.transport.abort()
            return len(hit)

        return int(asyncio.run_coroutine_threadsafe(some(), self._loop).result(10))

    @property
    def connections(self) -> int:
        return len(self._whole)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    def close(self) -> None:
        self._run(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.02)  # transports say farewell in the loop's next turn

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            if self.refusing:
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(far_writer)
            self._whole.add(writer)
            try:
                with contextlib.suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as both:
                        both.create_task(self._pass(reader, far_writer))
                        both.create_task(self._pass(far_reader, writer))
            finally:
                self._open.discard(far_writer)
                self._whole.discard(writer)
                far_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises when either end is gone, which ends the other direction as well."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take(reader, line))
            both.create_task(self._give(line, writer))

    async def _take(self, reader: asyncio.StreamReader, line: asyncio.Queue[tuple[float, bytes]]) -> None:
        free = time.monotonic()  # when the wire is free again
        while True:
            data = await reader.read(_PIECE)
            if not data:
                raise ConnectionError
            now = time.monotonic()
            free = max(now, free) + (len(data) / self.rate if self.rate else 0.0)
            await line.put((free + self.delay, data))

    async def _give(self, line: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await line.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            while self.frozen:
                await asyncio.sleep(0.02)
            self.passed += len(data)
            if self.corrupt_after is not None:
                self.corrupt_after -= len(data)
                if self.corrupt_after < 0:
                    self.corrupt_after = None
                    data = bytes([data[0] ^ 1]) + data[1:]
            writer.write(data)
            await writer.drain()
