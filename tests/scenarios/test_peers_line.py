"""Real peers over a long, thin line: what a round takes beside what bytes and distance take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.real_peers import CONSTANT, Peers

pytest.importorskip("grpc")
pytestmark = pytest.mark.slow

DELAY, RATE = 0.04, 2.5e6  # 80 ms there and back; 20 Mbit/s each way
STRETCH = 20  # rounds: of two sites one may be early in a round and late in the next
WIDE = {"model": {"kind": "mlp", "hidden": [1333]}}  # 100,000 parameters: 0.4 MB a message


def test_a_round_takes_little_more_than_its_bytes_and_their_way(tmp_path: Path) -> None:
    with Peers(
        tmp_path, 2, 60, deadline=10.0, tick=0.0, wait=120.0, proxied=True, changes={**CONSTANT, **WIDE}
    ) as peers:
        for proxy in peers.proxies.values():
            proxy.delay, proxy.rate = DELAY, RATE
        peers.start()
        peers.finish(300)
        size = 4 * len(peers.first())
        floor = DELAY + size / RATE
        for name in peers.names:
            times = [at for _, at in sorted(peers.record(name).times.items())]
            spans = [(b - a) / STRETCH for a, b in zip(times[10:], times[10 + STRETCH :], strict=False)]
            best, mean = min(spans), (times[-1] - times[10]) / (len(times) - 11)
            print(
                f"\n{name}: {size:,} bytes a message; a round {1000 * best:.0f} ms (mean {1000 * mean:.0f} ms), "
                f"floor {1000 * floor:.0f} ms, ratio {best / floor:.2f}"
            )
            assert size > 395_000
            # The best stretch: what else runs on the machine only adds, and much of it may add to every stretch.
            assert best <= (1.3 if os.getloadavg()[0] <= 2 * (os.cpu_count() or 1) else 3.0) * floor
