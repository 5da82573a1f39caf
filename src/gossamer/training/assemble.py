"""Plan → parts: everything a run is made of at the nodes hosted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.config.schema import PersonUnit
from gossamer.data.arrays import gathered
from gossamer.data.dataset import Dataset
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.kernels.oracle import one_output
from gossamer.kernels.stack import fixed_values
from gossamer.mechanism.clipping import Clip, extremes
from gossamer.mechanism.noise import Levels, Mechanism, Participation
from gossamer.mechanism.reader import Book, Records
from gossamer.mechanism.sampling import NodeLot, Sampler
from gossamer.runtime.group import Group
from gossamer.training.data import held
from gossamer.training.plan import Plan
from gossamer.training.privacy import NodePlan


@dataclass(frozen=True)
class Parts:
    """All but the ledger, which needs a place on disk."""

    plan: Plan
    nodes: range  # hosted here: all of them in the simulator, a block of them in one of several processes
    dataset: Dataset
    records: Records
    sampler: Sampler
    noise: Mechanism
    x0: Tensor  # what is trained, at the start
    fixed: dict[str, Tensor]  # what training leaves as it is: frozen parameters and buffers
    test: tuple[Tensor, Tensor]
    rows: NDArray[np.int64]  # of the data set, node after node
    judged: Records | None = None  # kept out of training, for a private evaluation
    judged_rows: NDArray[np.int64] | None = None  # of the data set, node after node

    @property
    def plans(self) -> Sequence[NodePlan]:
        return self.plan.privacy.nodes[self.nodes.start : self.nodes.stop]

    @property
    def private_hold_out(self) -> bool:
        """Is there a hold-out that was not declared public?"""
        return len(self.test[0]) > 0 and not self.dataset.public_test

    @property
    def noise_on_messages(self) -> bool:
        return self.plan.method.noise_on_messages

    @property
    def message_scale(self) -> Tensor:
        """(m,) of the noise on the messages, where they carry it."""
        return self.noise.levels.factor * self.plan.config.privacy.clip.unit

    def clip(self) -> Clip:
        """A clip with state of its own."""
        lots = torch.tensor([node.lot for node in self.plans], dtype=torch.float64)
        plan = self.plan.privacy
        largest = self.noise.levels.factor * extremes(plan.shape, plan.draws).largest
        return self.plan.config.privacy.clip.make(plan.draws, lots, largest)

    def reader(self, book: Book, stream: Stream | None = None, written: Sequence[int] | None = None) -> Any:
        """The private part, with a noise stream and clip state of its own: two runs never share a draw.

        `written` are the rows that write events: all, but for audits, which train many copies.
        """
        return self.plan.method.reader(self, book, stream or self.stream(), written)

    def agreed(self, group: Group, run: str, start: int) -> Parts:
        """With the secrets that the noise of several processes needs; `start`: how often the run was begun before."""
        if len(self.nodes) == self.plan.config.nodes:
            return self
        noise = self.noise.agree(
            self.nodes,
            lambda keys: group.join(keys, per_node=True),
            f"{run} {start}",
            seeded=self.plan.seeded,
        )
        return replace(self, noise=noise)

    def with_dataset(self, dataset: Dataset) -> Parts:
        """With the same rows of another form of the data set."""
        device, hold_out = self.records.x.device, len(self.test[0])

        def again(before: Records, rows: NDArray[np.int64] | None) -> Records:
            assert rows is not None
            return _records(dataset, rows, before.sizes, device, before.persons, mean=before.mean)

        x, y = _test(dataset, device)
        return replace(
            self,
            dataset=dataset,
            records=again(self.records, self.rows),
            judged=None if self.judged is None else again(self.judged, self.judged_rows),
            test=(x[:hold_out], y[:hold_out]),
        )

    def stream(self) -> Stream:
        """A new one from the system, or the seed's."""
        return Stream.seeded(self.plan.config.seed) if self.plan.seeded else Stream.system()


def assemble(o: Plan, *, nodes: range | None = None) -> Parts:
    """The parts of these nodes (of those the plan hosts, if None); no other node's records are kept."""
    config, privacy = o.config, o.privacy
    nodes = o.hosted if nodes is None else nodes
    plans = privacy.nodes[nodes.start : nodes.stop]
    dataset = o.dataset or o.cache.load(o.asked, o.data_dir, nodes)
    if config.device != "cpu" and not torch.cuda.is_available():
        raise UserError(f"device = {config.device!r} is not on this machine; use 'cpu'.")
    if config.evaluation.metric == "truth" and (dataset.truth is None or dataset.truth.size != o.stack.dim):
        raise UserError(
            "evaluation.metric = 'truth' needs a made-up set with as many coefficients as the model has parameters, "
            "for example data.kind = 'synthetic-regression' with model.kind = 'linear'; use 'hold-out'."
        )
    device, everyone = torch.device(config.device), held(o.asked, dataset)
    hosted = everyone.at(nodes, pooled=o.pool is not None)
    units, rows = hosted.units, np.concatenate(hosted.rows)
    # A node's vector is that of its mean loss.
    unit = config.privacy.unit
    mean = unit.combine == "mean" if isinstance(unit, PersonUnit) else unit == "node"
    records = _records(dataset, rows, [len(own) for own in hosted.rows], device, hosted.persons, mean=mean)
    sampler = None
    if o.pool is not None:
        sampler = privacy.sampling.make_uneven(np.repeat(o.pool.rates, everyone.units).tolist())
    if sampler is None:
        lots = [NodeLot(i, p.records, p.rate, p.lot) for i, p in zip(nodes, plans, strict=True)]
        sampler = privacy.sampling.make(lots, units)
    judged, judged_rows = None, None
    if hosted.judged is not None:
        judged_rows, sizes = np.concatenate(hosted.judged.rows), [len(own) for own in hosted.judged.rows]
        judged = _records(dataset, judged_rows, sizes, device, hosted.judged.persons, mean=True)
        # A network that cannot be evaluated on one record alone is refused now, not after the last round.
        one_output(o.module, torch.Size(o.shape), judged.x.dtype)
    levels = Levels(torch.tensor([node.factor for node in plans], dtype=torch.float64), privacy.shape)
    parts = Parts(
        plan=o,
        nodes=nodes,
        dataset=dataset,
        records=records,
        sampler=sampler,
        noise=privacy.noise.make(levels, np.array([node.end for node in plans])),
        x0=o.stack.flatten(o.module).to(device).repeat(len(nodes), 1),
        fixed=fixed_values(o.module),
        test=_test(dataset, device),
        rows=rows,
        judged=judged,
        judged_rows=judged_rows,
    )
    _check_parts(parts)
    return parts


def _records(
    dataset: Dataset,
    rows: NDArray[np.int64],
    sizes: Sequence[int],
    device: torch.device,
    persons: Sequence[NDArray[np.int64]] | None,
    *,
    mean: bool,
) -> Records:
    x, y = torch.from_numpy(gathered(dataset.x_train, rows)), torch.from_numpy(dataset.y_train[rows])
    return Records(x.to(device), y.to(device), sizes, persons=persons, mean=mean)


def _test(dataset: Dataset, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(dataset.x_test).to(device), torch.from_numpy(dataset.y_test).to(device)


def _check_parts(parts: Parts) -> None:
    """Refuse a clip that cannot be made, and a mechanism that will put less noise on file than was priced.

    In every draw: a new noise may keep its word in the first and break it later.
    """
    parts.clip()
    o = parts.plan
    shapes = sorted({o.privacy.shape(k) for k in range(o.privacy.draws)})
    seen = set()
    for i, node in enumerate(parts.plans):
        # Of nodes that are alike but for their number of records one is asked about every draw, the others about the
        # least and the largest noise: a release knows of a node what is in the key, and its multiplier.
        key = (parts.noise.ledger_key(i), node.end)
        probed = shapes if key not in seen else [shapes[0], shapes[-1]]
        seen.add(key)
        part = Participation(o.privacy.sampling.drawn_as, node.rate, o.privacy.adjacency)
        for multiplier in (node.factor * shape for shape in probed):
            planned = o.privacy.noise.release(multiplier, 1.0, o.stack.dim, part, node.end)
            written = parts.noise.release(i, multiplier, 1.0, o.stack.dim, part, enforced=True)
            if written.noise_multiplier < planned.noise_multiplier * (1 - 1e-9):
                raise UserError(
                    f"privacy.noise.family.kind = {o.privacy.noise.kind!r} plans more noise than it adds "
                    f"({planned.noise_multiplier:.4g} against {written.noise_multiplier:.4g} sensitivities); its "
                    "`release` and its mechanism's must agree."
                )
