"""`GrpcLinks`: the links of one site over gRPC with mutual TLS (decision 0048).

A pair of sites has one stream. Either end may have dialled it; both send over it. Everything below `GrpcLinks` runs in
the one loop (`loop.py`); the program's thread only hands parcels over.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from gossamer.consortium import limits, service
from gossamer.consortium.identity import Identity, ProofError, fingerprint
from gossamer.consortium.limits import Pace
from gossamer.consortium.links import MOST, Arrival, Member
from gossamer.consortium.loop import loop, run
from gossamer.consortium.notices import LOG, Notices, plain
from gossamer.consortium.parcels import FrameError, Inbox, Outbox
from gossamer.consortium.session import (
    Session,
    Stream,
    broken,
    prove_as_dialler,
    prove_as_listener,
)
from gossamer.errors import UserError

_KNOCKING = 2  # streams of one member that have not proven themselves yet


class _Link:
    """One other site: what waits for it, and the connection, if there is one."""

    def __init__(self, me: str, member: Member):
        self.member, self.outbox = member, Outbox()
        self.session: Session | None = None
        self.free = asyncio.Event()  # there is no connection
        self.free.set()
        self.lost = -float("inf")  # when the last one ended
        self.knocking = 0
        self.dialling: asyncio.Task[None] | None = None
        self.sent = self.received = 0  # bytes, of sessions that have ended
        self.version = ""  # as the other site stated it when it was last connected
        self._first = min(me, member.name)

    def same(self, member: Member) -> bool:
        """As far as a connection is concerned."""
        ours = self.member
        return (ours.fingerprint, ours.public_key, ours.address) == (
            member.fingerprint,
            member.public_key,
            member.address,
        )

    def adopt(self, session: Session) -> bool:
        """The newer connection is the one; but if both dialled at once, both ends keep that of the first by name."""
        old = self.session
        if old is not None and old.dialler == self._first != session.dialler:
            return False
        if old is not None:
            old.close("a newer connection took its place")
        self.session = session
        self.free.clear()
        self.outbox.again()
        return True

    def release(self, session: Session) -> None:
        self.sent, self.received = self.sent + session.sent, self.received + session.received
        if self.session is session:
            self.session = None
            self.lost = time.monotonic()
            self.free.set()

    def state(self, pace: Pace) -> str:
        session, now = self.session, time.monotonic()
        if session is None:
            return "suspect" if now - self.lost < pace.silence else "down"
        failing = now - self.outbox.expired < pace.silence or now - session.heard > pace.suspect
        return "suspect" if failing else "up"

    def traffic(self) -> tuple[int, int]:
        session = self.session
        more = (session.sent, session.received) if session is not None else (0, 0)
        return self.sent + more[0], self.received + more[1]

    def end(self, why: str) -> None:
        if self.session is not None:
            self.session.close(why)
        if self.dialling is not None:
            self.dialling.cancel()


class GrpcLinks:
    """Implements `Links`. Every public method may be called from any thread but the loop's."""

    def __init__(
        self,
        identity: Identity,
        members: Iterable[Member],
        listen: str | None = None,
        most: int = MOST,
        pace: Pace | None = None,
        version: str = "",
    ):
        """`members` as the roster has them, oneself among them; `listen` is host:port (port 0: any), or None.

        `version`: of the program here; others are told, and one that has another is named in the log.
        """
        self._me, self._listen, self._most, self._pace = identity, listen, most, pace or Pace()
        self._version = version
        self._links: dict[str, _Link] = {}  # never changed, only replaced: other threads read it
        self._by_fingerprint: dict[str, str] = {}
        self._inbox, self._notices = Inbox(), Notices()
        self._server: Any = None
        self.port: int | None = None  # where it listens
        me, others = _apart(identity, members)
        identity.sign(b"")  # a key that does not fit is found here and not at the first connection
        self._dialled = me.address is not None and listen is not None  # may others dial us?
        run(self._open(others), seconds=30)

    def send(self, to: str, parcel: bytes, deadline: float) -> None:
        if not 0 < len(parcel) <= self._most:
            raise ValueError(f"a parcel of {len(parcel)} bytes is not in 1 … {self._most}")
        loop().call_soon_threadsafe(self._put, to, bytes(parcel), deadline)

    def receive(self, deadline: float) -> Arrival | None:
        return self._inbox.take(deadline)

    def states(self) -> dict[str, str]:
        return {name: link.state(self._pace) for name, link in self._links.items()}

    def versions(self) -> dict[str, str]:
        return {name: link.version for name, link in self._links.items() if link.version}

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes of parcels sent to and received from every site."""
        return {name: link.traffic() for name, link in self._links.items()}

    def wait(self, deadline: float, names: Iterable[str] | None = None) -> bool:
        """Until the links to `names` (all) are up; False at the deadline."""
        wanted = set(self._links if names is None else names)
        return _until(lambda: all(self.states().get(name) == "up" for name in wanted), deadline)

    def drain(self, deadline: float) -> bool:
        """Until everything sent was taken, or has run out of time; False at the deadline."""
        return _until(lambda: run(self._waiting(), seconds=10) == 0, deadline)

    def update(self, members: Iterable[Member]) -> None:
        """A new roster. Who is not in it, or has another certificate, is cut off before this returns."""
        run(self._update(_apart(self._me, members)[1]), seconds=30)

    def close(self) -> None:
        run(self._close(), seconds=30)

    async def _open(self, members: dict[str, Member]) -> None:
        if self._listen is not None:
            self._server = grpc.aio.server(options=limits.of_listener(self._pace))
            self._server.add_generic_rpc_handlers((service.answers(self._answer),))
            credentials = grpc.ssl_server_credentials(
                [(self._me.key, self._me.certificate)], self._me.authority, require_client_auth=True
            )
            try:
                self.port = self._server.add_secure_port(self._listen, credentials)
            except RuntimeError:
                await self._server.stop(None)
                raise UserError(
                    f"listen = {self._listen!r} cannot be used; another program has that port, or the machine has "
                    "no such address."
                ) from None
            await self._server.start()
        await self._update(members)

    async def _update(self, members: dict[str, Member]) -> None:
        links = {}
        for name, member in members.items():
            old = self._links.get(name)
            links[name] = old if old is not None and old.same(member) else _Link(self._me.name, member)
        gone = [link for name, link in self._links.items() if links.get(name) is not link]
        self._links = links
        self._by_fingerprint = {link.member.fingerprint: name for name, link in links.items()}
        for link in gone:
            link.end("the roster has changed")
            self._inbox.forget(link.member.name)
        for link in links.values():
            if link.dialling is None and link.member.address is not None:
                link.dialling = asyncio.create_task(self._dial(link, link.member.address))
        await asyncio.gather(*(link.dialling for link in gone if link.dialling), return_exceptions=True)

    async def _close(self) -> None:
        await self._update({})
        if self._server is not None:
            await self._server.stop(2.0)  # streams end by themselves, their sessions are closed
            self._server = None
        self._inbox.wake()

    async def _waiting(self) -> int:
        for link in self._links.values():
            link.outbox.expire()
        return sum(len(link.outbox) for link in self._links.values())

    def _put(self, to: str, parcel: bytes, deadline: float) -> None:
        link = self._links.get(to)
        if link is not None:
            link.outbox.put(parcel, deadline)
            if link.session is not None:
                link.session.poke()

    async def _answer(self, context: Any) -> None:
        try:
            await self._answer_member(context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # the dialler is gone; gRPC would write a traceback
            LOG.debug("a stream ended: %s", broken(error))

    async def _answer_member(self, context: Any) -> None:
        """A stream that somebody has opened, who has a certificate of the authority."""
        shown = fingerprint(context.auth_context()["x509_pem_cert"][0])
        link = self._links.get(self._by_fingerprint.get(shown, ""))
        if link is None:
            self._notices.say(f"refused a connection: the certificate {shown[:16]}… is not in the roster.")
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, "your certificate is not in the roster here"
            )
        assert link is not None
        name = link.member.name
        if link.knocking >= _KNOCKING:
            self._notices.say(
                f"refused a connection of {name!r}: {_KNOCKING} others have not proven themselves yet."
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many connections at once")
        link.knocking += 1
        try:
            async with asyncio.timeout(self._pace.handshake):
                await context.send_initial_metadata(service.stated(self._version))
                await prove_as_listener(context, self._me, link.member)
        except (ProofError, TimeoutError) as error:
            self._notices.say(f"refused a connection of {name!r}: {error or 'no proof came in time'}.")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no proof of your key")
        finally:
            link.knocking -= 1
        try:
            self._compare_version(link, context.invocation_metadata())
            await self._serve(link, context, dialler=name)
        except FrameError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, plain(str(error)))

    async def _dial(self, link: _Link, address: str) -> None:
        name, pause, said = link.member.name, 0.0, ""
        # Where both can dial, the first by name does; the other one only if that does not work out.
        courtesy = self._pace.patience if self._dialled and name < self._me.name else 0.0
        while True:
            await link.free.wait()
            await asyncio.sleep(courtesy + pause * random.uniform(0.5, 1.0))
            if not link.free.is_set():
                continue
            began = time.monotonic()
            why = await self._attempt(link, address)
            proven = link.lost >= began
            pause = 0.1 if proven else min(max(2 * pause, 0.1), self._pace.redial)
            if why != said:
                self._notices.say(f"no link to {name!r} at {address}: {why}.")
            said = why

    async def _attempt(self, link: _Link, address: str) -> str:
        """One connection, from the first try to its end; why it ended."""
        credentials = grpc.ssl_channel_credentials(self._me.authority, self._me.key, self._me.certificate)
        options = limits.of_dialler(self._pace, link.member.name)
        async with grpc.aio.secure_channel(f"dns:///{address}", credentials, options=options) as channel:
            call = service.dial(channel, self._version)
            try:
                async with asyncio.timeout(self._pace.handshake):
                    await prove_as_dialler(call, self._me, link.member)
                    self._compare_version(link, await call.initial_metadata())
                return await self._serve(link, call, dialler=self._me.name)
            except (ProofError, FrameError) as error:
                return str(error)
            except TimeoutError:
                return f"no answer within {self._pace.handshake:g} s"
            except Exception as error:
                return broken(error)
            finally:
                call.cancel()

    def _compare_version(self, link: _Link, metadata: Any) -> None:
        link.version, ours = plain(service.version_in(metadata), 40), self._version
        if ours and link.version != ours:
            self._notices.say(
                f"{link.member.name!r} runs gossamer {link.version} and this site {ours}: let all sites run the same."
            )

    async def _serve(self, link: _Link, stream: Stream, dialler: str) -> str:
        """A proven connection until it ends. `FrameError` if the other end broke the format."""
        name = link.member.name

        def deliver(parcel: bytes, taken: Callable[[], None]) -> None:
            if self._links.get(name) is link:
                self._inbox.put(Arrival(name, parcel), taken)

        session = Session(stream, dialler, link.outbox, deliver, self._most, self._pace)
        if self._links.get(name) is not link:
            return "the roster has changed"
        if not link.adopt(session):
            return "there is another connection"
        try:
            return await session.run()
        except FrameError as error:
            self._notices.say(f"refused what {name!r} sent: {error}.")
            raise
        finally:
            link.release(session)


def _apart(identity: Identity, members: Iterable[Member]) -> tuple[Member, dict[str, Member]]:
    """Oneself and the others of a roster."""
    listed = list(members)
    by_name = {member.name: member for member in listed}
    if len(by_name) < len(listed) or len({member.fingerprint for member in listed}) < len(listed):
        raise UserError("the roster names a site or a certificate twice; ask for a new one.")
    me = by_name.pop(identity.name, None)
    if me is None:
        raise UserError(f"the roster does not have {identity.name!r}; the site must be approved first.")
    if me.fingerprint != identity.fingerprint:
        raise UserError(
            f"the roster has another certificate of {identity.name!r} ({me.fingerprint[:16]}…) than the one in use "
            f"({identity.fingerprint[:16]}…)."
        )
    return me, by_name


def _until(true: Callable[[], bool], deadline: float) -> bool:
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
