"""A meeting point for two sites of which neither can listen: it splices TCP, and TLS stays between the two.

The relay has a port for each such site (its front, the address in the roster) and one for the sites themselves (its
back). A site's `Agent` dials the back, proves its token, and waits there with a few connections. Whoever comes to the
front is spliced to one of them, and the agent to the site's own listener on its loopback. The relay holds no
certificate and sees what anybody on the way sees: who speaks to whom, when and how much.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gossamer.consortium.loop import count_resets, run
from gossamer.consortium.notices import LOG, Notices
from gossamer.consortium.secret import TAG, Seal, Secret
from gossamer.errors import UserError

_GREETING, _NONCE, _NAME = b"gossamer relay 1", 32, 255  # bytes
_WAIT, _COME, _HERE = b".", b"!", b"+"
_PIECE = 1 << 16  # bytes under way in each direction of a splice
_WAITING = 4  # idle connections of a site
_FAILURES = (OSError, EOFError, TimeoutError)  # of the network, all of them ordinary


@dataclass(frozen=True)
class Limits:
    splices: int = 64  # of one site at once, those that still wait for it among them
    unproven: int = 32  # connections at the back that have not shown a token yet
    patience: float = 5.0  # seconds for a proof, for a site, for its answer
    beat: float = 10.0  # seconds between two signs of life to an idle connection
    idle: float = 60.0  # seconds without a byte after which a splice is closed


def token(secret: Secret, site: str) -> str:
    """What the relay's operator gives to a site; of no use to another one."""
    return secret.tag(b"token of a site at a relay", site.encode()).hex()


def relay(secret: Secret, back: str, fronts: Mapping[str, str], limits: Limits | None = None) -> None:
    """Serve until interrupted. `fronts`: for each site the host:port at which others reach it."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_forever(Relay(secret, back, fronts, limits)))


async def _forever(made: Relay) -> None:
    count_resets(asyncio.get_running_loop())
    async with made.serve():
        await asyncio.Event().wait()


@dataclass
class _Idle:
    """A connection of a site that waits for a caller."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    called: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)


class _Site:
    def __init__(self) -> None:
        self.idle: list[_Idle] = []
        self.more = asyncio.Event()
        self.splices = 0


class Relay:
    def __init__(self, secret: Secret, back: str, fronts: Mapping[str, str], limits: Limits | None = None):
        self._secret, self._back, self._fronts = secret, back, dict(fronts)
        self._limits, self._notices = limits or Limits(), Notices()
        self._sites = {name: _Site() for name in fronts}
        self._unproven = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.back_port = 0
        self.ports: dict[str, int] = {}  # of the fronts

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Relay]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._end)
            self.back_port = await self._listen(stack, "back", self._back, self._answer_site)
            for name, place in self._fronts.items():

                async def answer(
                    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name
                ) -> None:
                    await self._answer_caller(name, reader, writer)

                self.ports[name] = await self._listen(stack, name, place, answer)
            yield self

    async def _listen(
        self,
        stack: contextlib.AsyncExitStack,
        what: str,
        place: str,
        answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> int:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await answer(reader, writer)
            except (*_FAILURES, asyncio.CancelledError):  # asyncio would write a traceback of the latter
                pass
            finally:
                self._tasks.discard(task)
                writer.transport.abort()

        host, port = _split(what, place)
        try:
            server = await asyncio.start_server(guarded, host, port, limit=_PIECE)
        except OSError as error:
            raise UserError(f"{what} = {place!r} cannot be used: {error.strerror or error}.") from None
        stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer_site(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unproven >= self._limits.unproven:
            return
        self._unproven += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                site = await self._proven(reader, writer)
        finally:
            self._unproven -= 1
        if site is None:
            self._notices.say("refused a connection at the back: it shows no site's token.")
            return
        idle = _Idle(reader, writer)
        site.idle.append(idle)
        site.more.set()
        if len(site.idle) > _WAITING:
            oldest = site.idle.pop(0)  # likely dead
            oldest.called.set()
            oldest.finished.set()
        try:
            await self._keep(idle)
        finally:
            if idle in site.idle:
                site.idle.remove(idle)
        await idle.finished.wait()

    async def _proven(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Site | None:
        nonce = secrets.token_bytes(_NONCE)
        writer.write(_GREETING + nonce)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        tag = await reader.readexactly(TAG)
        site = name.decode(errors="replace")
        if not _seal(token(self._secret, site)).fits(tag, nonce, name):
            return None
        return self._sites.get(site)

    async def _keep(self, idle: _Idle) -> None:
        """Until a caller comes; an error if the site goes first."""
        called = asyncio.create_task(idle.called.wait())
        try:
            while not idle.called.is_set():
                idle.writer.write(_WAIT)
                await idle.writer.drain()
                await asyncio.wait({called}, timeout=self._limits.beat)
                if idle.reader.at_eof():
                    raise EOFError
        finally:
            called.cancel()

    async def _answer_caller(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        site = self._sites[name]
        if site.splices >= self._limits.splices:
            self._notices.say(f"refused a connection to {name!r}: it has {site.splices} already.")
            return
        site.splices += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                idle = await self._called(site)
            try:
                await splice(reader, writer, idle.reader, idle.writer, self._limits.idle)
            finally:
                idle.finished.set()
        except TimeoutError:
            self._notices.say(f"refused a connection to {name!r}: the site is not here.")
        finally:
            site.splices -= 1

    async def _called(self, site: _Site) -> _Idle:
        """A connection of the site that answers, the newest first."""
        while True:
            while not site.idle:
                site.more.clear()
                await site.more.wait()
            idle = site.idle.pop()
            idle.called.set()
            try:
                idle.writer.write(_COME)
                async with asyncio.timeout(self._limits.patience / 4):
                    if await idle.reader.readexactly(1) == _HERE:
                        return idle
            except _FAILURES:
                pass
            except asyncio.CancelledError:
                idle.finished.set()
                raise
            idle.finished.set()


class Agent:
    """At a site: waits at a relay and hands callers to the listener on this machine's `port`. `close` when done."""

    def __init__(self, relay: str, site: str, token: str, port: int, limits: Limits | None = None):
        self._relay, self._site, self._port = _split("relay", relay), site.encode(), port
        if not 0 < len(self._site) <= _NAME:
            raise UserError(f"site = {site!r} must have 1 … {_NAME} bytes.")
        self._seal, self._limits, self._notices = _seal(token), limits or Limits(), Notices()
        self._splices: set[asyncio.Task[None]] = set()
        self._standing: list[asyncio.Task[None]] = run(self._start(), seconds=10)

    def close(self) -> None:
        run(self._close(), seconds=10)

    async def _start(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._stand()) for _ in range(_WAITING // 2)]

    async def _close(self) -> None:
        for tasks in (self._standing, list(self._splices)):  # in this order: those who stand begin splices
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stand(self) -> None:
        """One connection at the relay after the other; each that is called goes on as a splice."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            try:
                reader, writer = await self._called()
            except _FAILURES as error:
                self._notices.say(f"no connection to the relay: {error or type(error).__name__}.")
                pause = min(max(2 * pause, 0.1), 5.0)
                continue
            pause = 0.0
            task = asyncio.create_task(self._hand_on(reader, writer))
            self._splices.add(task)
            task.add_done_callback(self._splices.discard)

    async def _called(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection for which a caller has come."""
        async with asyncio.timeout(self._limits.patience):
            reader, writer = await asyncio.open_connection(*self._relay, limit=_PIECE)
        try:
            async with asyncio.timeout(self._limits.patience):
                if await reader.readexactly(len(_GREETING)) != _GREETING:
                    raise EOFError("what answers there is not a relay of gossamer")
                tag = self._seal.tag(await reader.readexactly(_NONCE), self._site)
            writer.write(bytes([len(self._site)]) + self._site + tag)
            said = _WAIT
            while said == _WAIT:
                async with asyncio.timeout(3 * self._limits.beat):
                    said = await reader.read(1)
            if said != _COME:
                raise EOFError("it does not take this site's token, has no front for it, or has ended")
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            near_reader, near_writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_PIECE)
            writer.write(_HERE)
            await splice(reader, writer, near_reader, near_writer, self._limits.idle)
        except _FAILURES as error:
            LOG.debug("a caller from the relay is gone: %s", error)
        finally:
            writer.transport.abort()


async def splice(
    one_reader: asyncio.StreamReader,
    one_writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
    idle: float,
) -> None:
    """Bytes both ways until both have ended, one has failed, or nothing came for `idle` seconds. Closes both."""
    heard = time.monotonic()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        while data := await reader.read(_PIECE):
            heard = time.monotonic()
            writer.write(data)
            await writer.drain()  # who sends faster than the other reads waits here
        with contextlib.suppress(OSError):
            writer.write_eof()

    pumps = {
        asyncio.create_task(pump(one_reader, other_writer)),
        asyncio.create_task(pump(other_reader, one_writer)),
    }
    left = pumps
    try:
        while left and (rest := heard + idle - time.monotonic()) > 0:
            done, left = await asyncio.wait(left, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() is not None for task in done):
                break
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for writer in (one_writer, other_writer):
            writer.close() if not left else writer.transport.abort()
    with contextlib.suppress(*_FAILURES):  # what an orderly end has left in the buffers goes out first
        async with asyncio.timeout(idle):
            await asyncio.gather(one_writer.wait_closed(), other_writer.wait_closed())


def _seal(given: str) -> Seal:
    try:
        return Seal(bytes.fromhex(given))
    except ValueError:
        raise UserError(
            "the token for the relay is not hexadecimal; ask the relay's operator for it."
        ) from None


def _split(what: str, place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{what} = {place!r} must be host:port.")
    return host.strip("[]"), int(port)
