"""Configuration → outline: the one door through which every command gets what a run is and would cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import Centre
from gossamer.config.baselines import effective
from gossamer.config.checks import check
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.methods import method_of
from gossamer.methods.objective import prediction_task
from gossamer.models.layers import Centred, check_module, check_no_mixing, check_outputs
from gossamer.models.measures import cells_of, measures_of
from gossamer.options.stage import stage
from gossamer.planning.notes import notes_of
from gossamer.planning.outline import Outline
from gossamer.planning.pool import pool
from gossamer.planning.privacy import plan_privacy, rates_of
from gossamer.topology.kinds import isolated
from gossamer.topology.schedule import Topology
from gossamer.training.data import DataCache, DataFacts, facts_of
from gossamer.training.estimate import estimate, expected, refuse_beyond_machine, refuse_long_pricing
from gossamer.training.exact import exact_topology, takes_exact_means, with_exact_means


def outline(
    config: RunConfig,
    *,
    data_dir: Path | None = None,
    module: nn.Module | None = None,
    cache: DataCache | None = None,
    nodes: range | None = None,
    force: bool = False,
) -> Outline:
    """`module`: the user's own in place of the configuration's; `nodes`: those hosted here; all, if None.

    `force`: also what would not fit into this machine's memory, or a month.
    """
    asked, config = config, effective(config)
    check(config)
    if module is not None:
        check_module(module)
    method = method_of(config)
    algorithm = method.algorithm()
    hosted = config.nodes if nodes is None else len(nodes)
    if not force:
        refuse_beyond_machine(estimate(config, algorithm, hosted=hosted))
        refuse_long_pricing(config, config.rounds * algorithm.draws)
    stage("building the graph")
    topology = _topology(config, algorithm)
    facts = facts_of(asked, data_dir, cache, nodes)
    method.check(facts.classes)
    task = prediction_task(facts.classes, facts.several, config)
    for measure in measures_of(config.evaluation.measures, task):  # refuses what does not fit
        if config.evaluation.private is not None:
            cells_of(measure, task, config.evaluation.bound)
    own = module is not None or config.model.kind == "own"
    if not force:
        refuse_beyond_machine(expected(config, facts, algorithm, hosted=hosted, module=module))
    if module is None:
        module = _model(config, facts)
        if own:
            check_module(module)
    module, algorithm = _centred(config, facts, module, algorithm)
    check_no_mixing(module)
    rates, pooled, records = rates_of(config, facts.records), None, facts.records
    if config.baseline == "central":
        pooled = pool(config, records, rates)
        records, rates = [pooled.records], [(pooled.rate, pooled.lot)]
    vector = method.vector(algorithm, module, facts.classes)  # refuses a loss that does not fit
    if own or hasattr(config.loss, "per_record"):
        _try_on(vector, facts)
    if own and facts.classes and (config.loss is None or config.loss.kind == "cross-entropy"):
        kind = torch.float32 if facts.shape else torch.int64
        check_outputs(module, torch.zeros(1, *facts.shape, dtype=kind), facts.classes)
    plan = plan_privacy(
        config,
        records,
        rates,
        draws_per_round=algorithm.draws,
        noise=method.noise,
        claim=method.claim(algorithm, topology, facts.classes, sum(records)),
        dimension=ParameterStack(module).dim,
        notes=notes_of(config, method),
    )
    if takes_exact_means(config):
        algorithm, plan = with_exact_means(config, algorithm, topology, plan)
    return Outline(
        config, asked, method, algorithm, topology, module, ParameterStack(module), plan, facts.classes, task,
        facts.dataset, pooled, force, own,
    )  # fmt: skip


def _topology(config: RunConfig, algorithm: Algorithm) -> Topology:
    if config.baseline == "no-communication":
        return isolated(config.nodes, algorithm.weights)  # type: ignore[arg-type]
    if takes_exact_means(config):
        return exact_topology(config)
    return config.topology.build(nodes=config.nodes, weights=algorithm.weights, seed=config.seed)


def _model(config: RunConfig, facts: DataFacts) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return config.model.make(facts.shape, facts.outputs)


def _try_on(vector: Any, facts: DataFacts) -> None:
    """A user's own module or loss is refused here, before anything is written, if it cannot keep records apart."""
    if not hasattr(vector, "try_on"):
        return
    kind = torch.float32 if facts.shape else torch.int64  # a record without a shape is a place in a table
    label = () if facts.several is None else (facts.several,)
    targets = torch.zeros(1, 1, *label, dtype=torch.int64 if facts.classes else torch.float32)
    vector.try_on(torch.zeros(1, 1, *facts.shape, dtype=kind), targets)


def _centred(
    config: RunConfig, facts: DataFacts, module: nn.Module, algorithm: Algorithm
) -> tuple[nn.Module, Algorithm]:
    """With `privacy.centre`: a private mean of the records first, which the model subtracts from each."""
    centre, size = config.privacy.centre, math.prod(facts.shape)
    if centre is None:
        return module, algorithm
    if len(facts.shape) > 1 and config.model.kind not in ("softmax", "mlp"):
        raise UserError(
            f"privacy.centre = {centre:g} turns records into rows of numbers, which model.kind = "
            f"{config.model.kind!r} does not take; use softmax or mlp."
        )
    # As many exchanges as at the end, for a common mean matters as much as a common model; exact ones are common.
    exchanges = 0 if config.algorithm.mixes == "exact" else config.algorithm.final_gossip or 20
    return Centred(module, size), Centre(algorithm, size, config.privacy.clip.unit, exchanges)
