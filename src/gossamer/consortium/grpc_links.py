"""Links over gRPC with mutual TLS (decision 0048).

A pair of sites has one stream, dialled by either; both send over it. The listener looks up the dialler's certificate,
which TLS has verified, in the roster. The dialler trusts the roster's certificate of the listener and no other, not
even one that the authority issued in the same name.

Each message on the stream is eight bytes of number and the content; without content it acknowledges that number. What
is not acknowledged is sent again on the next connection, until its deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import grpc
from cryptography import x509

from gossamer.consortium.authority import fingerprint
from gossamer.consortium.links import LOG, MAX_MESSAGE, Arrival, Links, LogLimit, event_loop, printable, run
from gossamer.consortium.roster import Member
from gossamer.errors import UserError

SMALL = 1 << 16  # bytes: acknowledgements and the like, which must not push out a model
MAX_WAITING, MAX_WAITING_SMALL = 2, 32  # messages per link and direction
MAX_CONNECTIONS = 256  # of a listener, strangers' included
_SERVICE, _METHOD, _VERSION = "gossamer.peers.v3.Peer", "Link", "gossamer-version"
_NUMBER = struct.Struct("<Q")
_PING = 5000  # milliseconds between two pings


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    unanswered: float = 60.0  # for a ping, which waits behind a large message on a slow line
    recent: float = 15.0  # a link is suspect for so long after a failure
    handshake: float = 10.0
    redial: float = 5.0  # longest pause between two attempts
    patience: float = 3.0  # for the other site to dial, where both could
    age: float = 6 * 3600.0  # of a connection: after that, certificates are checked again


class Identity(NamedTuple):
    """A site's own name and, in PEM, its authority's certificate, its certificate and its key."""

    name: str
    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Identity({self.name})"  # never the key


Options = list[tuple[str, int | str]]


def _common_options(timeouts: Timeouts, largest: int) -> Options:
    return [
        ("grpc.max_receive_message_length", largest + _NUMBER.size),
        ("grpc.max_send_message_length", largest + _NUMBER.size),
        ("grpc.max_metadata_size", 4096),
        ("grpc.absolute_max_metadata_size", 8192),
        # Identity only: noise does not compress, and a message that grows when it is unpacked is refused.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.keepalive_time_ms", _PING),
        ("grpc.http2.ping_timeout_ms", int(timeouts.unanswered * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def listener_options(timeouts: Timeouts, largest: int) -> Options:
    return [
        *_common_options(timeouts, largest),
        ("grpc.server_handshake_timeout_ms", int(timeouts.handshake * 1000)),
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        ("grpc.max_concurrent_streams", 2),  # of one connection
        ("grpc.max_connection_idle_ms", int(timeouts.handshake * 1000)),  # without a stream
        ("grpc.max_connection_age_ms", int(timeouts.age * 1000)),
        ("grpc.max_connection_age_grace_ms", 1000),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING // 2),
        ("grpc.so_reuseport", 0),  # a second program at this address is an error
    ]


def dialler_options(timeouts: Timeouts, largest: int, name: str) -> Options:
    return [
        *_common_options(timeouts, largest),
        ("grpc.ssl_target_name_override", name),  # the certificate must be in the member's name
        ("grpc.use_local_subchannel_pool", 1),  # each attempt has a connection of its own
        ("grpc.enable_retries", 0),
    ]


def _limit(message: bytes) -> int:
    """Return how many messages of this size may wait."""
    return MAX_WAITING_SMALL if len(message) <= SMALL else MAX_WAITING


class Outbox:
    """Messages to one site that it has not acknowledged, by number."""

    def __init__(self) -> None:
        self._queue: dict[int, tuple[bytes, float]] = {}  # with deadlines
        self._numbers = itertools.count(1)
        self._sent = 0  # the last number that went over the present connection
        self.expired = -math.inf  # when a message last ran out of time, unless one was acknowledged since

    def put(self, message: bytes, deadline: float) -> None:
        """Add a message; the oldest of its size makes room for it."""
        self._expire()
        self._queue[next(self._numbers)] = message, deadline
        limit = _limit(message)
        alike = [number for number, (other, _) in self._queue.items() if _limit(other) == limit]
        if len(alike) > limit:
            del self._queue[alike[0]]

    def next(self) -> bytes | None:
        """Return the next message with its number, or None if all are under way."""
        self._expire()
        number = next((number for number in self._queue if number > self._sent), None)
        if number is None:
            return None
        self._sent = number
        return _NUMBER.pack(number) + self._queue[number][0]

    def acknowledged(self, number: int) -> None:
        self._queue.pop(number, None)
        self.expired = -math.inf

    def restart(self) -> None:
        """Send everything again: there is a new connection."""
        self._sent, self.expired = 0, -math.inf

    def is_failing(self, window: float) -> bool:
        """Tell whether a message ran out of time within so many seconds and none was acknowledged since."""
        now, waiting = time.monotonic(), list(self._queue.values())  # a copy: other threads ask
        return now - self.expired < window or any(deadline <= now for _, deadline in waiting)

    def _expire(self) -> None:
        now = time.monotonic()
        current = {number: entry for number, entry in self._queue.items() if entry[1] > now}
        if len(current) < len(self._queue):
            self.expired, self._queue = now, current


class Inbox:
    """Messages of all sites that the program has not taken; the loop puts, the program takes."""

    def __init__(self) -> None:
        self._arrived: list[tuple[Arrival, Callable[[], None]]] = []
        self._changed = threading.Condition()

    def put(self, arrival: Arrival, acknowledge: Callable[[], None]) -> None:
        """Add a message. A site that sends more than allowed pushes out its own oldest."""
        limit = _limit(arrival.message)
        with self._changed:
            own = [entry for entry in self._arrived if entry[0].sender == arrival.sender]
            alike = [entry for entry in own if _limit(entry[0].message) == limit]
            if len(alike) >= limit:
                self._arrived.remove(alike[0])
            self._arrived.append((arrival, acknowledge))
            self._changed.notify()

    def take(self, deadline: float) -> Arrival | None:
        with self._changed:
            wait = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
            if not self._changed.wait_for(lambda: self._arrived, wait):
                return None
            arrival, acknowledge = self._arrived.pop(0)
        acknowledge()
        return arrival

    def forget(self, sender: str) -> None:
        with self._changed:
            self._arrived = [entry for entry in self._arrived if entry[0].sender != sender]


class _Session:
    """A connection while it lasts; `stream` is either end of gRPC's two-way stream."""

    def __init__(self, stream: Any, dialler: str):
        self.stream, self.dialler, self.began = stream, dialler, time.monotonic()
        self.wake = asyncio.Event()  # there is something to send
        self.acknowledgements: deque[int] = deque()
        self.loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = self.loop.create_future()

    def close(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)

    def acknowledge(self, number: int) -> None:
        """Tell the sender, from any thread, that the program has taken its message."""
        if not self.closed.done():
            self.acknowledgements.append(number)
            self.loop.call_soon_threadsafe(self.wake.set)


class _Link:
    """One other site: what waits for it, and the connection, if there is one."""

    def __init__(self, own_name: str, member: Member, timeouts: Timeouts):
        self.member, self.outbox, self._timeouts = member, Outbox(), timeouts
        self.session: _Session | None = None
        self.free = asyncio.Event()  # there is no connection
        self.free.set()
        self.lost = -math.inf  # when the last one ended
        self.dialling: asyncio.Task[None] | None = None
        self.version = ""  # of the other site when it was last connected
        self._first = min(own_name, member.name)

    def connects_to(self, member: Member) -> bool:
        return (self.member.certificate, self.member.address) == (member.certificate, member.address)

    def adopt(self, session: _Session) -> bool:
        """Take the newer connection; but if both sites dialled at once, both keep that of the first by name.

        An old connection always gives way: the other site would not dial if it still had its end of it.
        """
        old = self.session
        if old is not None:
            at_once = session.began - old.began < self._timeouts.handshake
            if at_once and old.dialler == self._first != session.dialler:
                return False
            old.close("a newer connection replaced it")
        self.session = session
        self.free.clear()
        self.outbox.restart()
        return True

    def release(self, session: _Session) -> None:
        if self.session is session:
            self.session = None
            self.lost = time.monotonic()
            self.free.set()

    def state(self) -> str:
        recent = self._timeouts.recent
        if self.session is None:
            return "suspect" if time.monotonic() - self.lost < recent else "down"
        return "suspect" if self.outbox.is_failing(recent) else "up"

    def end(self, reason: str) -> None:
        if self.session is not None:
            self.session.close(reason)
        if self.dialling is not None:
            self.dialling.cancel()


class GrpcLinks(Links):
    """Call the public methods from any thread but the loop's; all else runs in the loop."""

    def __init__(
        self,
        identity: Identity,
        members: Iterable[Member],
        listen: str | None = None,
        largest: int = MAX_MESSAGE,
        timeouts: Timeouts | None = None,
        version: str = "",
    ):
        """`members`: of the roster, with this site; `listen`: host:port (port 0: any), or None; `version`: of gossamer.

        Other sites get the version, and one that runs another is named in the log.
        """
        self._me, self._listen, self._largest = identity, listen, largest
        self._timeouts, self._version = timeouts or Timeouts(), version
        self._links: dict[str, _Link] = {}  # replaced, never changed: other threads read it
        self._by_fingerprint: dict[str, str] = {}
        self._inbox, self._log = Inbox(), LogLimit()
        self._server: Any = None
        self.port: int | None = None  # of the listener
        me, others = _split_members(identity, members)
        self._is_dialled = me.address is not None and listen is not None
        run(self._open(others), seconds=30)

    def send(self, to: str, message: bytes, deadline: float) -> None:
        if not 0 < len(message) <= self._largest:
            raise ValueError(f"a message of {len(message)} bytes is not in 1 … {self._largest}")
        event_loop().call_soon_threadsafe(self._put, to, bytes(message), deadline)

    def receive(self, deadline: float) -> Arrival | None:
        return self._inbox.take(deadline)

    def states(self) -> dict[str, str]:
        return {name: link.state() for name, link in self._links.items()}

    def versions(self) -> dict[str, str]:
        return {name: link.version for name, link in self._links.items() if link.version}

    def update(self, members: Iterable[Member]) -> None:
        """Apply a new roster. A site that is not in it, or has another certificate, is cut off before this returns."""
        run(self._update(_split_members(self._me, members)[1]), seconds=30)

    def close(self) -> None:
        run(self._close(), seconds=30)

    async def _open(self, members: dict[str, Member]) -> None:
        if self._listen is not None:
            self._server = grpc.aio.server(options=listener_options(self._timeouts, self._largest))

            handler = grpc.stream_stream_rpc_method_handler(self._answer)
            service = grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})
            self._server.add_generic_rpc_handlers((service,))
            pair = self._me.key, self._me.certificate
            credentials = grpc.ssl_server_credentials([pair], self._me.authority, require_client_auth=True)
            try:
                self.port = self._server.add_secure_port(self._listen, credentials)
            except RuntimeError:
                await self._server.stop(None)
                raise UserError(f"listen = {self._listen!r} cannot be used: taken, or not here.") from None
            await self._server.start()
        await self._update(members)

    async def _update(self, members: dict[str, Member]) -> None:
        links = {}
        for name, member in members.items():
            old = self._links.get(name)
            same = old is not None and old.connects_to(member)
            links[name] = old if old and same else _Link(self._me.name, member, self._timeouts)
        removed = [link for name, link in self._links.items() if links.get(name) is not link]
        self._links = links
        self._by_fingerprint = {link.member.fingerprint: name for name, link in links.items()}
        for link in removed:
            link.end("the roster has changed")
            self._inbox.forget(link.member.name)
        for link in links.values():
            if link.dialling is None and link.member.address is not None:
                link.dialling = asyncio.create_task(self._dial(link, link.member.address))
        await asyncio.gather(*(link.dialling for link in removed if link.dialling), return_exceptions=True)

    async def _close(self) -> None:
        await self._update({})
        if self._server is not None:
            await self._server.stop(2.0)  # the streams end by themselves: their sessions are closed
            self._server = None

    def _put(self, to: str, message: bytes, deadline: float) -> None:
        link = self._links.get(to)
        if link is not None:
            link.outbox.put(message, deadline)
            if link.session is not None:
                link.session.wake.set()

    async def _answer(self, _requests: Any, context: Any) -> None:
        """Serve a stream that the holder of one of the authority's certificates has opened."""
        certificate = x509.load_pem_x509_certificate(context.auth_context()["x509_pem_cert"][0])
        mark = fingerprint(certificate)
        link = self._links.get(self._by_fingerprint.get(mark, ""))
        if link is None:
            self._log.warn(f"refused a connection: the certificate {mark[:16]}… is not in the roster.")
            refusal = "your certificate is not in the roster here"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        assert link is not None
        try:
            await context.send_initial_metadata(((_VERSION, self._version),))
            self._compare_version(link, dict(context.invocation_metadata()).get(_VERSION, ""))
            await self._serve(link, context, dialler=link.member.name)
        except Exception as error:  # the dialler is gone; gRPC would write a traceback
            LOG.debug("a stream ended: %s", _describe(error))

    async def _dial(self, link: _Link, address: str) -> None:
        """Keep a connection to the site, until this task is cancelled."""
        name, pause, last = link.member.name, 0.0, ""
        # Where both can dial, the first by name does; the other only if that fails.
        patience = self._timeouts.patience if self._is_dialled and name < self._me.name else 0.0
        while True:
            await link.free.wait()
            await asyncio.sleep(patience + pause * random.uniform(0.5, 1.0))
            if not link.free.is_set():
                continue
            began = time.monotonic()
            try:
                reason = await self._connect(link, address)
            except TimeoutError:
                reason = f"no answer within {self._timeouts.handshake:g} s"
            except Exception as error:  # gRPC raises many; the next attempt follows
                reason = _describe(error)
            pause = 0.1 if link.lost >= began else min(max(2 * pause, 0.1), self._timeouts.redial)
            if reason != last:
                self._log.warn(f"no link to {name!r} at {address}: {reason}.")
            last = reason

    async def _connect(self, link: _Link, address: str) -> str:
        """Make one connection and use it until it ends; return why it ended."""
        trusted = link.member.certificate.encode()
        credentials = grpc.ssl_channel_credentials(trusted, self._me.key, self._me.certificate)
        options = dialler_options(self._timeouts, self._largest, link.member.name)
        async with grpc.aio.secure_channel(f"dns:///{address}", credentials, options=options) as channel:
            call = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")(metadata=((_VERSION, self._version),))
            try:
                async with asyncio.timeout(self._timeouts.handshake):
                    metadata = dict(await call.initial_metadata() or ())
                    if _VERSION not in metadata:  # the listener refused
                        return _meaning(await call.code(), await call.details())
                self._compare_version(link, metadata[_VERSION])
                return await self._serve(link, call, dialler=self._me.name)
            finally:
                call.cancel()

    def _compare_version(self, link: _Link, version: Any) -> None:
        link.version = printable(str(version), 40) or "(version not stated)"
        if self._version and link.version != self._version:
            both = f"{link.version} and this site {self._version}"
            self._log.warn(f"{link.member.name!r} runs gossamer {both}: run the same version at all sites.")

    async def _serve(self, link: _Link, stream: Any, dialler: str) -> str:
        """Use a connection until it ends; return why it ended."""
        session = _Session(stream, dialler)
        if self._links.get(link.member.name) is not link:
            return "the roster has changed"
        if not link.adopt(session):
            return "there is another connection"
        tasks = {asyncio.create_task(work(link, session)) for work in (self._read, self._write)}
        try:
            done, _ = await asyncio.wait({*tasks, session.closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            link.release(session)  # before any wait: gRPC may cancel this once more
            session.close("ended")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        end = min(done, key=lambda end: end.exception() is not None)  # a reason of ours, if there is one
        error = end.exception()
        return end.result() if error is None else _describe(error)

    async def _read(self, link: _Link, session: _Session) -> str:
        name = link.member.name
        while (raw := await session.stream.read()) is not grpc.aio.EOF:
            if len(raw) < _NUMBER.size:
                self._log.warn(f"refused what {name!r} sent: a message of {len(raw)} bytes has no number.")
                return "the other site broke the format"
            (number,) = _NUMBER.unpack_from(raw)
            if len(raw) == _NUMBER.size:
                link.outbox.acknowledged(number)
            elif self._links.get(name) is link:
                arrival = Arrival(name, raw[_NUMBER.size :])
                self._inbox.put(arrival, partial(session.acknowledge, number))
        return "the other site closed it"

    async def _write(self, link: _Link, session: _Session) -> str:
        while not session.closed.done():
            if session.acknowledgements:
                message: bytes | None = _NUMBER.pack(session.acknowledgements.popleft())
            else:
                message = link.outbox.next()
            if message is not None:
                await session.stream.write(message)
            else:
                session.wake.clear()
                await session.wake.wait()
        return session.closed.result()


def _split_members(identity: Identity, members: Iterable[Member]) -> tuple[Member, dict[str, Member]]:
    """Return the roster's entry of this site, and the others by name."""
    others = {member.name: member for member in members}
    me = others.pop(identity.name, None)
    if me is None:
        raise UserError(f"the roster does not have {identity.name!r}; the site must be approved first.")
    if me.certificate.encode() != identity.certificate:
        raise UserError(f"the roster has another certificate of {identity.name!r} now; start again.")
    return me, others


# What gRPC reports where a connection fails, and what that means here.
_MEANINGS = {
    "Hostname Verification Check failed": "its certificate has another name",
    "certificate has expired": "its certificate has expired",
    "CERTIFICATE_VERIFY_FAILED|INVALID_SIGNATURE|BAD_SIGNATURE": "its certificate is not the one in the roster",
    "Connection refused": "no program listens there",
    "DNS resolution failed|Domain name not found": "its address is not known",
}


def _meaning(code: grpc.StatusCode, details: str | None) -> str:
    text = details or code.name
    return next((m for signs, m in _MEANINGS.items() if re.search(signs, text)), printable(text).rstrip("."))


def _describe(error: BaseException) -> str:
    """Describe a connection's end in a few words. gRPC raises many things where one breaks."""
    if isinstance(error, grpc.aio.AioRpcError):
        return _meaning(error.code(), error.details())
    return f"the connection broke ({type(error).__name__})"
