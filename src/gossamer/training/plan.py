"""Plan: what a run is and would cost. Nothing is trained, and no record is read where public facts are enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gossamer.algorithms import rule
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.means import FilterMean, WindowMean, grid_of
from gossamer.algorithms.wrappers import Centre, ExactMean
from gossamer.config.checks import check, effective
from gossamer.config.schema import PersonUnit, RunConfig
from gossamer.data.dataset import Dataset
from gossamer.data.origins import WEIGHTS
from gossamer.data.own import Memory, OwnRecords
from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.methods import method_of
from gossamer.methods.base import Method, per_sample_loss, prediction_task
from gossamer.models.layers import (
    Centred,
    check_is_module,
    check_module,
    check_no_mixing,
    check_outputs,
    idle_parameters,
)
from gossamer.models.losses import Task
from gossamer.models.measures import Measure, cells_of, measures_of
from gossamer.models.networks import TextEncoder
from gossamer.options.stage import STAGES
from gossamer.results.console import summary
from gossamer.results.notebook import Epsilons, plan_html, plan_text
from gossamer.topology.exact import Relabelled, filter_of, window_topology
from gossamer.topology.kinds import isolated
from gossamer.topology.schedule import Topology
from gossamer.training.data import DataCache, DataFacts, facts_of
from gossamer.training.estimate import network, refuse_beyond_machine, refuse_long_pricing
from gossamer.training.preprocess import Step, steps_of
from gossamer.training.privacy import Pool, PrivacyPlan, plan_privacy, pool

READ_OFF = {
    "records": "The number of records of each node was read off them, not declared: no ε covers it.",
    "classes": "Which labels there are was read off the records, not declared: no ε covers it.",
    "targets": "The range of the targets was read off the records, not declared: no ε covers it.",
}


@dataclass(frozen=True, repr=False)
class Plan(Epsilons):
    """A run and its cost, before it is trained. Shows itself as a table and the growth of ε in a notebook."""

    config: RunConfig  # what runs
    asked: RunConfig  # what was asked for; a baseline runs something else
    method: Method
    algorithm: Algorithm
    topology: Topology
    module: nn.Module
    stack: ParameterStack
    privacy: PrivacyPlan
    shape: tuple[int, ...]  # of a record as the model takes it
    classes: int | None
    task: Task  # what is predicted
    measures: tuple[Measure, ...]  # what is measured on the hold-out, the first being what the run is read by
    dataset: Dataset | None  # loaded only where the plan needs it
    pool: Pool | None  # of the central baseline
    data_dir: Path | None  # where the user's files are looked for
    cache: DataCache
    hosted: range  # the nodes of this process
    forced: bool = False  # whether or not this machine has the means
    own_module: bool = False  # did the user bring the module along, in place of the configuration's?

    @classmethod
    def of(
        cls,
        config: RunConfig,
        *,
        data_dir: Path | None = None,
        module: nn.Module | None = None,
        cache: DataCache | None = None,
        nodes: range | None = None,
        force: bool = False,
    ) -> Plan:
        """`module`: the user's own in place of the configuration's; `nodes`: those hosted here; all, if None.

        `force`: also what would not fit into this machine's memory, or a month.
        """
        _check_torch()
        cache, asked, config = cache or DataCache(), config, effective(config)
        check(config)
        if module is not None:
            check_is_module(module)
            module = network(config, (), 0, module)
            check_module(module)
        method = method_of(config)
        algorithm = method.algorithm()
        hosted_nodes = range(config.nodes) if nodes is None else nodes
        hosted = len(hosted_nodes)
        if not force:
            refuse_beyond_machine(config, algorithm, hosted=hosted)
            refuse_long_pricing(config, config.rounds * algorithm.draws)
        STAGES.info("building the graph")
        topology = _topology(config, algorithm)
        facts = facts_of(asked, data_dir, cache, nodes)
        method.check(facts.classes)
        task = prediction_task(facts.classes, facts.several, config)
        measures = tuple(measures_of(config.evaluation.measures, task))  # refuses what does not fit
        for measure in measures:
            if config.evaluation.private is not None:
                cells_of(measure, task, config.evaluation.bound)
        own = module is not None or config.model.kind == "own"
        if config.data.layout is not None and not own:
            raise UserError(
                f"model.kind = {config.model.kind!r} takes one tensor, and the records have {len(config.data.layout)} "
                "parts; give a module of your own with as many arguments."
            )
        records, pooled, noise = facts.records, None, method.noise
        rates = [config.privacy.sampling.lot_of(J, i) for i, J in enumerate(records)]  # (q_i, L_i)
        if not force:
            refuse_beyond_machine(config, algorithm, hosted=hosted, facts=facts, module=module)
        module = _module(config, facts, module, own)
        if (centre := config.privacy.centre) is not None:
            module, algorithm = _centred(config, facts, module, algorithm, centre)
        if config.baseline == "central":
            pooled = pool(config, records, rates)
            records, rates = [pooled.records], [(pooled.rate, pooled.lot)]
        claim, notes = method.claim(algorithm, topology, facts.classes, sum(records)), method.notes()
        vector = method.vector(algorithm, module, facts.classes)  # refuses a loss that does not fit
        if (own or hasattr(config.loss, "per_record")) and hasattr(vector, "try_on"):
            # Refused here, before anything is written, if it cannot keep records apart.
            label = () if facts.several is None else (facts.several,)
            kind = torch.int64 if facts.classes else torch.float32
            vector.try_on(_blank(facts)[None], torch.zeros(1, 1, *label, dtype=kind))
        if own and facts.classes and (config.loss is None or config.loss.kind == "cross-entropy"):
            check_outputs(module, _blank(facts), facts.classes)
        plan = plan_privacy(
            config,
            records,
            rates,
            draws_per_round=algorithm.draws,
            noise=noise,
            claim=claim,
            dimension=ParameterStack(module).dim,
            notes=[*notes, *notes_of(config)],
        )
        if _takes_exact_means(config):
            algorithm, plan = _with_exact_means(config, algorithm, topology, plan)
        return cls(
            config, asked, method, algorithm, topology, module, ParameterStack(module), plan, facts.shape,
            facts.classes, task, measures, facts.dataset, pooled, data_dir, cache, hosted_nodes, force, own,
        )  # fmt: skip

    @property
    def loss(self) -> Any:
        return per_sample_loss(self.classes, self.config)

    @property
    def preprocessing(self) -> tuple[Step, ...]:
        """The steps before the first round, as asked: weights that were found are declared in what runs."""
        return steps_of(self.asked.data)

    @property
    def seeded(self) -> bool:
        """Is the noise one that everyone can draw, and no privacy?"""
        return self.config.privacy.noise.source == "seeded"

    @property
    def size(self) -> str:
        """The number of parameters, and of those that are trained, in words."""
        every = sum(parameter.numel() for parameter in self.module.parameters())
        own = self.stack.dim
        return f"{own:,} parameters" if own == every else f"{own:,} of {every:,} parameters trained"

    @property
    def bytes_per_round(self) -> float:
        return self.method.bytes_per_round(self.algorithm, self.topology, self.stack.dim)

    def network_figures(self, ledgers: Path | None = None) -> dict[str, Any] | None:
        """Return what one node and an outsider learn, planned or from these ledgers; None where it is not priced."""
        if not _takes_exact_means(self.config):
            return None
        from gossamer.training.views import network_figures

        return network_figures(self, ledgers)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The result of `gossamer plan --json`, but for what was spent on the same records before."""
        return summary(self)

    def __repr__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


def _check_torch() -> None:
    """What the caller set for all of torch must leave room for float32 on this processor, and for gradients."""
    if torch.is_inference_mode_enabled():
        raise UserError("torch.inference_mode() is on, and nothing can be trained in it; call run outside of it.")
    own, device = torch.get_default_dtype(), torch.get_default_device()
    if own != torch.float32:
        raise UserError(
            f"torch.get_default_dtype() = {own} is set, and training is in float32; call "
            "torch.set_default_dtype(torch.float32) before."
        )
    if device.type != "cpu":
        raise UserError(
            f"torch.get_default_device() = {device} is set; call torch.set_default_device('cpu') before, and name the "
            "device in runtime.device."
        )


def _topology(config: RunConfig, algorithm: Algorithm) -> Topology:
    if config.baseline == "no-communication":
        return isolated(config.nodes, algorithm.weights)  # type: ignore[arg-type]
    if _takes_exact_means(config):
        return _exact_topology(config)
    return config.topology.build(nodes=config.nodes, weights=algorithm.weights, seed=config.seed)


def _module(config: RunConfig, facts: DataFacts, module: nn.Module | None, own: bool) -> nn.Module:
    """The network, refused where records cannot be kept apart, or where an adapter would be trained on noise alone."""
    if module is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            module = network(config, facts.shape, facts.outputs)
        if own:
            check_module(module)
    for name in idle_parameters(module, _blank(facts)):
        raise UserError(
            f"the adapter's parameter {name} takes no part in the outputs, so it would learn nothing but noise; leave "
            "its layer out of lora's targets, or call the layer itself where the module reads its weight."
        )
    check_no_mixing(module)
    return module


def _blank(facts: DataFacts) -> torch.Tensor:
    """A record of zeros; one without a shape is a place in a table."""
    return torch.zeros(1, *facts.shape, dtype=torch.float32 if facts.shape else torch.int64)


def _centred(
    config: RunConfig, facts: DataFacts, module: nn.Module, algorithm: Algorithm, centre: float
) -> tuple[nn.Module, Algorithm]:
    """With `privacy.centre`: a private mean of the records first, which the model subtracts from each."""
    size = math.prod(facts.shape)
    if len(facts.shape) > 1 and config.model.kind not in ("softmax", "mlp"):
        raise UserError(
            f"privacy.centre = {centre:g} turns records into rows of numbers, which model.kind = "
            f"{config.model.kind!r} does not take; use softmax or mlp."
        )
    # As many exchanges as at the end, for a common mean matters as much as a common model; exact ones are common.
    exchanges = 0 if config.algorithm.mixes == "exact" else config.algorithm.final_gossip or 20
    return Centred(module, size), Centre(algorithm, size, config.privacy.clip.unit, exchanges)


def _takes_exact_means(config: RunConfig) -> bool:
    """Asked for, and is there anybody to exchange with?"""
    return config.algorithm.mixes == "exact" and config.nodes > 1 and config.baseline != "no-communication"


def _exact_topology(config: RunConfig) -> Topology:
    """The network of a run with exact means: windows where a node may send to any other, else the graph as it is."""
    kind = config.topology
    if kind.dropout or kind.slow:
        key = f"dropout = {kind.dropout:g}" if kind.dropout else "slow"
        raise UserError(
            f"topology.{key} loses messages, and algorithm.mixes = 'exact' needs every one of them; leave it out, or "
            "use a number of mixes."
        )
    base = kind.build(nodes=config.nodes, weights="doubly", seed=config.seed)
    if kind.any_peer:
        return window_topology(base, config.seed)
    filter_of(base)  # refused now, not after a plan was made
    return base


def _with_exact_means(
    config: RunConfig, algorithm: Algorithm, topology: Topology, plan: PrivacyPlan
) -> tuple[Algorithm, PrivacyPlan]:
    """The algorithm on common means, and the plan with a line about them."""
    mean: FilterMean | WindowMean
    if isinstance(topology.rounds, Relabelled):
        from gossamer.training.views import deviations_of

        noised = deviations_of(config, plan)
        least = float(noised[noised > 0].min(initial=math.inf)) if (noised > 0).any() else 0.0
        mean = WindowMean(topology.rounds.windows, grid_of(least, config.nodes))
        equal = "all nodes hold one model to the last bit"
    else:
        mean = FilterMean(filter_of(topology))
        equal = f"models of two nodes differ by rounding (at most {mean.filter.error:.1g} of the largest value a mean)"
    times = "1 exchange" if mean.exchanges == 1 else f"{mean.exchanges} exchanges"
    note = f"Every gradient is the exact mean over all nodes, by {times}; {equal}."
    return ExactMean(algorithm, mean), replace(plan, notes=(*plan.notes, note))


def notes_of(config: RunConfig) -> list[str]:
    """Return the notes of the certificate besides the method's."""
    notes = []
    if config.privacy.runs > 1:
        notes.append(
            f"One of {config.privacy.runs} runs that share the budget: this ε is of it alone, the one asked for of all."
        )
    if config.data.private_steps and config.privacy.noise.kind.adds:
        notes.append("A claimed ε is of the rounds alone: no paper counts what is released before them.")
    if config.data.partition.kind == "label-split":
        notes.append("Labels are split over nodes: a node's identity gives away labels.")
    if config.privacy.sampling.needs_true_sizes:
        notes.append("Fixed-size sampling uses the exact number of records of every node: it is public.")
    if isinstance(config.data, OwnRecords) and config.data.one_lot:
        notes.append("The rows were dealt out from one file: ε holds for the partition as it fell.")
    if isinstance(config.data, Memory):
        notes.append("The records were handed over in memory: what other runs spent on them is not added up.")
        notes += [READ_OFF[what] for what in config.data.read_off]
    notes += _of_unit(config)
    evaluation = config.evaluation
    if evaluation.private is not None:
        notes.append(
            f"About {evaluation.part:.0%} of each node's {config.privacy.protects.kind}s are kept out of training and "
            f"judge its final model once, with noise that {evaluation.private:.0%} of ε pays for. A claimed ε does not "
            "count it."
        )
    copies = config.data.partition.most_copies(config.nodes)
    if copies > 1:
        notes.append(
            f"A record may lie on up to {copies} nodes: the proven ε is of all their releases together, a claimed one "
            "of one node's."
        )
    if config.data.transform:  # torch comes along: not where there are none
        from gossamer.data.features.pipeline import statements

        notes += statements(config.data.transform)
    if isinstance(config.model, TextEncoder):
        notes.append(WEIGHTS[config.model.weights].statement("The network starts with those"))
    return [*notes, *_of_others(config)]


def _of_unit(config: RunConfig) -> list[str]:
    """Return the notes where persons or nodes are protected."""
    unit, notes = config.privacy.unit, []
    if isinstance(unit, PersonUnit):
        notes.append(
            f"Persons are protected: declared numbers, rates and lots count persons, and of a person at most "
            f"{unit.max_records:,} records of a node are used."
        )
        if config.data.own:
            sites = "one node" if unit.max_sites == 1 else f"at most {unit.max_sites} nodes"
            notes.append(
                f"That a person's records are at {sites}, under one value of {unit.column!r}, is declared: where nodes "
                "do not see each other's records, this is not checked."
            )
        if unit.max_sites > 1:
            notes.append(
                f"A person may be at up to {min(unit.max_sites, config.nodes)} nodes: the proven ε is of all their "
                "releases together, a claimed one of one node's."
            )
    elif unit == "node":
        notes.append("Nodes are protected as a whole: which nodes take part is public.")
    return notes


def _of_others(config: RunConfig) -> list[str]:
    """Parts that are not ours: the figures say no more than those parts do."""
    privacy, notes = config.privacy, []
    if (whose := _origin(rule(config.algorithm.rule))) is not None:
        notes.append(
            f"The method {config.algorithm.kind!r} comes from {whose}, not from this library: no paper's ε is claimed "
            "for it, and the proof does not rest on it."
        )
    for key, part, states in (
        ("clip", privacy.clip, "bound"),
        ("noise", privacy.noise.family, "noise"),
        ("sampling", privacy.sampling, "sampling"),
    ):
        if (whose := _origin(type(part))) is not None:
            notes.append(
                f"The {key} {part.kind!r} comes from {whose}, not from this library: the proof rests on the {states} "
                "that it states."
            )
    return notes


def _origin(part: type[Any]) -> str | None:
    """The package that a class is from; None if it is ours."""
    package = part.__module__.partition(".")[0]
    if package == "gossamer":
        return None
    return "the script itself" if package == "__main__" else f"the package {package}"
