"""A relay passes bytes on and nothing else: end to end with real links, against strangers, silence and floods."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from tests.support.refusals import expect_refusal
from tests.support.sites import QUICK, Authority, member, wait_up

from gossamer.consortium.grpc_links import GrpcLinks
from gossamer.consortium.links import Arrival
from gossamer.consortium.relay import Agent, Limits, Relay, proof, relay, token

SLOW = 60.0
SECRET = "a secret of the relay, long enough to be one"
HASTY = Limits(splices=4, unproven=3, patience=1.0, idle=1.0)


@contextlib.contextmanager
def serving(limits: Limits = HASTY, back: str = "127.0.0.1:0") -> Iterator[Relay]:
    """A relay with a front for beta, in a loop of its own as it would be in a process of its own."""
    made = Relay(SECRET, back, {"beta": "127.0.0.1:0"}, limits)
    ready, end = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with made.serve():
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(SLOW)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(SLOW)
        loop.run_until_complete(asyncio.sleep(0.02))
        loop.close()


@contextlib.contextmanager
def answering(how: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Iterator[int]:
    """A listener on the loopback in place of a site's."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(how, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SLOW)
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.02))
        loop.close()


@contextlib.contextmanager
def standing(made: Relay, port: int, given: str | None = None, site: str = "beta") -> Iterator[Agent]:
    agent = Agent(f"127.0.0.1:{made.back_port}", site, given or token(SECRET, site), port, HASTY)
    try:
        yield agent
    finally:
        agent.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1000)
    writer.close()


def call(made: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", made.ports["beta"]), timeout=SLOW)


def everything(caller: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := caller.recv(1 << 16):
            got += data
    return got


def test_two_sites_that_cannot_listen_speak_end_to_end() -> None:
    authority = Authority()
    a, b = authority.site("alpha"), authority.site("beta")
    with serving() as made, contextlib.ExitStack() as stack:
        far = GrpcLinks(b, [member(a), member(b, "x:1")], "127.0.0.1:0", timeouts=QUICK)
        stack.callback(far.close)
        stack.enter_context(standing(made, far.port or 0))
        near = GrpcLinks(a, [member(a), member(b, f"127.0.0.1:{made.ports['beta']}")], timeouts=QUICK)
        stack.callback(near.close)
        assert wait_up(near, time.monotonic() + SLOW)
        words = bytes(range(256)) * 4096
        near.send("beta", words, time.monotonic() + SLOW)
        assert far.receive(time.monotonic() + SLOW) == Arrival("alpha", words)
        far.send("alpha", words[::-1], time.monotonic() + SLOW)
        assert near.receive(time.monotonic() + SLOW) == Arrival("beta", words[::-1])


def test_bytes_arrive_as_they_were_and_an_end_is_passed_on() -> None:
    sent = bytes(range(251)) * 8000
    with serving() as made, answering(echo) as port, standing(made, port), call(made) as caller:
        threading.Thread(target=lambda: (caller.sendall(sent), caller.shutdown(socket.SHUT_WR))).start()
        assert everything(caller) == sent


def test_a_token_is_for_one_site() -> None:
    assert token(SECRET, "beta") != token(SECRET, "alpha")
    assert token("another secret of another relay, long enough", "beta") != token(SECRET, "beta")


@pytest.mark.parametrize(("given", "site"), [(token(SECRET, "alpha"), "beta"), ("00" * 32, "beta"), (None, "gamma")])
def test_without_its_token_or_a_front_a_site_is_called_by_nobody(
    given: str | None, site: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as made, answering(echo) as port, standing(made, port, given, site), call(made) as caller:
        caller.sendall(b"hello")
        assert everything(caller) == b""
    said = [record.message for record in caplog.records]
    assert "refused a connection at the back: it shows no site's token." in said
    assert any("does not take this site's token" in words for words in said)
    assert "refused a connection to 'beta': the site is not here." in said


def test_strangers_at_the_back_are_few_and_short() -> None:
    with serving() as made, answering(echo) as port:
        began = time.monotonic()
        strangers = [socket.create_connection(("127.0.0.1", made.back_port), timeout=SLOW) for _ in range(10)]
        greeted = [everything(stranger) for stranger in strangers]
        for stranger in strangers:
            stranger.close()
        assert time.monotonic() - began < 30 + 5 * HASTY.patience
        assert sum(got != b"" for got in greeted) == HASTY.unproven  # the others are not even greeted
        with standing(made, port), call(made) as caller:
            caller.sendall(b"hello")
            assert caller.recv(10) == b"hello"


def test_splices_are_limited() -> None:
    with serving(replace(HASTY, idle=60.0)) as made, answering(echo) as port, standing(made, port):
        callers = [call(made) for _ in range(HASTY.splices)]
        for caller in callers:
            caller.sendall(b"x")
            assert caller.recv(1) == b"x"
        with call(made) as late:
            assert everything(late) == b""
        for caller in callers:
            caller.close()


def test_idle_splices_are_closed() -> None:
    with serving() as made, answering(echo) as port, standing(made, port):
        callers = [call(made) for _ in range(HASTY.splices)]
        assert [everything(caller) for caller in callers] == [b""] * HASTY.splices
        for caller in callers:
            caller.close()
        with call(made) as again:
            again.sendall(b"y")
            assert again.recv(1) == b"y"


def test_who_sends_faster_than_the_other_reads_waits() -> None:
    with serving() as made, answering(swallow) as port, standing(made, port), call(made) as caller:
        before = psutil.Process().memory_info().rss
        caller.setblocking(False)
        sent, deadline = 0, time.monotonic() + 0.8
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sent += caller.send(bytes(1 << 16))
                continue
            time.sleep(0.01)
        assert sent < 64 << 20  # buffers of the kernel on three connections
        assert psutil.Process().memory_info().rss - before < 20 << 20


def test_an_agent_comes_back_after_the_relay_was_away() -> None:
    with answering(echo) as port, contextlib.ExitStack() as stack:
        with serving() as first:
            back = first.back_port
            stack.enter_context(standing(first, port))
            with call(first) as caller:
                caller.sendall(b"x")
                assert caller.recv(1) == b"x"
        with serving(back=f"127.0.0.1:{back}") as second:
            deadline = time.monotonic() + SLOW
            got = b""
            while not got and time.monotonic() < deadline:
                with call(second) as caller:
                    caller.sendall(b"y")
                    with contextlib.suppress(ConnectionError):
                        got = caller.recv(1)
            assert got == b"y"


def test_a_site_that_is_gone_is_passed_over_for_one_that_answers() -> None:
    """Connections of a program that was killed, the newest of all, must not eat the callers."""
    with (
        serving(Limits(patience=1.0)) as made,
        answering(echo) as port,
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(standing(made, port))
        time.sleep(0.3)
        for _ in range(2):
            dead = stack.enter_context(socket.create_connection(("127.0.0.1", made.back_port), timeout=SLOW))
            nonce = dead.recv(48, socket.MSG_WAITALL)[16:]
            dead.sendall(b"\x04beta" + proof(token(SECRET, "beta"), nonce, b"beta"))
            time.sleep(0.3)
        with call(made) as caller:
            caller.sendall(b"x")
            assert caller.recv(1) == b"x"
        assert dead.recv(100) == b"!"  # it was asked first


def test_nothing_is_left_open() -> None:
    me = psutil.Process()

    def once() -> None:
        with serving() as made, answering(echo) as port, standing(made, port), call(made) as caller:
            caller.sendall(b"x")
            assert caller.recv(1) == b"x"

    once()
    before = me.num_fds()
    for _ in range(3):
        once()
    deadline = time.monotonic() + SLOW
    while me.num_fds() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert me.num_fds() <= before + 1


@pytest.mark.parametrize("place", ["7000", "host:", ":7000", "host:x", "host:70000"])
def test_places_are_host_and_port(place: str) -> None:
    with expect_refusal(key="back", names="host", remedy=True):
        relay(SECRET, place, {})
    with expect_refusal(key="relay", names="host", remedy=True):
        Agent(place, "beta", "00", 1)


def test_mistakes_are_one_sentence() -> None:
    with expect_refusal(key="token", names="hexadecimal"):
        Agent("127.0.0.1:1", "beta", "secret", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken, expect_refusal(key="back"):
        relay(SECRET, f"127.0.0.1:{taken.getsockname()[1]}", {})
