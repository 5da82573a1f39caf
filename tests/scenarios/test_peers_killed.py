"""Real peers that are killed: what their disks say then, and that the study finishes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.real_peers import CONSTANT, Peers
from tests.support.replay import replay_push_sum

pytest.importorskip("grpc")
pytestmark = pytest.mark.slow

KILLS, ASKED = 20, 8.0


def test_twenty_kills_and_then_all_at_once_lose_nothing(tmp_path: Path) -> None:
    pick = random.Random(1)
    with Peers(tmp_path, 5, 260, deadline=3.0, tick=0.5, wait=120.0, changes=CONSTANT) as peers:

        def furthest() -> int:
            return max(peers.round(name) for name in peers.names)

        peers.start()
        peers.until(lambda: all(peers.round(name) > 2 for name in peers.names), 300)
        launched, trained = dict.fromkeys(peers.names, 1), 0
        for _ in range(KILLS):
            time.sleep(pick.uniform(0.0, 1.5))
            name = pick.choice(peers.names)  # perhaps one that has hardly begun
            # Far more than links need (seconds): one that was killed while it compiled kernels compiles them again.
            peers.until(lambda name=name: len(peers.record(name).starts) == launched[name], 300)
            if pick.random() < 0.7:
                peers.until(lambda name=name: peers.moved_since_start(name), 300)
            trained += peers.moved_since_start(name)
            peers.kill(name)
            peers.start(name)
            launched[name] += 1
        due = furthest() + 10
        peers.until(lambda: furthest() >= due, 120)
        peers.kill(*peers.names)
        here = {name: peers.round(name) for name in peers.names}
        assert max(here.values()) < peers.rounds - 20  # or there was nothing left to lose
        weight, sum_of_x = peers.mass_errors()
        print(
            f"\n{trained} of {KILLS} were killed while they trained; rounds {here}: |Σw − n| = {weight:.1e}, Σx relative {sum_of_x:.1e}"
        )
        assert trained > KILLS / 2
        assert weight <= 1e-9
        assert sum_of_x <= 1e-5
        peers.released_once()
        peers.start()
        peers.finish(600)
        weight, sum_of_x = peers.mass_errors()
        drawn = {name: len(peers.steps(name)) for name in peers.names}
        print(f"at the end, draws {drawn}: |Σw − n| = {weight:.1e}, Σx relative {sum_of_x:.1e}")
        assert weight <= 1e-9
        assert sum_of_x <= 1e-5
        peers.released_once()
        assert all(peers.epsilon(name) <= ASKED for name in peers.names)
        peers.verified()
        replayed(peers)


def replayed(peers: Peers) -> None:
    """All steps once more, by arithmetic alone, with the gradients that were released."""
    lr = peers.plan().algorithm.lr
    records = {name: peers.record(name) for name in peers.names}
    steps = {name: [record.steps[place] for place in sorted(record.steps)] for name, record in records.items()}
    x, w = replay_push_sum(
        dict.fromkeys(peers.names, peers.first()),
        steps,
        lambda site, t, model: -lr(t) * records[site].used[t][2],
    )
    found = peers.models()
    for name, model in zip(peers.names, found, strict=True):
        np.testing.assert_allclose(x[name] / w[name], model, rtol=1e-3, atol=1e-4 * np.abs(model).max())
