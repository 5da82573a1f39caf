"""Without-replacement learning: nodes write one shared model in turn, and keep local ones that never leave.

Its own are the reader of records (`local_models`), the exchange (`token`: the shared model goes from writer to writer),
its paper's claim (`lemma4`), and a state of which only the shared model is public.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.errors import UserError
from gossamer.mechanism.noise import NoiseKind
from gossamer.methods.base import Carriage, Hosted, Reading
from gossamer.methods.claims import ClaimRule
from gossamer.methods.gossip import Gossip, fitting, named
from gossamer.methods.without_replacement import lemma4
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.local_models import (
    Blind,
    LocalModels,
    RawDecisions,
    RawView,
    ReleasedView,
    View,
)
from gossamer.methods.without_replacement.token_ranks import token_exchange
from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology


class SharedModel(Gossip):
    keeps_local_models = True
    own_claims = ("lemma4",)

    @property
    def noise(self) -> NoiseKind:
        asked = super().noise
        return RawDecisions() if asked.adds and lemma4.decides_on_raw_losses(self.config) else asked

    def algorithm(self) -> Algorithm:
        made: Algorithm = self.bare()
        return made

    def check(self, classes: int | None) -> None:
        self.check_noise()
        self.check_claim()
        if self.config.privacy.unit != "record":
            raise UserError(
                f"privacy.unit protects {self.config.privacy.protects.words()}, and algorithm.kind = "
                f"{self.config.algorithm.kind!r} keeps local models, which bound single records; use another method."
            )
        lemma4.check(self.config, classes)

    def notes(self) -> list[str]:
        return lemma4.notes(self.config)

    def claim(self, algorithm: Algorithm, topology: Topology, classes: int | None, records: int) -> ClaimRule:
        if self.config.privacy.claim == "lemma4":
            return lemma4.lemma4_of(self.config, classes)
        return super().claim(algorithm, topology, classes, records)

    def reader(self, hosted: Hosted, how: Reading) -> Any:
        algorithm = how.algorithm
        assert isinstance(algorithm, WithoutReplacement)
        view: View = Blind()
        if algorithm.looks:
            view = RawView() if algorithm.observes == "raw" else ReleasedView(algorithm.loss_share)
        return LocalModels(
            records=hosted.records,
            sampler=hosted.sampler,
            classes=hosted.classes or 1,
            record_bound=self.config.privacy.clip.record_bound,
            regularisation=algorithm.regularisation,
            radius=algorithm.radius,
            average=algorithm.average,
            view=view,
            noise=hosted.noise,
            stream=how.stream,
            book=how.book,
            nodes=hosted.nodes,
            of=hosted.of,
            lots=hosted.lots,
            allowance=hosted.allowance,
            adjacency=hosted.adjacency,
            turns=self.config.rounds,
        )

    def exchange(self, hosted: Hosted, how: Carriage) -> CountingExchange:
        nodes, seed = self.config.nodes, self.config.seed
        made = token_exchange(how.group, nodes, seed, how.state, how.reader, how.known_at)
        made.bytes_sent = how.bytes_sent
        return made

    def bytes_per_round(self, algorithm: Algorithm, topology: Topology, dimension: int) -> float:
        """What all writes of a round would fetch."""
        return 4.0 * dimension * self.config.nodes

    def released(self, algorithm: Algorithm, state: Any, hosted: int) -> Tensor:
        return algorithm.model(state).expand(hosted, -1)

    def scored(self, algorithm: Algorithm, state: Any, reader: Any, hosted: int) -> Tensor:
        """What was released, or the nodes' own models where that is asked for."""
        if self.judges_unreleased():
            models: Tensor = reader.models()
            return models
        return self.released(algorithm, state, hosted)

    def judges_unreleased(self) -> str | None:
        if lemma4.judged_local(self.config) is None:
            return None
        return "the nodes' own local models are judged, whose steps have no noise"

    def lost_at_a_stop(self) -> bool:
        return True  # local models, and the lots of the pass

    def kept(self, state: Any, reader: Any) -> dict[str, Any]:
        """What only its node may know is in it only where seeded noise leaves nothing to hide."""
        kept = super().kept(state, reader)
        if self.config.privacy.noise.source == "seeded":
            kept |= {f"private.{key}": value.clone() for key, value in reader.private_state().items()}
            if hasattr(state.controller, "state"):
                learned = state.controller.state(len(reader.nodes))
                kept |= {f"controller.{key}": value.clone() for key, value in learned.items()}
        return kept

    def restore(self, state: Any, reader: Any, saved: dict[str, Any]) -> Any:
        reader.restore(named(saved, "gradient."), named(saved, "private."))
        if hasattr(state.controller, "restore"):
            state.controller.restore(named(saved, "controller."))
        public = {key: fitting(key, getattr(state, key), saved) for key in ("public", "holder", "writes")}
        return state._replace(**public)
