"""Proofs and frames over streams in memory: who is refused, and what a connection carries."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.support.sites import QUICK, Authority, member

from gossamer.consortium.identity import Identity, ProofError
from gossamer.consortium.limits import CHUNK, Pace
from gossamer.consortium.parcels import FrameError, Outbox
from gossamer.consortium.peer_pb2 import Beat, Chunk, Frame, Hello, Proof
from gossamer.consortium.session import Session, broken, prove_as_dialler, prove_as_listener

LATER = 1e12
CA = Authority()
A, B, M = CA.site("a"), CA.site("b"), CA.site("m")


class Pipe:
    """One end of a stream in memory."""

    def __init__(self, incoming: asyncio.Queue[Any], outgoing: asyncio.Queue[Any]):
        self._incoming, self._outgoing = incoming, outgoing

    async def read(self) -> Frame:
        return await self._incoming.get()

    async def write(self, frame: Frame) -> None:
        await self._outgoing.put(Frame.FromString(frame.SerializeToString()))

    async def end(self) -> None:
        await self._outgoing.put(grpc.aio.EOF)


def pipes() -> tuple[Pipe, Pipe]:
    one: asyncio.Queue[Any] = asyncio.Queue(4)
    two: asyncio.Queue[Any] = asyncio.Queue(4)
    return Pipe(one, two), Pipe(two, one)


async def meet(dialler: Identity, wanted: Identity, listener: Identity, seen: Identity) -> list[Any]:
    """`dialler` wants to speak to `wanted`; `listener` answers and has seen the certificate of `seen`."""
    near, far = pipes()
    done = await asyncio.wait_for(
        asyncio.gather(
            _then_end(prove_as_dialler(near, dialler, member(wanted)), near),
            _then_end(prove_as_listener(far, listener, member(seen)), far),
            return_exceptions=True,
        ),
        10,
    )
    return list(done)


async def _then_end(proof: Any, pipe: Pipe) -> None:
    try:
        await proof
    finally:
        await pipe.end()


def test_two_members_prove_themselves() -> None:
    assert asyncio.run(meet(A, B, B, A)) == [None, None]


def test_a_listener_without_the_rosters_key_is_refused() -> None:
    """It has b's name in a certificate of the right authority (issued by mistake, or the one before the last)."""
    dialler, _ = asyncio.run(meet(A, B, CA.site("b"), A))
    assert isinstance(dialler, ProofError)
    assert "'b' does not hold the key in the roster" in str(dialler)


def test_a_listener_with_the_rosters_key_but_another_certificate_is_refused() -> None:
    from tests.support.sites import key

    own = key()
    dialler, _ = asyncio.run(meet(A, CA.site("b", own), CA.site("b", own), A))
    assert isinstance(dialler, ProofError)


def test_a_proof_that_was_made_for_another_member_is_refused() -> None:
    """m stands between a and b, lets b prove itself to m, and hands that on to a: it names m and not a."""
    dialler, listener = asyncio.run(meet(A, B, B, M))
    assert isinstance(dialler, ProofError)
    assert isinstance(listener, ProofError)


def test_a_dialler_without_the_rosters_key_is_refused() -> None:
    imposter = Identity(CA.pem, A.certificate, M.key)
    object.__setattr__(imposter, "_private_key", M._private_key)
    _, listener = asyncio.run(meet(imposter, B, B, A))
    assert isinstance(listener, ProofError)
    assert "'a' does not hold" in str(listener)


@pytest.mark.parametrize(
    "said",
    [
        grpc.aio.EOF,
        Frame(),
        Frame(beat=Beat()),
        Frame(hello=Hello(nonce=b"short")),
        Frame(hello=Hello(nonce=bytes(33))),
        Frame(chunk=Chunk(number=1, size=1, data=b"x")),  # a parcel before any proof
        Frame(proof=Proof(nonce=bytes(32), signature=b"x")),
    ],
)
def test_nothing_but_a_hello_opens_a_connection(said: Any) -> None:
    async def knock() -> None:
        near, far = pipes()
        await near._outgoing.put(said)
        await asyncio.wait_for(prove_as_listener(far, B, member(A)), 10)

    with pytest.raises(ProofError):
        asyncio.run(knock())


def test_a_replayed_proof_is_refused() -> None:
    async def replay() -> None:
        """The dialler's words of one connection, word for word, on another one."""
        near, far = pipes()
        heard: list[Frame] = []
        listening = asyncio.create_task(prove_as_listener(far, B, member(A)))
        original = near.write

        async def write(frame: Frame) -> None:
            heard.append(frame)
            await original(frame)

        near.write = write  # type: ignore[method-assign]
        await prove_as_dialler(near, A, member(B))
        await listening
        near, far = pipes()
        for frame in heard:
            await near.write(frame)
        await prove_as_listener(far, B, member(A))

    with pytest.raises(ProofError, match="'a' does not hold"):
        asyncio.run(replay())


class Ends:
    """A session against a script: what it delivers, and what it writes."""

    def __init__(self, most: int = 1 << 20, pace: Pace = QUICK):
        self.ours, self.theirs = pipes()
        self.outbox, self.came = Outbox(), []
        self.session = Session(self.ours, "a", self.outbox, self._deliver, most, pace)

    def _deliver(self, parcel: bytes, taken: Any) -> None:
        self.came.append(parcel)
        taken()


def test_a_session_carries_parcels_beats_and_says_what_was_taken() -> None:
    async def carry() -> tuple[Ends, list[str | None], str]:
        ends = Ends()
        ends.outbox.put(b"x" * (CHUNK + 1), LATER)
        running = asyncio.create_task(ends.session.run())
        seen = []
        seen.append((await ends.theirs.read()).chunk.data)
        seen.append((await ends.theirs.read()).chunk.data)
        assert b"".join(seen) == b"x" * (CHUNK + 1)
        kinds = [(await asyncio.wait_for(ends.theirs.read(), 10)).WhichOneof("kind")]  # nothing to say
        await ends.theirs.write(Frame(taken=1))
        await ends.theirs.write(Frame(chunk=Chunk(number=7, size=2, data=b"hi")))
        while (frame := await asyncio.wait_for(ends.theirs.read(), 10)).WhichOneof("kind") != "taken":
            pass
        assert frame.taken == 7
        await ends.theirs.end()
        return ends, kinds, await asyncio.wait_for(running, 10)

    ends, kinds, why = asyncio.run(carry())
    assert kinds == ["beat"]
    assert ends.came == [b"hi"]
    assert len(ends.outbox) == 0
    assert why == "the other end has closed"
    assert (ends.session.sent, ends.session.received) == (CHUNK + 1, 2)


@pytest.mark.parametrize(
    "said",
    [
        Frame(hello=Hello(nonce=bytes(32))),
        Frame(),
        Frame(chunk=Chunk(number=1, size=1 << 40, data=b"x")),
        Frame(chunk=Chunk(number=1, size=5, offset=1, data=b"1234")),
    ],
)
def test_who_breaks_the_format_is_cut_off(said: Frame) -> None:
    async def breaks() -> None:
        ends = Ends()
        await ends.theirs.write(said)
        await asyncio.wait_for(ends.session.run(), 10)

    with pytest.raises(FrameError):
        asyncio.run(breaks())


def test_a_silent_end_is_given_up() -> None:
    async def silent() -> str:
        ends = Ends(pace=Pace(beat=0.05, silence=0.2))

        async def swallow() -> None:
            while True:
                await ends.theirs.read()

        swallowing = asyncio.create_task(swallow())
        why = await asyncio.wait_for(ends.session.run(), 10)
        swallowing.cancel()
        return why

    assert asyncio.run(silent()) == "nothing was heard for 0.2 s"


def test_a_closed_session_takes_nothing_more_from_the_outbox() -> None:
    """Else a chunk would leave on the old connection and be missing on the new one."""

    async def closed() -> tuple[str, Ends]:
        ends = Ends()
        ends.outbox.put(b"x", LATER)
        ends.session.close("replaced")
        return await asyncio.wait_for(ends.session.run(), 10), ends

    why, ends = asyncio.run(closed())
    assert why == "replaced"
    chunk = ends.outbox.chunk()
    assert chunk is not None
    assert chunk.offset == 0


def test_what_breaks_is_named_in_a_few_words() -> None:
    assert broken(OSError("secret\npath")) == "the connection broke (OSError)"
