"""Without-replacement learning: nodes write one shared model in turn, and keep local ones that never leave.

Its own are the reader of records (`local_models`), the exchange (`token`: the shared model goes from writer to writer),
its paper's claim (`lemma4`), and a state of which only the shared model is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.config.checks import Row
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.reader import Book
from gossamer.methods.base import Method
from gossamer.methods.claims import ClaimRule
from gossamer.methods.without_replacement import lemma4
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.local_models import (
    Blind,
    LocalModels,
    RawDecisions,
    RawView,
    ReleasedView,
)
from gossamer.methods.without_replacement.token import Token, TokenExchange
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology

if TYPE_CHECKING:
    from gossamer.training.assemble import Parts
    from gossamer.training.run import Run


class SharedModel(Method):
    keeps_local_models = True
    own_claims = ("lemma4",)

    @property
    def noise(self) -> NoiseKind:
        planned = super().noise
        return RawDecisions() if planned.adds and lemma4.decides_on_raw_losses(self.config) else planned

    @property
    def attacks(self) -> Any:
        from gossamer.methods.without_replacement import attacks

        return attacks

    def algorithm(self) -> Algorithm:
        made: Algorithm = self.bare()
        return made

    def refusals(self, classes: int | None) -> Iterator[Row]:
        yield from self.noise_refusals()
        yield from self.claim_refusals()
        protects, name = self.config.privacy.protects.words(), self.config.algorithm.kind
        problem = f"protects {protects}, and algorithm.kind = {name!r} keeps local models, which bound single records"
        yield self.config.privacy.unit != "record", "privacy.unit", None, problem, "use another method"
        yield from lemma4.refusals(self.config, classes)

    def notes(self) -> list[str]:
        return [*lemma4.notes(self.config), *super().notes()]

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        if self.config.privacy.claim == "lemma4":
            return lemma4.lemma4_of(self.config, classes)
        return super().claim(algorithm, topology, classes, records)

    def reader(self, parts: Parts, book: Book, stream: Stream, written: Sequence[int] | None = None) -> Any:
        algorithm = parts.plan.algorithm
        assert isinstance(algorithm, WithoutReplacement)
        view = Blind()
        if algorithm.looks:
            view = RawView() if algorithm.observes == "raw" else ReleasedView(algorithm.loss_share)
        return LocalModels(
            rule=algorithm,
            view=view,
            records=parts.records,
            sampler=parts.sampler,
            classes=parts.plan.classes or 1,
            record_bound=self.config.privacy.clip.record_bound,
            noise=parts.noise,
            stream=stream,
            book=book,
            nodes=parts.nodes,
            lots=[node.lot for node in parts.plans],
            allowance=[node.allowance for node in parts.plans],
            adjacency=parts.plan.privacy.adjacency,
            of=self.config.nodes,
        )

    def exchange(self, run: Run) -> CountingExchange:
        state, reader = run.state, run.reader
        public = state.public.view(len(reader.released_loss), -1).clone()
        token = Token(public, int(state.holder), int(state.writes))
        exchange = TokenExchange(run.group, self.config.seed, token, reader, run.rounds_known_everywhere)
        exchange.bytes_sent = run.bytes_sent
        return exchange

    def bytes_per_round(self, algorithm: Algorithm, topology: Topology, dimension: int) -> float:
        """Return the bytes that all writes of a round would fetch."""
        return 4.0 * dimension * self.config.nodes

    def released(self, algorithm: Algorithm, state: Any, hosted: int) -> Tensor:
        return algorithm.model(state).expand(hosted, -1)

    def scored(self, algorithm: Algorithm, state: Any, reader: Any, hosted: int) -> Tensor:
        """Return the released models, or the nodes' own where that is asked for."""
        if self.why_metrics_not_private():
            models: Tensor = reader.models()
            return models
        return self.released(algorithm, state, hosted)

    def why_metrics_not_private(self) -> str | None:
        if lemma4.judged_local(self.config) is None:
            return None
        return "the nodes' own local models are judged, whose steps have no noise"

    @property
    def resumable(self) -> bool:
        return False  # checkpoints are public, and hold neither local models nor the lots of the pass
