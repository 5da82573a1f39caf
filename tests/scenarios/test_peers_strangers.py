"""Real peers on hosts of their own, and somebody on the same network who does not belong there."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.namespaces import Hosts, no_namespaces
from tests.support.nursery import enter
from tests.support.real_peers import Peers
from tests.support.sites import Authority

pytest.importorskip("grpc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(no_namespaces() is not None, reason=no_namespaces() or ""),
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)  # HTTP/2, and empty settings
LORIS = 40  # connections to each site that are never finished


class Stranger:
    """On a host of his own, in threads; counts what he was told."""

    def __init__(self, namespace: str, places: list[tuple[str, int]], folder: Path):
        self._namespace, self._places, self._folder = namespace, places, folder
        self.within_tls = b""  # bytes that came over a connection after its handshake
        self.in_clear = b""  # … and without one
        self.scanned = self.open_ports = self.handshakes = self.drops = 0
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._host, args=(work,)) for work in (self._scan, self._shake, self._drip)
        ]

    def __enter__(self) -> Stranger:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _host(self, work: Callable[[], None]) -> None:
        enter(self._namespace)  # of this thread alone
        work()

    def _scan(self) -> None:
        """Every port around, and garbage where one is open."""
        pick = random.Random(0)
        words = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(80), b"SSH-2.0-x\r\n", PREFACE]
        while not self._over.is_set():
            for host, port in self._places:
                for near in [*range(port - 40, port + 40), 22, 80, 443]:
                    self.scanned += 1
                    with contextlib.suppress(OSError), socket.create_connection((host, near), 0.3) as knock:
                        self.open_ports += 1
                        knock.settimeout(0.3)
                        knock.sendall(pick.choice([*words, pick.randbytes(pick.randrange(1, 4000))]))
                        self.in_clear += knock.recv(1 << 16)
            self._over.wait(0.5)

    def _shake(self) -> None:
        """TLS without a certificate, and with one of another consortium."""
        made = Authority("consortium").site("alder")
        (self._folder / "crt").write_bytes(made.certificate)
        (self._folder / "key").write_bytes(made.key)
        while not self._over.is_set():
            for with_certificate in (False, True):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_alpn_protocols(["h2"])
                if with_certificate:
                    context.load_cert_chain(self._folder / "crt", self._folder / "key")
                for place in self._places:
                    with (
                        contextlib.suppress(OSError),
                        socket.create_connection(place, 5.0) as plain,
                        context.wrap_socket(plain) as secure,
                    ):
                        self.handshakes += 1
                        secure.sendall(PREFACE)
                        self.within_tls += secure.recv(1 << 16)
            self._over.wait(0.5)

    def _drip(self) -> None:
        """Slow-loris: the beginning of a handshake, a byte at a time."""
        held: dict[int, socket.socket] = {}
        while not self._over.is_set():
            for k in range(LORIS * len(self._places)):
                with contextlib.suppress(OSError):  # the site has had enough, or has ended
                    if k not in held:
                        held[k] = socket.create_connection(self._places[k % len(self._places)], 5.0)
                    try:
                        held[k].sendall(b"\x16\x03\x01\x02\x00\x01"[self.drops % 6 :][:1])
                    except OSError:
                        held.pop(k).close()
            self.drops += 1
            self._over.wait(1.0)
        for one in held.values():
            one.close()


def test_a_stranger_a_scan_and_a_slow_loris_get_not_a_byte_and_the_study_goes_on(tmp_path: Path) -> None:
    with Hosts(4) as hosts:
        places: list[tuple[str, int]] = []

        def told(name: str, port: int) -> str:
            places.append((hosts.addresses[len(places)], port))
            return f"{places[-1][0]}:{port}"

        (tmp_path / "real").mkdir()
        at = dict(zip(["alder", "birch", "cedar"], hosts.names, strict=False))
        with Peers(
            tmp_path / "real", 3, 100, deadline=5.0, tick=0.2, wait=120.0, address_of=told, namespaces=at
        ) as peers:
            peers.start()
            peers.until(lambda: all(peers.round(name) >= 5 for name in peers.names), 180)
            began = time.monotonic()
            with Stranger(hosts.names[3], places, tmp_path) as stranger:
                peers.finish(400)
            took = time.monotonic() - began
        print(
            f"\n{took:.0f} s: {stranger.scanned:,} ports, {stranger.open_ports} open, {stranger.handshakes} handshakes, "
            f"{LORIS} slow connections a site; bytes in the clear {len(stranger.in_clear)}, "
            f"within TLS {len(stranger.within_tls)}; accuracies {peers.accuracies()}"
        )
        assert stranger.open_ports > 3
        assert stranger.handshakes > 3
        assert stranger.within_tls == b""  # not even the settings of HTTP/2
        alerts = (b"\x15\x03", b"")
        assert stranger.in_clear[:2] in alerts  # TLS alerts, if anything
        assert len(stranger.in_clear) < 64 * stranger.open_ports
        assert min(peers.accuracies()) > 0.7
        assert [len(peers.steps(name)) for name in peers.names] == [100] * 3  # nobody missed a round
        assert peers.mass_errors()[0] <= 1e-9
        assert not any("Traceback" in peers.said(name) + peers.log(name) for name in peers.names)
        peers.verified()
