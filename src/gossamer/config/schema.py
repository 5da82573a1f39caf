"""What a user may ask for: the tables of a configuration. Kinds are registered where they are at home."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gossamer.accounting.observers import PERSON, Unit
from gossamer.config.methods import Algorithm, algorithms
from gossamer.data.load import Source, datasets
from gossamer.data.own import OwnFile
from gossamer.errors import UserError
from gossamer.mechanism.clipping import ClipKind, NoClip, clips
from gossamer.mechanism.noise import NoiseKind, NoiseSchedule, families, schedules
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.schedules import ConstantNoise, NoNoise
from gossamer.mechanism.sampling import Full, SamplingKind, samplings
from gossamer.models.lora import LoRA
from gossamer.models.losses import losses
from gossamer.models.networks import Model, models
from gossamer.options.registry import Table
from gossamer.options.types import AccountName, Count, Delta, Epsilon, Positive
from gossamer.topology.kinds import TopologyKind, topologies


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Noise(Strict):
    source: Literal["system", "seeded"] = "system"
    family: Annotated[NoiseKind, families] = Field(default=Gaussian(), description="the density of the noise")
    on: Literal["gradient", "iterate"] = Field(
        default="gradient",
        description="what carries the noise: the answers about records, or the messages (dp-dkm)",
    )
    schedule: Annotated[NoiseSchedule, schedules] = Field(
        default=ConstantNoise(), description="how its size goes over the run"
    )
    multiplier: Positive | None = Field(
        default=None, description="noise std / sensitivity at the first round; without it, epsilon decides"
    )

    @property
    def kind(self) -> NoiseKind:
        """Which noise it is: the family, unless the schedule is about another, or none."""
        return self.schedule.another or self.family


def _not_empty(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("the list is empty")
    return value


class PersonUnit(Strict):
    """One person: all records with the same value in a column."""

    column: Annotated[str, Field(min_length=1)] = Field(
        description="the column, or array, that says whose a record is; it is no feature"
    )
    combine: Literal["sum", "mean"] = Field(
        default="sum", description="what of a person's vectors is clipped: their sum, or their mean"
    )
    max_records: Count = Field(
        default=1000,
        description="most records of a person that a node uses: the first in the order of the file",
    )
    max_sites: Count = Field(
        default=1, description="at how many nodes the same person may be: declared, priced, and kept to"
    )


class Privacy(Strict):
    epsilon: Epsilon | Annotated[list[Epsilon], AfterValidator(_not_empty)] | None = Field(
        default=None, description="the target and a hard stop: proven in sound mode, claimed in paper mode"
    )
    delta: Delta | Annotated[list[Delta], AfterValidator(_not_empty)] = Field(
        default=1e-5, description="of (ε, δ): one for all, or one per node as with epsilon"
    )
    adjacency: Literal["add-remove", "replace-one"] = Field(
        default="add-remove", description="by what two data sets differ: a record more, or another record"
    )
    unit: Literal["record", "node"] | PersonUnit = Field(
        default="record",
        description="what ε protects: a record, a person with all of its records, or a node with all of its",
    )
    sampling: Annotated[SamplingKind, samplings] = Field(
        default=Full(), description="which records, or persons, enter a draw"
    )
    clip: Annotated[ClipKind, clips] = Field(
        default=NoClip(), description="what bounds one record's contribution"
    )
    noise: Noise = Noise(schedule=NoNoise())
    runs: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="how many such runs share the budget, where settings are chosen among them"
    )
    cap: Epsilon | None = Field(
        default=None,
        description="most proven ε of all runs on the same own records together, this one included",
    )
    account: AccountName | None = Field(
        default=None,
        description="the name of the account of the people whose records these are; {node} in it stands for the node's "
        "number. If not set, it is found by the records' content",
    )
    centre: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="share of the budget for a private mean of the records, to be subtracted"
    )
    preprocessing: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="share of ε for what is found on the records before the first round: data.standardise, private "
        "class weights and components",
    )
    claim: Literal["gdp-clt", "gdp-clt-lot", "gdp-general", "adad2p", "rdp", "dp-dkm", "lemma4", "none"] = (
        Field(default="none", description="whose formula gives the claimed ε; the method brings its paper's")
    )

    @property
    def protects(self) -> Unit:
        """The unit, as certificates name it."""
        if isinstance(self.unit, PersonUnit):
            return Unit(PERSON, self.unit.column)
        return Unit(self.unit)

    @property
    def max_sites(self) -> int:
        """On how many nodes the same unit may be, by declaration."""
        return self.unit.max_sites if isinstance(self.unit, PersonUnit) else 1


class Evaluation(Strict):
    every: Count | None = Field(
        default=None, description="rounds between evaluations; about 10 in all if not set"
    )
    rows: Count | None = Field(
        default=None, description="rows of the hold-out used before the last evaluation"
    )
    nodes: Count | None = Field(
        default=None, description="how many nodes' models are judged, drawn by the seed; 1000 if not set"
    )
    measures: Annotated[list[Annotated[str, Field(min_length=1)]], AfterValidator(_not_empty)] | None = Field(
        default=None,
        description="what is measured on the hold-out, the first being what a run is read by: accuracy, f1, auc, "
        "log-loss, calibration-error; rmse, mae, pinball-loss, poisson-deviance; if not set accuracy, of numbers rmse, "
        "of several labels f1",
    )
    private: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="share of ε for figures on private records, kept out of training: once, of the final models",
    )
    part: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.2, description="with private: the part of each node's records, or persons, that is kept out"
    )
    bound: Positive | None = Field(
        default=None,
        description="with private: the largest error, or loss, of a record that counts, for all but accuracy, f1, auc "
        "and calibration-error",
    )
    diagnostics: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="losses and clipped shares of the training records; not private, marked so"
    )
    metric: Literal["hold-out", "truth"] = Field(
        default="hold-out",
        description="the headline: on the hold-out, or against the coefficients of a made-up set",
    )


class Checkpoints(Strict):
    every: Count | None = Field(
        default=None, description="rounds between checkpoints, all kept; if not set about 20, the newest kept"
    )


class Runtime(Strict):
    """Where the nodes live; nothing of it changes what they compute."""

    kind: Literal["simulator", "processes"] = Field(
        default="simulator", description="all nodes in this process, or spread over several"
    )
    ranks: Count | None = Field(
        default=None, description="processes to start on this machine; one per core if not set"
    )
    blocks: list[Count] | None = Field(default=None, description="nodes of each rank; about even if not set")
    timeout: Annotated[float, Field(ge=1, le=86400)] = Field(
        default=60.0, description="seconds a rank waits for another before the run ends"
    )


def _device(value: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise ValueError("use cpu, cuda or, of several, cuda:0, cuda:1 and so on")
    return value


class RunConfig(Strict):
    name: str = Field(default="unnamed", description="names the run directory")
    mode: Literal["sound", "paper"] = Field(
        default="sound", description="prove the ε asked for, or do as the method's paper does"
    )
    nodes: Annotated[Count, Field(le=1_000_000)] = Field(description="how many nodes train together")
    rounds: Annotated[Count, Field(le=10_000_000)] = Field(
        description="how often they compute and exchange; or auto: see docs/frontier.md"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = Field(
        default=0, description="of initialisation, partition and graph; not of noise that protects anyone"
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        default="cpu",
        description="cpu, cuda or cuda:1: where gradients are computed; noise is drawn on the CPU",
    )
    baseline: Literal["none", "non-private", "no-communication", "central"] = Field(
        default="none", description="the same run with other parts, for comparison"
    )
    weighting: Literal["uniform", "size"] = Field(
        default="uniform", description="whose mean is minimised: the nodes' means, or over all records"
    )
    data: Annotated[Source, datasets] = Field(description="the records, and who holds them")
    model: Annotated[Model, models] = Field(description="the network; from Python also a module of your own")
    lora: Annotated[LoRA, Table()] | None = Field(
        default=None, description="low-rank adapters, the network being frozen but for them"
    )
    loss: Annotated[Any, losses] | None = Field(
        default=None, description="what is minimised; cross-entropy, or ½ r² for numbers, if not set"
    )
    topology: Annotated[TopologyKind, topologies] = Field(description="who sends to whom, in which round")
    algorithm: Annotated[Algorithm, algorithms] = Field(
        description="the method; brings its privacy parts along"
    )
    privacy: Privacy = Field(default=Privacy(), description="what is asked for, and the parts that give it")
    evaluation: Evaluation = Field(default=Evaluation(), description="when and on what the models are judged")
    checkpoints: Checkpoints = Field(default=Checkpoints(), description="when the state of a run is kept")
    runtime: Runtime = Field(
        default=Runtime(), description="where the nodes live; nothing of it changes what they compute"
    )

    @model_validator(mode="after")
    def a_persons_column_is_no_feature(self) -> RunConfig:
        """The data read what the unit names: written out, both say so."""
        unit, data = self.privacy.unit, self.data
        if isinstance(unit, PersonUnit) and isinstance(data, OwnFile):
            if data.person is not None and data.person != unit.column:
                raise UserError(
                    f"is another column than privacy.unit.column = {unit.column!r}",
                    key="data.person",
                    value=data.person,
                    remedy="leave data.person out",
                )
            self.__dict__["data"] = replace(data, person=unit.column)
        return self

    @model_validator(mode="after")
    def lists_fit_nodes(self) -> RunConfig:
        for key, value in (
            ("privacy.epsilon", self.privacy.epsilon),
            ("privacy.delta", self.privacy.delta),
            ("privacy.sampling.rate", getattr(self.privacy.sampling, "rate", None)),
            ("data.records", self.data.records),
        ):
            if isinstance(value, list) and len(value) != self.nodes:
                raise UserError(
                    f"lists {len(value)} values but nodes = {self.nodes}", key=key, remedy="give one per node"
                )
        return self
