"""Noise that cancels: masks sum to zero, the covariance is s² (I + r L), and every way of drawing it is the same noise."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from tests.support.mechanism import levels
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import colluders
from gossamer.accounting.releases import Pairwise as Release
from gossamer.accounting.secrets import Secrets
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Participation, families
from gossamer.mechanism.noise.pairwise import RATIO, PairwiseAmong, PairwiseNoise

RING = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
SECRETS = {"complete": "complete", "exponential": "exponential", "listed": RING}
N, COUNT = 5, 40_000


def among(secrets="complete", nodes=N, ratio=3.0, colluders=1) -> PairwiseAmong:
    return families.parse(
        {"kind": "pairwise", "secrets": secrets, "ratio": ratio, "colluders": colluders}
    ).for_node_count(nodes)


def noise_of(kind: PairwiseAmong) -> PairwiseNoise:
    made = kind.make(levels(1.0, kind.secrets.nodes), np.full(kind.secrets.nodes, math.inf))
    assert isinstance(made, PairwiseNoise)
    return made


def added(noise: PairwiseNoise, stream: Stream, rows, k: int, count: int) -> torch.Tensor:
    """What a draw adds to sums of 0, in units of a node's own noise."""
    sums, ones = torch.zeros(len(rows), count), torch.ones(len(rows), dtype=torch.float64)
    noise.add(stream, rows, k, sums, multiplier=ones, bound=ones, active=ones.bool())
    return sums


def agreed(kind: PairwiseAmong, blocks: list[range], start: str = "run 0") -> list[PairwiseNoise]:
    """Several processes that hand each other their public keys: first everyone's are collected, then given out."""
    import threading

    collected: dict[int, list[str]] = {}
    everyone = threading.Barrier(len(blocks))
    made: list[PairwiseNoise | None] = [None] * len(blocks)

    def process(rank: int) -> None:
        def join(keys: list[str]) -> list[str]:
            collected[rank] = keys
            everyone.wait(20)
            return [key for r in range(len(blocks)) for key in collected[r]]

        noise = noise_of(kind).agree(blocks[rank], join, start, seeded=False)
        made[rank] = noise

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(len(blocks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [noise for noise in made if noise is not None]


def system_noise(kind: PairwiseAmong, k: int = 0, count: int = COUNT) -> np.ndarray:
    """As one process with all nodes draws it; the key is fixed, so that the test is."""
    stream = Stream(b"0123456789abcdef", is_seeded=False)
    return added(noise_of(kind), stream, range(kind.secrets.nodes), k, count).double().numpy()


def seeded_noise(kind: PairwiseAmong, k: int = 0, count: int = COUNT) -> np.ndarray:
    return added(noise_of(kind), Stream.seeded(3), range(kind.secrets.nodes), k, count).double().numpy()


def process_noise(kind: PairwiseAmong, k: int = 0, count: int = COUNT) -> np.ndarray:
    n = kind.secrets.nodes
    blocks = [range(2), range(2, n)]
    rows = []
    for block, noise in zip(blocks, agreed(kind, blocks), strict=True):
        rows.append(added(noise, Stream.system(), block, k, count).double().numpy())
    return np.concatenate(rows)


def fits(values: np.ndarray, covariance: np.ndarray) -> bool:
    """Rotated and scaled by the covariance the values are standard normals: χ² of each direction, at p = 1e-6 in all."""
    sizes, directions = np.linalg.eigh(covariance)
    squares = ((directions.T @ values) ** 2).sum(1) / sizes
    tail = 1e-6 / (2 * len(sizes))
    low, high = stats.chi2.ppf([tail, 1 - tail], values.shape[1])
    return bool(((squares > low) & (squares < high)).all())


@pytest.mark.parametrize("draw", [system_noise, seeded_noise])
@pytest.mark.parametrize("secrets", SECRETS.values(), ids=SECRETS)
def test_the_covariance_over_nodes_is_own_noise_and_the_laplacian_of_the_secrets(draw, secrets) -> None:
    kind = among(secrets)
    values, covariance = draw(kind), kind.secrets.covariance_among(np.arange(N), 3.0)
    assert fits(values, covariance)
    for wrong in (covariance - 0.3 * kind.secrets.laplacian, covariance + 0.1 * np.eye(N)):
        assert not fits(values, wrong)
    assert np.abs(np.cov(values) - covariance).max() < 5 * 13 / math.sqrt(COUNT)


def test_so_it_is_over_processes_that_agreed_on_secrets() -> None:
    """Keys come from the system, so this is a fresh sample each time: at p = 1e-6 it fails once in a million runs."""
    kind = among()
    assert fits(process_noise(kind), kind.secrets.covariance_among(np.arange(N), 3.0))


@pytest.mark.parametrize("secrets", SECRETS.values(), ids=SECRETS)
def test_masks_are_integers_that_sum_to_zero(secrets) -> None:
    noise = noise_of(among(secrets, ratio=1e4))
    for stream in (Stream.seeded(3), Stream(b"0123456789abcdef", is_seeded=False)):
        masks = noise.ahead(stream, range(N), 0, COUNT)
        assert masks.abs().max() > 100 * RATIO
        assert torch.equal(masks, masks.round())
        assert not masks.sum(0).any()
    total = system_noise(among(secrets, ratio=1e4)).sum(0)
    assert total.std() == pytest.approx(math.sqrt(N), rel=0.05)


def test_processes_add_what_the_simulator_adds_bit_for_bit_where_noise_is_seeded() -> None:
    for secrets in SECRETS.values():
        noise = noise_of(among(secrets))
        whole = added(noise, Stream.seeded(3), range(N), 7, 100)
        parts = [added(noise, Stream.seeded(3), block, 7, 100) for block in (range(2), range(2, 3), range(3, 5))]
        assert torch.equal(torch.cat(parts), whole)


def test_a_node_alone_with_its_secrets_has_the_stated_variance() -> None:
    values = process_noise(among(ratio=2.0))
    assert values.var(axis=1) == pytest.approx(np.full(N, 1 + 2.0 * (N - 1)), rel=0.1)


@pytest.mark.parametrize("members", [(), (1,), (0, 3)])
@pytest.mark.parametrize("secrets", SECRETS.values(), ids=SECRETS)
def test_what_some_nodes_do_not_know_has_the_covariance_of_the_secrets_among_the_others(secrets, members):
    """Drawn pair by pair, as an audit draws it for many runs at once; χ² at p = 1e-6 of each case, with a fixed key."""
    copies, d, stream = 4, COUNT // 4, Stream(b"0123456789abcdef", is_seeded=False)
    kind, rows = among(secrets), np.arange(copies * N)
    noise = replace(noise_of(kind).repeated(copies), by_pairs=True)
    drawn = added(noise, stream, rows, 2, d)
    left = (drawn - noise.known_to(members, stream, rows, 2, d)).double().numpy().reshape(N, -1)
    honest = [i for i in range(N) if i not in members]
    assert np.abs(np.delete(left, honest, axis=0)).max(initial=0) < 1 / RATIO  # rounding
    block = kind.secrets.laplacian[np.ix_(honest, honest)]
    unknown = np.eye(len(honest)) + 3.0 * (block - np.diag(block.sum(1)))
    assert fits(left[honest], unknown)
    assert not fits(left[honest], unknown + 0.1 * np.eye(len(honest)))
    # Together they are what the run adds, whichever way it is drawn.
    assert fits(drawn.double().numpy().reshape(N, -1), kind.secrets.covariance_among(np.arange(N), 3.0))
    together = added(noise_of(kind).repeated(copies), stream, rows, 2, d)
    assert fits(together.double().numpy().reshape(N, -1), kind.secrets.covariance_among(np.arange(N), 3.0))


def test_pair_by_pair_is_what_processes_draw_bit_for_bit() -> None:
    for secrets in SECRETS.values():
        noise = noise_of(among(secrets))
        alone = added(noise, Stream.seeded(3), range(N), 7, 100)
        assert torch.equal(added(replace(noise, by_pairs=True), Stream.seeded(3), range(N), 7, 100), alone)


def test_no_mask_comes_twice() -> None:
    """Other draws, other starts of the same run and other runs have other masks."""
    kind, block = among(ratio=1e6), range(2)
    seen = []
    for start in ("run 0", "run 0", "run 1"):
        noise = agreed(kind, [block, range(2, N)], start)[0]
        seen += [noise.ahead(Stream.system(), block, k, 1000).numpy()[0] for k in (0, 1)]
    for one, other in combinations(seen, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


def test_without_agreed_secrets_a_part_of_the_nodes_cannot_draw() -> None:
    with pytest.raises(ValueError, match="2 of 5 nodes are here"):
        noise_of(among()).ahead(Stream.system(), range(2), 0, 10)


@pytest.mark.parametrize("secrets", ["complete", RING], ids=["complete", "listed"])
def test_copies_side_by_side_are_independent_runs(secrets) -> None:
    kind = among(secrets)
    noise = noise_of(kind).repeated(3)
    rows = added(noise, Stream(b"0123456789abcdef", is_seeded=False), range(3 * N), 0, COUNT).double().numpy()
    expected = np.kron(kind.secrets.covariance_among(np.arange(N), 3.0), np.eye(3))
    assert fits(rows, expected)


@pytest.mark.parametrize("ready", [False, True])
def test_what_is_added_is_of_the_size_asked_for_and_a_node_without_budget_keeps_masking(ready) -> None:
    kind = among(ratio=1e4)
    noise, stream = noise_of(kind), Stream.seeded(5)
    multiplier, bound = torch.tensor([1.0, 2.0, 1.0, 1.0, 4.0]).double(), torch.full((N,), 0.5).double()
    sums = torch.zeros(N, COUNT)
    active = torch.tensor([True, True, True, True, False])
    ahead = noise.ahead(stream, range(N), 0, COUNT) if ready else None
    noise.add(stream, range(N), 0, sums, multiplier=multiplier, bound=bound, active=active, ready=ahead)
    means = sums / multiplier[:, None].float()  # as nodes divide whose scale goes with their divisor
    assert means.std(1).min() > 50
    assert means.sum(0).std() == pytest.approx(0.5 * math.sqrt(N), rel=0.05)


def test_the_release_says_by_whom_it_was_planned_to_be_seen() -> None:
    kind = among(colluders=2)
    part = Participation("full", 1.0, "add-remove")
    planned = kind.release(2.0, 0.5, 10, part, math.inf)
    assert isinstance(planned, Release)
    assert noise_of(kind).release(1, 4.0, 0.5, 10, part, enforced=True) == planned
    assert math.isinf(noise_of(kind).release(1, 4.0, 0.5, 10, part, enforced=False).sensitivity)
    assert planned.noise_multiplier == pytest.approx(4.0 * Secrets.complete(N).effective_noise(2, 3.0))
    assert kind.kept == Secrets.complete(N).effective_noise(2, 3.0)
    assert kind.observer == colluders(2)
    assert kind.header == {"steps_per_sigma": RATIO}
    assert kind.all_alike
    assert not among(RING).all_alike
    honest = np.array([0, 2, 3])
    assert np.array_equal(kind.covariance(honest), Secrets.complete(3).covariance_among(np.arange(3), 3.0))
    assert among(RING).header["secrets"] == sorted([min(e), max(e)] for e in RING)


REFUSALS = {
    "all collude": ({"colluders": 5}, "privacy.noise.family.colluders 5"),
    "falls apart": (
        {"secrets": [[0, 1], [1, 2], [2, 3], [3, 4]]},
        "privacy.noise.family.secrets 1",
    ),
    "no such node": ({"secrets": [[0, 5]]}, "privacy.noise.family.secrets 0 5"),
    "with itself": ({"secrets": [[1, 1]]}, "privacy.noise.family.secrets 1"),
    "too many": ({"secrets": RING, "nodes": 2000}, "privacy.noise.family.secrets 1000"),
    "too many by distances": (
        {"secrets": "exponential", "nodes": 20_000},
        "privacy.noise.family.secrets exponential 10000",
    ),
}


@pytest.mark.parametrize(("changes", "words"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(changes, words) -> None:
    with expect_refusal(names=words):
        among(**changes)


def test_before_the_number_of_nodes_is_known_it_hides_nothing() -> None:
    bare = families.parse({"kind": "pairwise"})
    part = Participation("full", 1.0, "add-remove")
    for call in (
        lambda: bare.release(1.0, 1.0, 1, part, math.inf),
        lambda: bare.make(levels(1.0, 2), np.ones(2)),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
