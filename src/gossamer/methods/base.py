"""Method: all of a configuration's algorithm that is not its update rule.

Which vector of a record is averaged and who reads records, what carries the messages, what cannot be combined, how it
is priced, and what is scored, saved and released. `Method` itself is gossip: private gradients of every node, exchanged
by mixing. A method with parts of its own overrides what differs, in its own folder; no code outside of `methods` asks
which method it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.algorithms import rule
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import FinalGossip, Mixes, Momentum, TailAverage, within_draws
from gossamer.config.checks import Row, refuse
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError, short
from gossamer.kernels.clipped_sum import CentredSum, ClippedSum
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.reader import Book, PrivateGradient, Vector
from gossamer.methods.claims import CLAIMS, ClaimRule, NoClaim
from gossamer.models.layers import Centred, centre_records
from gossamer.models.losses import SIGMOID, CrossEntropy, LinearLoss, Logistic, Squared, Task, task_of
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology

if TYPE_CHECKING:
    from gossamer.mechanism.reader import Vector
    from gossamer.training.assemble import Parts
    from gossamer.training.run import Run


class Method:
    keeps_local_models = False  # models that a node's records move without noise
    takes_resolvents = False  # of the loss, which only linear models have
    own_claims: ClassVar[tuple[str, ...]] = ()  # kinds of privacy.claim besides those of every method

    def __init__(self, config: RunConfig, rule: type[Any]):
        self.config, self.rule = config, rule

    @property
    def attacks(self) -> Any:
        """The module with its own attacks, for audits; None where those on noised gradients apply."""
        return None

    @property
    def noise(self) -> NoiseKind:
        """The noise of its releases, as planned."""
        return self.config.privacy.noise.kind.for_node_count(self.config.nodes)

    @property
    def noise_on_messages(self) -> bool:
        """Is it the messages that carry the noise? Then answers about records have none and stay on their node."""
        return False

    def algorithm(self) -> Algorithm:
        """The update rule with what the configuration puts around it, innermost first."""
        options, rounds = self.config.algorithm, self.config.rounds
        algorithm: Algorithm = self.bare()
        if options.momentum:
            algorithm = Momentum(algorithm, options.momentum)
        if isinstance(options.mixes, int) and options.mixes > 1:
            algorithm = Mixes(algorithm, options.mixes)
        if options.tail_average:
            algorithm = TailAverage(algorithm, rounds - max(1, round(options.tail_average * rounds)))
        if options.final_gossip and options.mixes != "exact":  # which leaves nothing to agree upon
            algorithm = FinalGossip(algorithm, rounds - 1, options.final_gossip)
        return algorithm

    def bare(self) -> Any:
        """The update rule alone, with its step sizes and options."""
        return self.config.algorithm.make(rounds=self.config.rounds, seed=self.config.seed)

    def check(self, classes: int | None) -> None:
        """Refuse what the method cannot be combined with, besides `config.checks`."""
        refuse(self.refusals(classes))

    def refusals(self, classes: int | None) -> Iterator[Row]:
        yield from self.noise_refusals()
        yield from self.claim_refusals()
        options, privacy, clip = self.config.algorithm, self.config.privacy, self.config.privacy.clip
        kind = f"algorithm.kind = {options.kind!r}"
        problem = f"scales records, not their gradients, and {kind} releases those"
        yield math.isfinite(clip.record_bound), "privacy.clip.kind", clip.kind, problem, "use 'constant'"
        # Means are agreed upon by mixing, which sums over neighbours are not.
        sums, other = self.rule.weights == "adjacency", "exchanges sums over neighbours"
        remedy = "leave algorithm.mixes and algorithm.final_gossip out, or use another method"
        gossips = sums and bool(options.mixes != 1 or options.final_gossip)
        yield gossips, "algorithm.kind", options.kind, f"{other}, not means", remedy
        problem, centre = f"needs nodes that agree on a mean, and {kind} {other}", privacy.centre
        yield sums and centre is not None, "privacy.centre", centre, problem, "use another method"

    def noise_refusals(self) -> Iterator[Row]:
        """Noise is on the gradients and, in a paper, Gaussian."""
        noise, kind = self.config.privacy.noise, f"algorithm.kind = {self.config.algorithm.kind!r}"
        on, family = ("privacy.noise.on", noise.on), ("privacy.noise.family.kind", noise.family.kind)
        problem = f"is for dp-dkm, and {kind} puts noise on the gradient"
        yield noise.on == "iterate", *on, problem, "use 'gradient'"
        problem = f"needs nodes that release all that their records move, and {kind} keeps local models"
        cancels = noise.kind.cancels and self.keeps_local_models
        yield cancels, *family, problem, "use 'gaussian', or another method"
        unusual = self.config.mode == "paper" and (noise.family.cancels or not noise.family.gaussian)
        yield unusual, *family, "is no noise of this method's paper", "use 'gaussian', or mode = \"sound\""

    def claim_refusals(self) -> Iterator[Row]:
        """Another method's claim is not this one's."""
        claim, known = self.config.privacy.claim, ["none", *CLAIMS, *self.own_claims]
        problem = f"is another method's than algorithm.kind = {self.config.algorithm.kind!r}"
        yield claim not in known, "privacy.claim", claim, problem, f"use one of {', '.join(known)}"

    def notes(self) -> list[str]:
        """Return the notes of the certificate."""
        return [self.assumed_bound] if self.config.privacy.clip.assumes else []

    assumed_bound = "The gradient bound is believed, not enforced; the paper measured it on private records."

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        """Return what its paper claims; `records` of all nodes together."""
        return CLAIMS.get(self.config.privacy.claim, NoClaim(self.config.algorithm.kind))

    def vector(self, algorithm: Algorithm, module: nn.Module, classes: int | None) -> Vector:
        """Return the vector of a record that the private mean is of."""
        return gradient_vector(self.config, module, classes)

    def reader(self, parts: Parts, book: Book, stream: Stream, written: Sequence[int] | None = None) -> Any:
        """The private part: what a step gets as `grad`. `written`: the rows that write events; all, if None."""
        plan = parts.plan
        return PrivateGradient(
            vector=self.vector(plan.algorithm, plan.module, plan.classes),
            records=parts.records,
            sampler=parts.sampler,
            clip=parts.clip(),
            noise=parts.noise,
            stream=stream,
            book=book,
            nodes=parts.nodes,
            lots=[node.lot for node in parts.plans],
            divisors=[node.lot / node.weight for node in parts.plans],
            allowance=[node.allowance for node in parts.plans],
            adjacency=plan.privacy.adjacency,
            diagnostics=self.config.evaluation.diagnostics,
            written=written,
            longest=max(node.lot for node in plan.privacy.nodes),
        )

    def exchange(self, run: Run) -> CountingExchange:
        """Return the exchange of messages that a step gets as `mix`. Gradients draw their next noise meanwhile."""
        meanwhile = partial(run.reader.draw_ahead, run.plan.stack.dim)
        exchange = run.group.exchange(run.plan.topology, meanwhile)
        exchange.bytes_sent = run.bytes_sent
        return exchange

    def noised(self, plain: Any, parts: Parts, book: Book, stream: Callable[[], Stream], *, start: int = 0) -> Any:
        """The exchange with what is done to a message before it leaves: nothing."""
        return plain

    def finish(self, exchange: Any, dimension: int) -> None:
        """Log what is given out besides messages, after the last round: nothing."""

    def bytes_per_round(self, algorithm: Algorithm, topology: Topology, dimension: int) -> float:
        """Return the bytes of a message over every link of a round; the mean over the first period."""
        message = bytes_per_message(algorithm, dimension)
        rounds = range(min(topology.period or 8, 64))
        return message * float(np.mean([topology.out_degree(t).sum() for t in rounds]))

    def released(self, algorithm: Algorithm, state: Any, hosted: int) -> Tensor:
        """(m, d) the models that everyone may have."""
        return algorithm.model(state)

    def scored(self, algorithm: Algorithm, state: Any, reader: Any, hosted: int) -> Tensor:
        """(m, d) the models that are evaluated."""
        return self.released(algorithm, state, hosted)

    def why_metrics_not_private(self) -> str | None:
        """Why no ε covers figures of the evaluated models, where those never leave their nodes."""
        return None

    @property
    def resumable(self) -> bool:
        """False where a node alone knows something that a stop with secret noise loses for good."""
        # A pass cannot be taken up again: dealt again, its lots would hold records that earlier ones held already.
        return not self.config.privacy.sampling.disjoint

    def checkpoint(self, state: Any, reader: Any) -> dict[str, Any]:
        """Return the tensors of a checkpoint."""
        tensors = {key: value for key, value in state._asdict().items() if isinstance(value, Tensor)}
        return tensors | {f"gradient.{key}": value for key, value in reader.state().items()}

    def restore(self, state: Any, reader: Any, saved: dict[str, Any]) -> Any:
        """The state that `checkpoint` saw; the reader continues from there too."""
        reader.restore(named(saved, "gradient."))
        return type(state)(**{key: fitting(key, value, saved) for key, value in state._asdict().items()})


def fitting(key: str, fresh: Tensor, saved: dict[str, Any]) -> Tensor:
    """The saved tensor of that name, if it has the shape of the fresh one."""
    value: Tensor | None = saved.get(key)
    if value is None or value.shape != fresh.shape:
        raise UserError(f"the checkpoint's '{key}' does not fit this configuration's algorithm and model.")
    return value.to(fresh)


def named(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def bytes_per_message(algorithm: Algorithm, dim: int) -> int:
    """Count the bytes that a node sends over a link in a round, by one step on zeros.

    Zeros and not tensors without content ("meta"): those load half of torch's compiler, two seconds of it.
    """
    sent = 0

    def count(*tensors: Tensor) -> Any:
        nonlocal sent
        sent += sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
        return tensors[0] if len(tensors) == 1 else tensors

    state, grad = algorithm.init(torch.zeros(1, dim)), within_draws(torch.zeros_like, algorithm, 1)
    algorithm.step(state, grad, count, 1)  # round 1: what happens only at the start is not what a round holds
    return sent


# Methods with parts of their own, by their rule: imported only for a run that uses them.
_OWN = {
    "km": ("gossamer.methods.km.method", "OperatorMethod"),
    "without-replacement": ("gossamer.methods.without_replacement.method", "SharedModel"),
}


def method_of(config: RunConfig) -> Method:
    """The method that `algorithm.kind` names."""
    name = config.algorithm.rule
    module, cls = _OWN.get(name, ("gossamer.methods.base", "Method"))
    method: Method = getattr(import_module(module), cls)(config, rule(name))
    return method


def linear_loss(config: RunConfig) -> LinearLoss | None:
    """The loss named under [loss], if it has slopes and the model is linear; None where others do without them."""
    named = config.loss
    if named is None or hasattr(named, "per_record"):
        return None
    if config.model.kind == "linear" and not hasattr(named, "value"):
        raise UserError(
            f"loss.kind = {named.kind!r} is of networks with an output per class; model.kind = 'linear' takes "
            "least-squares, logistic, huber, hinge, quantile or poisson."
        )
    if config.model.kind == "linear":
        return named if isinstance(named, LinearLoss) else None
    if hasattr(named, "value") and named.binary and not hasattr(named, "of_each"):
        raise UserError(
            f"loss.kind = {named.kind!r} is of a single number; it needs model.kind = 'linear', not "
            f"{config.model.kind!r}."
        )
    return None


def per_sample_loss(classes: int | None, config: RunConfig | None = None) -> Any:
    """(outputs, targets) → one loss per record."""
    named, model = (config.loss, config.model.kind) if config else (None, None)
    if hasattr(named, "per_record"):
        return _own(named)
    if config is not None:
        linear_loss(config)  # refuses what does not fit the model
    if config is not None and config.data.multi_label:
        return _of_labels(named or Logistic(), config.model.kind)
    if model == "linear" or classes is None:
        return _of_one_output(named, classes)
    return _of_classes(classes, named, model)


def _of_labels(named: Any, model: str) -> Any:
    """Labels of yes or no, an output each."""
    if model == "linear":
        raise UserError(
            f"model.kind = {short(model)} gives one number, and these records have several labels; use 'softmax', with "
            "an output for each."
        )
    if not hasattr(named, "of_each"):
        raise UserError(f"loss.kind = {named.kind!r} is not of several labels a record; use 'logistic' or 'squared'.")
    return lambda outputs, y: named.of_each(outputs, y.to(outputs))


def _of_one_output(named: Any, classes: int | None) -> Any:
    """A single output: numbers, or two classes."""
    if named is None and classes is not None:
        raise UserError(
            "model.kind = 'linear' has one output, and these data have classes; use loss.kind = 'logistic' or "
            "'hinge', or model.kind = 'softmax'."
        )
    named = named or Squared()
    if not hasattr(named, "value") or named.binary != (classes == 2):
        targets: dict[Any, str] = {True: "labels of two classes", False: "numbers as targets"}
        due = targets.get(getattr(named, "binary", None), "classes")
        those = f"{classes} classes" if classes else "numbers to predict"
        raise UserError(f"loss.kind = {named.kind!r} needs {due}, and these data have {those}; choose another loss.")
    return lambda outputs, y: named.value(outputs.flatten(), y.flatten())


def _of_classes(classes: int, named: Any, model: str | None) -> Any:
    """An output per class."""
    if model == "one-vs-all":  # Σ over classes of ln(1 + exp(−y ⟨w, x⟩)), y = ±1
        return lambda outputs, y: nn.functional.softplus(
            torch.where(nn.functional.one_hot(y, outputs.shape[1]).bool(), -outputs, outputs)
        ).sum(1)
    named = named or CrossEntropy()
    if hasattr(named, "of_class"):
        return named.of_class
    if not hasattr(named, "of_each"):
        raise UserError(f"loss.kind = {named.kind!r} needs numbers as targets, not {classes} classes; choose another.")
    # Every class as an output of its own: ridge regression, or one logistic regression each.
    return lambda outputs, y: named.of_each(outputs, nn.functional.one_hot(y, outputs.shape[1]).to(outputs))


def _own(named: Any) -> Any:
    """The caller's own loss: one number a record, or records could not be told apart."""

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        losses: Tensor = named.per_record(outputs, y)
        # What is traced has no shape yet; the trace is followed afterwards.
        if isinstance(losses, Tensor) and losses.shape != outputs.shape[:1]:
            raise UserError(
                f"loss.kind = {named.kind!r} gives numbers of shape {tuple(losses.shape)} for {len(outputs)} records; "
                'it must give one number for each, as torch\'s losses do with reduction="none".'
            )
        return losses

    return loss


def prediction_task(classes: int | None, labels: int | None, config: RunConfig) -> Task:
    """Return what is predicted under this loss; a loss of the user's own gives outputs no meaning as probabilities."""
    named, link = config.loss, None
    if hasattr(named, "per_record"):
        link = None
    elif config.model.kind == "one-vs-all" and classes is not None:
        link = SIGMOID
    elif named is not None:
        link = getattr(named, "link", None)
    elif labels is not None:
        link = Logistic.link
    elif classes is not None:
        link = CrossEntropy.link
    return task_of(classes, labels, link, getattr(named, "tau", None))


def _weighted(loss: Any, config: RunConfig, classes: int | None) -> Any:
    """Times the weight of the record's class, where weights are known: private ones are found before the first round.

    Gradients are clipped afterwards, so that a record still moves no sum by more than the bound.
    """
    weights, key = config.data.class_weights, "data.class_weights"
    if weights is not None and classes is None:
        raise UserError(f"{key} needs classes; the data have numbers to predict; leave it out.")
    if weights is None or weights == "private" or classes is None:
        return loss
    if len(weights) != classes:
        raise UserError(f"{key} lists {len(weights)} weights, and there are {classes} classes; give one for each.")

    def of_class(outputs: Tensor, y: Tensor) -> Tensor:
        # Written with numbers, not with a table of them: this is seen to keep records apart, on any device.
        own = nn.functional.one_hot(y, classes)
        weight = sum(number * own[:, place] for place, number in enumerate(weights))
        weighted: Tensor = weight * loss(outputs, y)
        return weighted

    return of_class


def gradient_vector(config: RunConfig, module: nn.Module, classes: int | None) -> Vector:
    """The gradient of a record's loss; with `privacy.centre`, after the private mean is subtracted from the record."""
    loss = _weighted(per_sample_loss(classes, config), config, classes)
    if isinstance(module, Centred):
        return CentredSum(ClippedSum(module.head, loss), module.centre.numel(), centre_records)
    return ClippedSum(module, loss)
