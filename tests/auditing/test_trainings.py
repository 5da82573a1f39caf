"""Many trainings side by side are as many trainings: each mixes within itself, and each has noise of its own."""

from __future__ import annotations

from typing import Any

import torch
from tests.support.configurations import outlined

from gossamer.auditing.trainings import StackedExchange, repeat, train
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.runtime.group import SimulatedExchange
from gossamer.topology.kinds import build
from gossamer.training.assemble import Parts, assemble

SHORT: dict[str, Any] = {"nodes": 4, "rounds": 3, "topology__kind": "ring", "algorithm__kind": "dp-dsgd"}
RUNS = 3


def stacked(**changes: Any) -> tuple[Parts, Parts]:
    parts = assemble(outlined(**SHORT, privacy__sampling={"kind": "full"}, **changes))
    own = parts.records
    starts = [0, *torch.tensor(own.sizes).cumsum(0).tolist()][:-1]
    sizes = [size for size in own.sizes for _ in range(RUNS)]
    rows = [start for start in starts for _ in range(RUNS)]
    return parts, repeat(parts, RUNS, Records(own.x, own.y, sizes, rows))


def test_runs_mix_within_themselves() -> None:
    topology = build("ring", nodes=4, weights="doubly", seed=0)
    seen: list[Any] = []

    class Note:
        def see(self, t: int, sent: Any, received: Any) -> None:
            seen.append((t, sent, received))

    exchange = StackedExchange(SimulatedExchange(topology), 4, [Note()])  # type: ignore[list-item]
    x = torch.randn(4 * RUNS, 5, generator=torch.Generator().manual_seed(0))
    mixed = exchange(2, x)
    for r in range(RUNS):  # row i · RUNS + r is node i of run r
        alone = SimulatedExchange(topology)(2, x[r::RUNS].contiguous())
        torch.testing.assert_close(mixed[r::RUNS], alone)
    ((t, sent, received),) = seen
    assert t == 2
    assert sent[0] is x
    torch.testing.assert_close(received[0], mixed)


def test_without_noise_every_run_is_the_one_run() -> None:
    parts, many = stacked(privacy__noise__schedule={"kind": "none"})
    models = train(many, Stream.seeded(0)).state.x
    one = train(parts, Stream.seeded(0)).state.x
    for r in range(RUNS):
        torch.testing.assert_close(models[r::RUNS], one, rtol=1e-4, atol=1e-5)


def test_with_noise_no_two_are_alike() -> None:
    _, many = stacked(privacy__noise__multiplier=2.0)
    made = train(many, Stream.seeded(0))
    assert len(torch.unique(made.state.x, dim=0)) == 4 * RUNS
    again = train(many, Stream.seeded(0))
    assert torch.equal(made.state.x, again.state.x)


def test_repeated_parts_have_every_nodes_constants_as_often() -> None:
    parts, many = stacked(privacy__noise__multiplier=2.0)
    assert len(many.plans) == len(many.x0) == len(many.noise.levels.factor) == 4 * RUNS
    assert list(many.sampler.rates) == [rate for rate in parts.sampler.rates for _ in range(RUNS)]
    assert many.plans[RUNS] == parts.plans[1]
