"""What peers can run: configurations, and exchange rules that survive crashed sites and lost messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import Centre, FinalGossip, Mixes, Momentum, TailAverage, Wrapper, mixes_of
from gossamer.config.schema import RunConfig
from gossamer.data.own import OwnFile
from gossamer.errors import UserError
from gossamer.methods import method_of
from gossamer.methods.km.algorithm import KM
from gossamer.models.networks import Own, Withheld

PUSH_SUM = "push-sum"
# Update rules whose sums survive messages that are lost, late or repeated, and sites that are away.
SURVIVES = (PUSH_SUM, "dsgd", "dsgt", "dinno", "km")


class Rule:
    """Averages by a doubly stochastic, symmetric W: over an edge flows W_ij (x_i − x_j), from one site to the other.

    A rule says what a site keeps of an exchange's tensors, what a neighbour gets, and what the algorithm gets back.
    """

    pairs = True  # both sites of an edge move by the same amount, or neither does
    weighted = False  # the last tensor is a push-sum weight

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * (a.double() - b.double()) for a, b in zip(own, offer, strict=True)]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return list(total)

    def renewed(self, state: Any) -> Any:
        """Return the state with which a new epoch begins."""
        return state


class Shares(Rule):
    """Push-sum: a neighbour gets its share of x and w, and a share that cannot leave is kept."""

    pairs = False
    weighted = True

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * tensor for tensor in own]

    def renewed(self, state: Any) -> Any:
        """x ← x / w, w ← 1."""
        return state._replace(x=state.x / state.w, w=torch.ones_like(state.w))


class TrackedAverages(Rule):
    """Averages of x and of a tracker y of the gradients g."""

    def renewed(self, state: Any) -> Any:
        """Σ y = Σ g over the sites of the new epoch."""
        return state._replace(y=state.g.clone())


class Sums(Rule):
    """Sums over neighbours: x_i − x_j flows over an edge, and the sum is that of x_i + what flowed in, edge by edge."""

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(tensor) for tensor in tensors]

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return super().parcel(1.0, own, offer)

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return [moves * tensor.double() + flow for tensor, flow in zip(own, total, strict=True)]

    def renewed(self, state: Any) -> Any:
        """The dual variables sum to 0 over the sites of the new epoch."""
        return state._replace(y=torch.zeros_like(state.y))


_RULES: dict[type[Any], Rule] = {PushSum: Shares(), DSGT: TrackedAverages(), DiNNO: Sums()}
_RULES |= dict.fromkeys((DSGD, KM), Rule())
_WRAPPERS = (Momentum, Mixes, TailAverage)
_PUSH_SUM_WRAPPERS = (FinalGossip, Centre)  # agree by push-sum themselves


def rule_of(algorithm: Algorithm) -> Rule:
    """Return the rule of an algorithm's exchanges, or refuse what is not known to survive lost messages.

    The recipe's refusal (`refuse_for_peers`) names its key; this one holds for what a recipe was expanded into.
    """
    wrappers, inner = [], algorithm
    while isinstance(inner, Wrapper):
        wrappers.append(inner)
        inner = inner.inner
    rule = _RULES.get(type(inner))
    if rule is None:
        raise UserError(f"algorithm.kind: {type(inner).__name__} cannot run among peers; use push-sum.")
    allowed = (*_WRAPPERS, *_PUSH_SUM_WRAPPERS) if rule.weighted else _WRAPPERS
    for wrapper in wrappers:
        if not isinstance(wrapper, allowed):
            both = f"{type(wrapper).__name__} around {type(inner).__name__}"
            raise UserError(f"{both} cannot run among peers; use push-sum alone.")
    return rule


def channel_of(algorithm: Algorithm, t: int, call: int) -> int:
    """Return which variable exchange `call` of round t moves: 0 the algorithm's own, 1 and 2 those of wrappers."""
    piece: Any = algorithm
    while isinstance(piece, Wrapper):
        if isinstance(piece, Centre) and t == 0:
            if call < piece.rounds:
                return 1
            call -= piece.rounds
        if isinstance(piece, FinalGossip) and t == piece.last and call >= mixes_of(piece.inner):
            return 2
        piece = piece.inner
    return 0


def refuse_for_peers(config: RunConfig, *, for_science: bool) -> None:
    """Refuse what separate sites cannot run: what needs everyone at once, one machine's files, or foreign code.

    What no run can be is refused by `training/plan.py`.
    """
    for problem in chain(_data_problems(config), _method_problems(config, for_science)):
        raise UserError(problem)


def _data_problems(config: RunConfig) -> Iterator[str]:
    data, evaluation, sites = config.data, config.evaluation, config.privacy.max_sites
    if not isinstance(data, OwnFile):
        yield f"data.kind = {data.kind!r} does not go with peers; use csv, parquet or npz, a file for each site."
        return
    if data.one_lot:
        yield f"data.path = {data.path!r} is one file for all; put {{node}} into its name, or name data.owner."
    if data.classes is None and data.task != "regression" and not data.multi_label:
        yield 'data.classes is not set, and no site sees all labels; set it, or data.task = "regression".'
    for key in ("train_rows", "held_out"):
        if (value := getattr(data, key)) is not None:
            yield f"data.{key} = {value} draws among the records of all sites, which nobody has; leave it out."
    if data.pca is not None and data.pca_from in ("train", "private"):
        yield f"data.pca_from = {data.pca_from!r} fits on the records of all sites; name a public set."
    if data.private_steps:
        steps = " and ".join(data.private_steps)
        yield f"{steps}: this takes sums over all sites; declare data.ranges, or public weights."
    if evaluation.private is not None:
        # A site that skipped rounds or left would be evaluated at another moment.
        yield f"evaluation.private = {evaluation.private:g} needs all sites at once; leave it out, or name data.test."
    if evaluation.diagnostics:
        yield "evaluation.diagnostics = true is not private and must not leave a site; leave it out."
    if sites > 1:
        yield f"privacy.unit.max_sites = {sites}: no site has the others' ledgers; use 1, each person at one site."


def _method_problems(config: RunConfig, for_science: bool) -> Iterator[str]:
    algorithm, noise, centre = config.algorithm, config.privacy.noise, config.privacy.centre
    sampling, schedule = config.privacy.sampling.kind, "privacy.noise.schedule.kind"
    kind, science = f"algorithm.kind = {algorithm.kind!r}", "or --for-science on records that need no privacy"
    if config.baseline != "none":
        yield f"baseline = {config.baseline!r} is for comparisons in one process; leave it out for peers."
    if isinstance(config.model, Own | Withheld):
        yield "model.kind = 'own' is code, and a study carries none; use one of the models that every site has."
    if algorithm.rule not in SURVIVES:
        yield f"{kind} cannot run among peers: it may not survive lost messages; use dyn-d2p or full-lot."
    if algorithm.mixes == "exact":
        yield "algorithm.mixes = 'exact' needs every site in every exchange, and peers may be away; use a number."
    if algorithm.rule != PUSH_SUM and (algorithm.final_gossip or centre is not None):
        gossip = f"algorithm.final_gossip = {algorithm.final_gossip}"
        key = gossip if centre is None else f"privacy.centre = {centre:g}"
        yield f"{key} agrees by push-sum, and {kind} does not; leave it out, or use full-lot."
    if noise.kind.cancels:
        family = f"privacy.noise.family.kind = {noise.family.kind!r}"
        yield f"{family} cancels only if every message arrives, and peers may be away; use 'gaussian'."
    if noise.on == "iterate":
        yield "privacy.noise.on = 'iterate' puts noise on messages, which the journal repeats; use 'gradient'."
    if not method_of(config).resumable:
        yield f"privacy.sampling.kind = {sampling!r} cannot survive the crash of one site; use 'poisson' or 'full'."
    if for_science:
        return
    if noise.source == "seeded":
        yield f"privacy.noise.source = 'seeded' is noise that everyone can draw; use 'system', {science}."
    if not noise.kind.adds:
        yield f"{schedule} = 'none' protects nobody; set privacy.epsilon, {science}."
    if config.mode != "sound":
        yield f'mode = {config.mode!r} claims an ε that is not proven; use "sound", {science}.'
