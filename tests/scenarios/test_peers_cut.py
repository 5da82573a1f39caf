"""Real peers whose connections are cut, or one of which stands still: what it costs, against the same simulated."""

from __future__ import annotations

import itertools
import random
import signal
import time
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest
import torch
from tests.support.real_peers import SEEDED, Peers
from tests.support.replay import replay_push_sum
from tests.support.simulated_peers import copied, simulate

from gossamer.consortium.files import now
from gossamer.consortium.peer import OneSite, Participation
from gossamer.training.assemble import assemble
from gossamer.training.run import Run

pytest.importorskip("grpc")
pytestmark = pytest.mark.slow

WINDOW = 2.0  # seconds that a cut connection stays cut


def weather(peers: Peers, share: float) -> float:
    """Cut connections until the study ends; which share of the pairs was down, on average."""
    pick, pairs = random.Random(7), len(peers.names) * (len(peers.names) - 1) // 2
    down: list[float] = []
    while any(child.poll() is None for child in peers.children.values()):
        for proxy in peers.proxies.values():
            proxy.refusing = proxy.cut_some(share, pick) > 0
        end = time.monotonic() + WINDOW
        while time.monotonic() < end:
            down.append(1 - sum(proxy.connections for proxy in peers.proxies.values()) / pairs)
            time.sleep(0.05)
    return mean(down[: -int(WINDOW / 0.05)])  # without the end, when all say farewell


def test_cut_connections_cost_what_they_cost_simulated(tmp_path: Path) -> None:
    share, points = 0.3, 3.0
    with Peers(
        tmp_path / "real",
        5,
        80,
        deadline=1.5,
        tick=0.25,
        wait=60.0,
        proxied=True,
        changes=SEEDED,
        for_science=True,
    ) as peers:
        other = copied(peers, tmp_path / "simulated")
        peers.start()
        peers.until(lambda: all(peers.round(name) >= 0 for name in peers.names), 120)
        # A cut connection is down for longer than a window: it is dialled again after a pause.
        down = weather(peers, share * WINDOW / (WINDOW + 1.0))
        peers.finish(60)
        real = mean(peers.accuracies())
        simulated = mean(simulate(peers, other, cut=down, window=WINDOW))
        print(f"\n{down:.1%} of pairs down: accuracy {real:.4f}, the same simulated {simulated:.4f}")
        assert share / 3 < down < 2 * share  # the simulation has what it was
        assert abs(real - simulated) <= points / 100
        weight, sum_of_x = peers.mass_errors()
        print(f"|Σw − n| = {weight:.1e}, Σx relative {sum_of_x:.1e}; replayed within {replay_in_simulator(peers):.1e}")
        assert weight <= 1e-9
        assert sum_of_x <= 1e-5


def replay_in_simulator(peers: Peers) -> float:
    """The steps once more, every gradient drawn anew by the simulator's reader at the point that it has now."""
    o = peers.plan()
    records = {name: peers.record(name) for name in peers.names}
    readers = {}
    for name in peers.names:
        folder = peers.folder / name / "again"
        folder.mkdir()
        found = Participation.open(peers.study, peers.folder / name, folder, now())
        group = OneSite(name, found.node, len(found.sites))
        readers[name] = Run.begin(assemble(found.plan(), nodes=found.nodes), folder / "run", group).reader

    def moved(site: str, t: int, model: np.ndarray) -> np.ndarray:
        _, draw, _ = records[site].used[t]
        readers[site].draws = draw
        point = torch.from_numpy(model).float()[None]
        return np.asarray(-o.algorithm.lr(t) * readers[site](point)[0].double().numpy())

    steps = {name: [record.steps[place] for place in sorted(record.steps)] for name, record in records.items()}
    x, w = replay_push_sum(dict.fromkeys(peers.names, peers.first()), steps, moved)
    found = peers.models()
    again = np.stack([x[name] / w[name] for name in peers.names])
    error = float(np.abs(again - found).max() / np.abs(found).max())
    assert error < 5e-4  # float32 messages, added up in another order
    return error


def test_a_peer_that_stands_still_for_half_a_minute_costs_one_deadline_and_catches_up(tmp_path: Path) -> None:
    deadline, still = 5.0, 30.0
    with Peers(tmp_path, 4, 240, deadline=deadline, tick=0.25, wait=120.0) as peers:
        peers.start()
        peers.until(lambda: all(peers.round(name) >= 30 for name in peers.names), 180)
        stopped, others = peers.names[1], [name for name in peers.names if name != peers.names[1]]
        began = time.time()
        peers.signal(stopped, signal.SIGSTOP)
        time.sleep(still)
        peers.signal(stopped, signal.SIGCONT)
        ended = time.time()
        at = max(peers.round(name) for name in others)
        peers.until(lambda: peers.round(stopped) >= at, 300)
        caught_up = time.time() - ended
        peers.finish(300)
        for name in others:
            times = peers.record(name).times
            before = pace(times, 0.0, began)
            meanwhile = pace(times, began + deadline + 1.0, ended)
            print(f"\n{name}: {before:.2f} s a round before, {meanwhile:.2f} s meanwhile", end="")
            assert meanwhile < before + deadline / 2  # not a deadline every round, however busy the machine
        print(f"\n{stopped} was in round {at} {caught_up:.1f} s after it went on")
        assert peers.mass_errors()[0] <= 1e-9
        peers.released_once()
        peers.verified()


def pace(times: dict[int, float], since: float, until: float) -> float:
    """Seconds a round, in that time: the median."""
    found = sorted(at for at in times.values() if since <= at <= until)
    assert len(found) > 10
    return median(b - a for a, b in itertools.pairwise(found))
