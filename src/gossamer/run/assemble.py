"""Configuration → objects: the only place where the parts are put together, and where `mode` ends."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.accounting.ledger import LedgerBook
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import Centre, FinalGossip, Mixes, Momentum, TailAverage, bare
from gossamer.config.baselines import Pool, effective, pool
from gossamer.config.schema import RunConfig
from gossamer.data.by_node import load_nodes
from gossamer.data.dataset import Dataset
from gossamer.data.own import OwnFile
from gossamer.data.partition import Even, Owner, split
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.kernels.stack import ParameterStack
from gossamer.mechanism.clipping import Clip, ClipTo, Normalise, QuantileClip, Unclipped
from gossamer.mechanism.noise.arithmetic import Arithmetic, Floating, Lattice
from gossamer.mechanism.noise.shaped import Shaped
from gossamer.mechanism.reader import Book, Noise, PrivateGradient, Records
from gossamer.mechanism.sampling import (
    FixedSizeSampler,
    FullSampler,
    OnePassSampler,
    PoissonSampler,
    Sampler,
    UnevenPoissonSampler,
)
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.messages import NoisyMessages, Unreleased
from gossamer.methods.objective import check_operator, per_sample_loss, vector_of
from gossamer.methods.without_replacement.algorithm import Collaborative
from gossamer.methods.without_replacement.lemma4 import lemma4_of
from gossamer.methods.without_replacement.local_models import Blind, LocalModels, RawView, ReleasedView, View
from gossamer.methods.without_replacement.token import TokenExchange
from gossamer.methods.without_replacement.token_ranks import RankTokenExchange
from gossamer.models.centred import Centred
from gossamer.models.check import check_no_mixing
from gossamer.models.lookup import Lookup
from gossamer.plan.privacy import Facts, NodePlan, PrivacyPlan, clip_schedule, plan_privacy, rates_of
from gossamer.runtime.group import Group
from gossamer.runtime.transport.torch import Ranks
from gossamer.topology.kinds import isolated

if TYPE_CHECKING:
    from gossamer.topology.schedule import Topology

__all__ = ["Outline", "Parts", "assemble", "outline", "per_sample_loss"]


@dataclass(frozen=True)
class Outline:
    """What is known of a run without reading a record: enough for `plan`."""

    config: RunConfig  # what runs
    asked: RunConfig  # what was asked for; a baseline runs something else
    algorithm: Algorithm
    topology: Topology
    module: nn.Module
    stack: ParameterStack
    plan: PrivacyPlan
    classes: int | None
    dataset: Dataset | None  # loaded only where the outline needs it
    pool: Pool | None  # of the central baseline

    @property
    def loss(self) -> Any:
        return per_sample_loss(self.classes, self.config)

    @property
    def bytes_per_round(self) -> float:
        """What a message holds, over every link of a round; the mean over the first period.

        Where a token goes round: what all writes of a round would fetch.
        """
        if isinstance(self.algorithm, Collaborative):
            return 4.0 * self.stack.dim * self.config.nodes
        rounds = range(min(self.topology.period or 8, 64))
        links = float(np.mean([self.topology.out_degree(t).sum() for t in rounds]))
        return 4.0 * floats_per_message(self.algorithm, self.stack.dim) * links


def outline(
    config: RunConfig,
    *,
    data_dir: Path | None = None,
    module: nn.Module | None = None,
    dataset: Dataset | None = None,
    nodes: range | None = None,
) -> Outline:
    """`dataset`: the configuration's data where they are loaded already. `nodes`: those hosted here; all, if None."""
    asked, config = config, effective(config)
    algorithm = build_algorithm(config)
    topology = _topology(config, algorithm.weights)
    dataset, shape, classes, sizes = _data_facts(asked, data_dir, dataset, nodes)
    records = declared(config, sizes)
    if module is None:
        _check_places(config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            module = config.model.make(shape, classes or 1)
    if config.privacy.centre is not None:
        if len(shape) > 1 and config.model.kind not in ("softmax", "mlp"):
            raise UserError(
                f"privacy.centre = {config.privacy.centre:g} turns records into rows of numbers, which model.kind = "
                f"{config.model.kind!r} does not take; use softmax or mlp."
            )
        module = Centred(module, math.prod(shape))
        algorithm = _centring(algorithm, config, math.prod(shape))
    check_no_mixing(module)
    rates, pooled = rates_of(config, records), None
    if config.baseline == "central":
        pooled = pool(config, records, rates)
        records, rates = [pooled.records], [(pooled.rate, pooled.lot)]
    check_operator(config, algorithm)
    vector_of(config, algorithm, module, classes)  # a mistake in it shows now
    dimension = sum(parameter.numel() for parameter in module.parameters())
    facts = facts_of(config, algorithm, topology, dimension, classes)
    plan = plan_privacy(config, records, algorithm.draws, rates, facts)
    return Outline(
        config, asked, algorithm, topology, module, ParameterStack(module), plan, classes, dataset, pooled
    )


@dataclass(frozen=True)
class Parts:
    """Everything a run is made of at the nodes hosted here, but for the ledger, which needs a place on disk."""

    outline: Outline
    nodes: range  # hosted here: all of them in the simulator, a block of them in one of several processes
    dataset: Dataset
    records: Records
    sampler: Sampler
    noise: Noise
    x0: Tensor
    test: tuple[Tensor, Tensor]

    @property
    def hosted(self) -> Sequence[NodePlan]:
        return self.outline.plan.nodes[self.nodes.start : self.nodes.stop]

    @property
    def noisy_messages(self) -> bool:
        """Is it the messages that carry the noise? Then the answers about records have none and stay on their node."""
        return self.outline.plan.on == "iterate" and self.outline.plan.mechanism != "none"

    def exchange(
        self,
        group: Group,
        run: str,
        private: PrivateGradient | LocalModels,
        book: LedgerBook,
        *,
        state: Any,
        known_at: Container[int],
        bytes_sent: int,
    ) -> Any:
        """What carries the messages of run `run`, from `state` on, with what is done to one before it leaves.

        Gradients draw their next noise while messages travel. A shared model that goes round is known to all
        processes after the rounds `known_at`.
        """
        o = self.outline
        if isinstance(private, LocalModels):
            made = self._token(group, run, private, state, known_at)
            made.bytes_sent = bytes_sent
            return made
        plain = group.exchange(o.topology, run, partial(private.draw_ahead, o.stack.dim))
        plain.bytes_sent = bytes_sent
        return self.noised(plain, book, _stream(o.config), start=private.draws)

    @property
    def message_noise(self) -> Tensor:
        """(m,) the scale of the noise on the messages, where they carry it."""
        bound: float = getattr(self.outline.config.privacy.clip, "bound", 1.0)
        return self.noise.factor * bound

    def noised(self, plain: Any, book: Book, stream: Stream, *, start: int = 0) -> Any:
        """The exchange with noise on the messages, if they are to carry it; else as it is."""
        if not self.noisy_messages:
            return plain
        o = self.outline
        return NoisyMessages(
            plain,
            mechanism=o.plan.mechanism,
            scale=self.message_noise,
            arithmetic=_arithmetic(o, self.hosted),
            stream=stream,
            book=book,
            nodes=self.nodes,
            adjacency=o.plan.adjacency,
            start=start,
        )

    def _token(
        self, group: Group, run: str, private: LocalModels, state: Any, known_at: Container[int]
    ) -> TokenExchange | RankTokenExchange:
        nodes, seed = self.outline.config.nodes, self.outline.config.seed
        public = state.public.view(self.outline.classes or 1, -1).clone()
        made: TokenExchange | RankTokenExchange = TokenExchange(nodes, seed, public)
        if isinstance(group, Ranks):
            made = RankTokenExchange(group, run, nodes, seed, public, private, known_at)
        made.token.load_state_dict({"public": public, "holder": state.holder, "writes": state.writes})
        return made

    def clip(self) -> Clip:
        """A clip part with state of its own."""
        return _clip(self.outline.config, self.outline.plan, self.hosted, self.noise)

    def gradient(
        self, book: Book, stream: Stream | None = None, written: Sequence[int] | None = None
    ) -> PrivateGradient | LocalModels:
        """With a noise stream and clip state of its own: two runs of the same parts never share a draw."""
        o = self.outline
        if isinstance(o.algorithm, Collaborative):
            return self._local_models(o.algorithm, book, stream or _stream(o.config))
        nodes = self.hosted
        unreleased = self.noisy_messages
        return PrivateGradient(
            vector=vector_of(o.config, o.algorithm, o.module, o.classes),
            records=self.records,
            sampler=self.sampler,
            clip=self.clip(),
            noise=replace(self.noise, mechanism="none") if unreleased else self.noise,
            stream=stream or _stream(o.config),
            book=Unreleased() if unreleased else book,
            nodes=self.nodes,
            lots=[node.lot for node in nodes],
            divisors=[node.lot / node.weight for node in nodes],
            allowance=[node.allowance for node in nodes],
            adjacency=o.plan.adjacency,
            arithmetic=_arithmetic(o, nodes),
            diagnostics=o.config.evaluation.diagnostics,
            written=written,
        )

    def _local_models(self, algorithm: Collaborative, book: Book, stream: Stream) -> LocalModels:
        o, clip = self.outline, self.outline.config.privacy.clip
        view: View = Blind()
        if algorithm.looks:
            view = RawView() if algorithm.observes == "raw" else ReleasedView(algorithm.loss_share)
        return LocalModels(
            records=self.records,
            sampler=self.sampler,
            classes=o.classes or 1,
            record_bound=clip.radius if clip.kind == "record-ball" else math.inf,
            regularisation=algorithm.regularisation,
            radius=algorithm.radius,
            average=algorithm.average,
            view=view,
            noise=self.noise,
            stream=stream,
            book=book,
            nodes=self.nodes,
            of=o.config.nodes,
            lots=[node.lot for node in self.hosted],
            allowance=[node.allowance for node in self.hosted],
            adjacency=o.plan.adjacency,
            turns=o.config.rounds,
        )


def _stream(config: RunConfig) -> Stream:
    return Stream.seeded(config.seed) if config.privacy.noise.source == "seeded" else Stream.system()


def _arithmetic(o: Outline, nodes: Sequence[NodePlan]) -> Arithmetic:
    plan = o.plan
    if plan.mechanism not in ("gaussian", "own-norm-gaussian", "none"):
        return Shaped(plan.mechanism, plan.family, np.array([node.bound for node in nodes]))
    return Lattice() if o.config.privacy.noise.arithmetic == "lattice" else Floating()


def assemble(o: Outline, *, data_dir: Path | None = None, nodes: range | None = None) -> Parts:
    """The parts of these nodes (of all, if not said); no other node's records are kept."""
    config = o.config
    nodes = range(config.nodes) if nodes is None else nodes
    hosted = o.plan.nodes[nodes.start : nodes.stop]
    dataset = o.dataset or _load(o.asked, data_dir, nodes)
    pieces = _partition(o.asked, dataset)
    if o.pool is None and len(pieces) > len(nodes):
        pieces = pieces[nodes.start : nodes.stop]
    rows = np.concatenate(pieces)
    sizes = [len(piece) for piece in pieces]
    if o.pool is not None and o.plan.sampling == "poisson":
        sampler: Sampler = UnevenPoissonSampler(np.repeat(o.pool.rates, sizes).tolist())
    else:
        sizes = [len(rows)] if o.pool is not None else sizes
        sampler = _sampler(o.plan.sampling, dict(zip(nodes, hosted, strict=True)), config, sizes)
    if config.device != "cpu" and not torch.cuda.is_available():
        raise UserError(f"device = {config.device!r} is not on this machine; use 'cpu'.")
    device = torch.device(config.device)
    records = Records(
        torch.from_numpy(dataset.x_train[rows]).to(device),
        torch.from_numpy(dataset.y_train[rows]).to(device),
        [len(rows)] if o.pool is not None else sizes,
    )
    if config.evaluation.metric == "truth" and (dataset.truth is None or dataset.truth.size != o.stack.dim):
        raise UserError(
            "evaluation.metric = 'truth' needs a made-up set with as many coefficients as the model has parameters, "
            "for example data.kind = 'synthetic-regression' with model.kind = 'linear'; use 'hold-out'."
        )
    noise = Noise(
        o.plan.mechanism,
        torch.tensor([node.factor for node in hosted], dtype=torch.float64),
        o.plan.shape,
    )
    _clip(config, o.plan, hosted, noise)  # a mistake in it shows now
    return Parts(
        outline=o,
        nodes=nodes,
        dataset=dataset,
        records=records,
        sampler=sampler,
        noise=noise,
        x0=o.stack.flatten(o.module).to(device).repeat(len(nodes), 1),
        test=(torch.from_numpy(dataset.x_test).to(device), torch.from_numpy(dataset.y_test).to(device)),
    )


def build_algorithm(config: RunConfig) -> Algorithm:
    return with_pieces(config.algorithm.make(rounds=config.rounds, seed=config.seed), config)


def _centring(algorithm: Algorithm, config: RunConfig, size: int) -> Algorithm:
    """The mean first. As many exchanges as at the end, for a common mean matters as much as a common model."""
    clip = config.privacy.clip
    bound = clip.bound if clip.kind == "constant" else 1.0
    if algorithm.weights == "adjacency":
        raise UserError(
            f"privacy.centre = {config.privacy.centre:g} needs nodes that agree on a mean, and algorithm.kind = "
            f"{config.algorithm.kind!r} exchanges sums over neighbours; use another method."
        )
    return Centre(algorithm, size, bound, config.algorithm.final_gossip or 20)


def with_pieces(algorithm: Algorithm, config: RunConfig) -> Algorithm:
    """What the configuration puts around the update rule, innermost first."""
    asked, rounds = config.algorithm, config.rounds
    if isinstance(algorithm, Collaborative):
        if (
            asked.momentum
            or asked.mixes > 1
            or asked.tail_average
            or asked.final_gossip
            or config.privacy.centre
        ):
            raise UserError(
                f"algorithm.kind = {asked.kind!r} has no rounds of gossip to put pieces around; leave out algorithm."
                "momentum, .mixes, .tail_average, .final_gossip and privacy.centre."
            )
        return algorithm
    if algorithm.weights == "adjacency" and (asked.mixes > 1 or asked.final_gossip):
        raise UserError(
            f"algorithm.kind = {asked.kind!r} exchanges sums over neighbours, not means; "
            "leave algorithm.mixes and algorithm.final_gossip out, or use another method."
        )
    if config.privacy.noise.on == "iterate" and (
        asked.mixes > 1 or asked.final_gossip or config.privacy.centre
    ):
        raise UserError(
            "privacy.noise.on = 'iterate' pays for one message a round; leave out algorithm.mixes, "
            "algorithm.final_gossip and privacy.centre."
        )
    if asked.momentum:
        algorithm = Momentum(algorithm, asked.momentum)
    if asked.mixes > 1:
        algorithm = Mixes(algorithm, asked.mixes)
    if asked.tail_average:
        algorithm = TailAverage(algorithm, rounds - max(1, round(asked.tail_average * rounds)))
    if asked.final_gossip:
        algorithm = FinalGossip(algorithm, rounds - 1, asked.final_gossip)
    return algorithm


def facts_of(
    config: RunConfig, algorithm: Algorithm, topology: Topology, dimension: int, classes: int | None
) -> Facts:
    """What Lemma 4 and DP-dKM's Theorem 1 look at, and the dimension."""
    facts = Facts(dimension=dimension, lemma4=lemma4_of(config, classes))
    algorithm = bare(algorithm)
    if config.privacy.claim != "dp-dkm" or not isinstance(algorithm, KM):
        return facts
    if algorithm.weights != "doubly" or (gap := topology.figures().get("spectral gap")) is None:
        raise UserError(
            f"topology.kind = {config.topology.kind!r} has no spectral gap that Theorem 1 of dp-dkm could use; use "
            "ring, star or complete."
        )
    relaxations = tuple(algorithm.lr(t) for t in range(config.rounds))
    return replace(facts, relaxations=relaxations, gamma=algorithm.gamma, mixing=1 - gap)


def scored(o: Outline, state: Any, private: Any, hosted: int) -> Tensor:
    """(m, d) the models that are evaluated: what was released, or the nodes' own where that is asked for."""
    algorithm = o.algorithm
    if isinstance(algorithm, Collaborative) and "local" in (algorithm.scored, algorithm.controller):
        models: Tensor = private.models()
        return models
    return released(o, state, hosted)


def released(o: Outline, state: Any, hosted: int) -> Tensor:
    """(m, d) the models that everyone may have."""
    model = o.algorithm.model(state)
    return model.expand(hosted, -1) if isinstance(o.algorithm, Collaborative) else model


def floats_per_message(algorithm: Algorithm, dim: int) -> int:
    """How many numbers a node sends over a link in a round: one step on tensors without content, counted."""
    sent = 0

    def count(*tensors: Tensor) -> Any:
        nonlocal sent
        sent += sum(tensor[0].numel() for tensor in tensors)
        return tensors[0] if len(tensors) == 1 else tensors

    # Round 1: what happens only at the start is not what a round holds.
    algorithm.step(algorithm.init(torch.empty(1, dim, device="meta")), torch.empty_like, count, 1)
    return sent


def _data_facts(
    config: RunConfig, data_dir: Path | None, dataset: Dataset | None, hosted: range | None
) -> tuple[Dataset | None, tuple[int, ...], int | None, list[int]]:
    """(data set if it had to be loaded, feature shape, classes, records of each node)."""
    known, nodes = config.data.known, config.nodes
    if known is not None and config.data.partition == Even() and known.rows[0] >= nodes:
        rows = known.rows[0]  # the even split follows from the row count alone
        sizes = [rows // nodes + (i < rows % nodes) for i in range(nodes)]
        return dataset, known.shape, known.classes, sizes
    dataset = dataset or _load(config, data_dir, hosted)
    if config.data.file_per_node and config.data.records is None:
        raise UserError(
            "data.records is not set: with a file per node nobody sees how many records the others hold; declare it."
        )
    sizes = [len(piece) for piece in _partition(config, dataset)]
    sizes += [0] * (config.nodes - len(sizes))  # of nodes hosted elsewhere: what is declared counts
    return dataset, dataset.x_train.shape[1:], dataset.classes, sizes


def _check_places(config: RunConfig) -> None:
    """Records that are places in a table need a table that has them."""
    if not isinstance(config.data, Dirac) or config.data.dense:
        return
    if not isinstance(config.model, Lookup):
        raise UserError(
            f"model.kind = {config.model.kind!r} cannot read data.kind = 'dirac', whose records are places in a table; "
            "use model.kind = 'lookup'."
        )
    places, rows = config.data.per_holder, config.model.rows
    if rows < places:
        raise UserError(
            f"model.rows = {rows} is fewer than the {places} places of data.per_holder; use {places}."
        )


def declared(config: RunConfig, sizes: list[int]) -> list[int]:
    """J_i as declared. Of a public data set the sizes are public; of the user's own they must be declared."""
    value = config.data.records
    if value is not None:
        return value if isinstance(value, list) else [value] * len(sizes)
    if _is_private(config):
        rounded = [max(1, round(size, -len(str(size)) + 2)) for size in sizes]
        example = rounded[0] if len(set(rounded)) == 1 else rounded
        raise UserError(
            "data.records is not set: how many records a node holds is private until you declare it; "
            f"set a public number, rounded as you like, for example data.records = {example}."
        )
    return sizes


def require_declared_labels(config: RunConfig) -> None:
    """What the labels can be decides the model's size, which everyone sees: so it must not be read off the records."""
    data = config.data
    if (
        isinstance(data, OwnFile)
        and _is_private(config)
        and data.classes is None
        and data.task != "regression"
    ):
        raise UserError(
            "data.classes is not set: which labels occur is private until you declare it; set their number or list "
            'them, for example data.classes = 2 (or data.task = "regression").'
        )


def _is_private(config: RunConfig) -> bool:
    """Records of the user's own, in a run that is to have a privacy figure."""
    return config.data.own and config.privacy.noise.schedule.kind != "none"


def _topology(config: RunConfig, weights: Any) -> Topology:
    if config.baseline == "no-communication":
        return isolated(config.nodes, weights)
    return config.topology.build(nodes=config.nodes, weights=weights, seed=config.seed)


def _load(config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
    require_declared_labels(config)
    if isinstance(config.data, OwnFile) and config.data.file_per_node:
        hosted = range(config.nodes) if nodes is None or config.baseline == "central" else nodes
        return load_nodes(config.data, hosted, data_dir=data_dir, seed=config.seed)
    return config.data.load(data_dir, config.seed)


def _partition(config: RunConfig, dataset: Dataset) -> list[np.ndarray]:
    part = config.data.partition
    if config.data.file_per_node and dataset.owner is not None:
        if part not in (Even(), Owner()):
            raise UserError(
                f"data.partition.kind = {part.kind!r} does not go with a file per node, which is the partition; "
                "leave it out."
            )
        return [np.flatnonzero(dataset.owner == i) for i in np.unique(dataset.owner)]
    rng = np.random.default_rng([config.seed, 0x5EED])
    part = Owner() if part == Even() and dataset.owner is not None else part
    return split(part, labels=dataset.y_train, nodes=config.nodes, rng=rng, owner=dataset.owner)


def _sampler(kind: str, nodes: dict[int, NodePlan], config: RunConfig, sizes: list[int]) -> Sampler:
    if kind == "poisson":
        return PoissonSampler([node.rate for node in nodes.values()])
    if kind == "full":
        return FullSampler(len(sizes))
    if kind == "one-pass":
        for (i, node), size in zip(nodes.items(), sizes, strict=True):
            if size > node.records:
                raise UserError(
                    f"data.records = {node.records} is less than node {i} holds, and each record needs a place in a "
                    "lot; declare at least as many as there are."
                )
        held = list(nodes.values())
        return OnePassSampler([round(node.lot) for node in held], [node.records for node in held])
    for (i, node), size in zip(nodes.items(), sizes, strict=True):
        if node.records != size:
            raise UserError(
                f"privacy.sampling.kind = {config.privacy.sampling.kind!r} draws a share of the true number of "
                f"records, and data.records = {node.records} is not that of node {i}; use kind = 'poisson'."
            )
    return FixedSizeSampler([round(node.lot) for node in nodes.values()], sizes)


def _clip(config: RunConfig, plan: PrivacyPlan, nodes: Sequence[NodePlan], noise: Noise) -> Clip:
    clip = config.privacy.clip
    if clip.kind in ("constant", "decaying", "sequence"):
        return ClipTo(clip_schedule(config, plan.draws))
    if clip.kind == "normalised":
        return Normalise(clip.gamma)
    if clip.kind == "quantile":
        lots = torch.tensor([node.lot for node in nodes], dtype=torch.float64)
        largest = noise.factor * max(plan.shape(k) for k in range(plan.draws))
        # A twentieth of the lot as in Andrew et al.; never so small that the count takes most of the budget.
        count = (
            torch.full_like(lots, clip.count_noise) if clip.count_noise else torch.maximum(lots / 20, largest)
        )
        if bool((2 * count <= largest).any()):
            raise UserError(
                f"privacy.clip.count_noise = {clip.count_noise} takes the whole budget; "
                f"use more than {float(largest.max()) / 2:.3g}."
            )
        return QuantileClip(torch.full_like(lots, clip.start), clip.quantile, clip.lr, count)
    return Unclipped(clip.bound if clip.kind == "assumed" else None)
