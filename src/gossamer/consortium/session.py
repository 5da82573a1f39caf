"""One connection of two sites: proofs first, then parcels, what was taken, and beats, both ways over one stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import grpc

from gossamer.consortium.identity import (
    DIALLER,
    LISTENER,
    NONCE,
    Identity,
    ProofError,
    check,
    transcript,
)
from gossamer.consortium.limits import Pace
from gossamer.consortium.links import Member
from gossamer.consortium.notices import plain
from gossamer.consortium.parcels import Assembly, FrameError, Outbox
from gossamer.consortium.peer_pb2 import Beat, Frame, Hello, Proof


class Stream(Protocol):
    """Either end of gRPC's two-way stream. `read` gives grpc.aio.EOF at its end."""

    async def read(self) -> Frame: ...

    async def write(self, frame: Frame) -> None: ...


async def prove_as_dialler(stream: Stream, me: Identity, member: Member) -> None:
    """TLS has checked the listener's name; this checks its key, which gRPC's client cannot see."""
    ours = secrets.token_bytes(NONCE)
    await stream.write(Frame(hello=Hello(nonce=ours)))
    proof = (await _expect(stream, "proof")).proof
    ends = (me.name, me.fingerprint), (member.name, member.fingerprint), (ours, _nonce(proof.nonce))
    check(member, transcript(LISTENER, *ends), proof.signature)
    await stream.write(Frame(proof=Proof(signature=me.sign(transcript(DIALLER, *ends)))))


async def prove_as_listener(stream: Stream, me: Identity, member: Member) -> None:
    """`member` is whose certificate TLS has checked on this very connection."""
    theirs = _nonce((await _expect(stream, "hello")).hello.nonce)
    ours = secrets.token_bytes(NONCE)
    ends = (member.name, member.fingerprint), (me.name, me.fingerprint), (theirs, ours)
    await stream.write(Frame(proof=Proof(nonce=ours, signature=me.sign(transcript(LISTENER, *ends)))))
    check(member, transcript(DIALLER, *ends), (await _expect(stream, "proof")).proof.signature)


async def _expect(stream: Stream, kind: str) -> Frame:
    frame = await stream.read()
    if frame is grpc.aio.EOF:
        raise ProofError(f"the stream ended where a {kind} was due")
    if frame.WhichOneof("kind") != kind:
        raise ProofError(f"{_called(frame)} came where a {kind} was due")
    return frame


def _called(frame: Frame) -> str:
    kind = frame.WhichOneof("kind")
    return "what is no frame, or one of a later version," if kind is None else f"a {kind}"


def _nonce(said: bytes) -> bytes:
    if len(said) != NONCE:
        raise ProofError(f"a nonce has {len(said)} bytes in place of {NONCE}")
    return said


class Session:
    """A proven connection while it lasts."""

    def __init__(
        self,
        stream: Stream,
        dialler: str,
        outbox: Outbox,
        deliver: Callable[[bytes, Callable[[], None]], None],
        most: int,
        pace: Pace,
    ):
        """`deliver` gets every parcel, and what to call (from any thread) once the program has taken it."""
        self.dialler = dialler
        self.heard = time.monotonic()
        self.sent = self.received = 0  # bytes of parcels
        self._stream, self._outbox, self._deliver, self._pace = stream, outbox, deliver, pace
        self._assembly = Assembly(most)
        self._taken: deque[int] = deque()
        self._work, self._closed, self._why = asyncio.Event(), asyncio.Event(), ""
        self._loop = asyncio.get_running_loop()

    def close(self, why: str) -> None:
        """From here on nothing is taken from the outbox."""
        if not self._closed.is_set():
            self._why = why
            self._closed.set()

    def poke(self) -> None:
        """There is something in the outbox."""
        self._work.set()

    async def run(self) -> str:
        """Until it ends; why it did, in a few words. `FrameError` if the other end is to blame."""
        tasks = [asyncio.create_task(work) for work in (self._read(), self._write(), self._ended())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close("ended")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return _why(done)

    async def _ended(self) -> str:
        await self._closed.wait()
        return self._why

    async def _read(self) -> str:
        while True:
            try:
                async with asyncio.timeout(self._pace.silence):
                    frame = await self._stream.read()
            except TimeoutError:
                return f"nothing was heard for {self._pace.silence:g} s"
            if frame is grpc.aio.EOF:
                return "the other end has closed"
            self.heard = time.monotonic()
            kind = frame.WhichOneof("kind")
            if kind == "chunk":
                self.received += len(frame.chunk.data)
                parcel = self._assembly.add(frame.chunk)
                if parcel is not None:
                    self._deliver(parcel, self._acknowledge(frame.chunk.number))
            elif kind == "taken":
                self._outbox.taken(frame.taken)
            elif kind != "beat":
                raise FrameError(f"{_called(frame)} has no place here")

    def _acknowledge(self, number: int) -> Callable[[], None]:
        def in_loop() -> None:
            self._taken.append(number)
            self._work.set()

        def taken() -> None:
            if not self._closed.is_set():
                self._loop.call_soon_threadsafe(in_loop)

        return taken

    async def _write(self) -> str:
        while True:
            frame = self._next()
            if frame is None:
                self._work.clear()
                try:
                    async with asyncio.timeout(self._pace.beat):
                        await self._work.wait()
                    continue
                except TimeoutError:
                    frame = Frame(beat=Beat())
            await self._stream.write(frame)

    def _next(self) -> Frame | None:
        if self._closed.is_set():
            return None
        if self._taken:
            return Frame(taken=self._taken.popleft())
        chunk = self._outbox.chunk()
        if chunk is None:
            return None
        self.sent += len(chunk.data)
        return Frame(chunk=chunk)


def _why(done: set[asyncio.Task[str]]) -> str:
    """If several ended at once, the one that knows most: a fault of the other end, a reason, gRPC's own words."""
    errors = [error for task in done if (error := task.exception()) is not None]
    for error in errors:
        if isinstance(error, FrameError):
            raise error
    reasons = [task.result() for task in done if task.exception() is None]
    return reasons[0] if reasons else broken(errors[0])


# What gRPC says of a connection that does not come about, and what that means.
_MEANINGS = (
    ("Hostname Verification Check failed", "its certificate has another name"),
    ("is not in peer certificate", "its certificate has another name"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not from this consortium's authority, or not of today"),
    ("INVALID_SIGNATURE", "its certificate is not from this consortium's authority"),
    ("BAD_SIGNATURE", "its certificate is not from this consortium's authority"),
    ("Connection refused", "nobody listens there"),
    ("DNS resolution failed", "its address is not known"),
    ("Domain name not found", "its address is not known"),
)


def broken(error: BaseException) -> str:
    """In a few words. gRPC raises many things where a connection breaks."""
    if isinstance(error, grpc.aio.AioRpcError):
        said = error.details() or error.code().name
        return next((meaning for sign, meaning in _MEANINGS if sign in said), plain(said).rstrip("."))
    return f"the connection broke ({type(error).__name__})"
