"""The tables of a configuration. Kinds are registered in the modules that have them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gossamer.accounting.observers import PERSON, Unit
from gossamer.config.methods import Algorithm, algorithms
from gossamer.data.load import Source, datasets
from gossamer.data.own import OwnFile
from gossamer.errors import UserError, short
from gossamer.mechanism.clipping import ClipKind, NoClip, clips
from gossamer.mechanism.noise import NoiseKind, NoiseSchedule, families, schedules
from gossamer.mechanism.noise.base import ConstantNoise, NoNoise
from gossamer.mechanism.noise.gaussian import Gaussian
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
    family: Annotated[NoiseKind, families, "the density of the noise"] = Gaussian()
    on: Annotated[
        Literal["gradient", "iterate"],
        "what carries the noise: the answers about records, or the messages (dp-dkm)",
    ] = "gradient"
    schedule: Annotated[NoiseSchedule, schedules, "how its size goes over the run"] = ConstantNoise()
    multiplier: Annotated[
        Positive | None, "noise std / sensitivity at the first round; without it, epsilon decides"
    ] = None

    @property
    def kind(self) -> NoiseKind:
        """The noise that is drawn: the family, unless the schedule is about another, or none."""
        return self.schedule.another or self.family


def _not_empty(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("the list is empty")
    return value


class PersonUnit(Strict):
    """One person: all records with the same value in a column."""

    column: Annotated[str, Field(min_length=1), "the column, or array, that says whose a record is; it is no feature"]
    combine: Annotated[Literal["sum", "mean"], "what of a person's vectors is clipped: their sum, or their mean"] = (
        "sum"
    )
    max_records: Annotated[Count, "most records of a person that a node uses: the first in the order of the file"] = (
        1000
    )
    max_sites: Annotated[Count, "at how many nodes the same person may be: declared, priced, and kept to"] = 1


class Privacy(Strict):
    epsilon: Annotated[
        Epsilon | Annotated[list[Epsilon], AfterValidator(_not_empty)] | None,
        "the target and a hard stop: proven in sound mode, claimed in paper mode",
    ] = None
    delta: Annotated[
        Delta | Annotated[list[Delta], AfterValidator(_not_empty)],
        "of (ε, δ): one for all, or one per node as with epsilon",
    ] = 1e-5
    adjacency: Annotated[
        Literal["add-remove", "replace-one"], "by what two data sets differ: a record more, or another record"
    ] = "add-remove"
    unit: Annotated[
        Literal["record", "node"] | PersonUnit,
        "what ε protects: a record, a person with all of its records, or a node with all of its",
    ] = "record"
    sampling: Annotated[SamplingKind, samplings, "which records, or persons, enter a draw"] = Full()
    clip: Annotated[ClipKind, clips, "what bounds one record's contribution"] = NoClip()
    noise: Noise = Noise(schedule=NoNoise())
    runs: Annotated[
        int, Field(ge=1, le=1000), "how many such runs share the budget, where settings are chosen among them"
    ] = 1
    cap: Annotated[Epsilon | None, "most proven ε of all runs on the same own records together, this one included"] = (
        None
    )
    account: Annotated[
        AccountName | None,
        "the name of the account of the people whose records these are; {node} in it stands for the node's "
        "number. If not set, it is found by the records' content",
    ] = None
    centre: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        "share of the budget for a private mean of the records, to be subtracted",
    ] = None
    preprocessing: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        "share of ε for what is found on the records before the first round: data.standardise, private "
        "class weights and components",
    ] = None
    claim: Annotated[
        Literal["gdp-clt", "gdp-clt-lot", "gdp-general", "adad2p", "rdp", "dp-dkm", "lemma4", "none"],
        "whose formula gives the claimed ε; the method brings its paper's",
    ] = "none"

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
    every: Annotated[Count | None, "rounds between evaluations; about 10 in all if not set"] = None
    rows: Annotated[Count | None, "rows of the hold-out used before the last evaluation"] = None
    nodes: Annotated[Count | None, "how many nodes' models are judged, drawn by the seed; 1000 if not set"] = None
    measures: Annotated[
        Annotated[list[Annotated[str, Field(min_length=1)]], AfterValidator(_not_empty)] | None,
        "what is measured on the hold-out, the first being what a run is read by: accuracy, f1, auc, "
        "log-loss, calibration-error; rmse, mae, pinball-loss, poisson-deviance; if not set accuracy, of numbers rmse, "
        "of several labels f1",
    ] = None
    private: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        "share of ε for figures on private records, kept out of training: once, of the final models",
    ] = None
    part: Annotated[
        float,
        Field(gt=0, lt=1),
        "with private: the part of each node's records, or persons, that is kept out",
    ] = 0.2
    bound: Annotated[
        Positive | None,
        "with private: the largest error, or loss, of a record that counts, for all but accuracy, f1, auc "
        "and calibration-error",
    ] = None
    diagnostics: Annotated[
        bool, Field(strict=True), "losses and clipped shares of the training records; not private, marked so"
    ] = False
    metric: Annotated[
        Literal["hold-out", "truth"],
        "the headline: on the hold-out, or against the coefficients of a made-up set",
    ] = "hold-out"


class Checkpoints(Strict):
    every: Annotated[Count | None, "rounds between checkpoints, all kept; if not set about 20, the newest kept"] = None


class Runtime(Strict):
    """The processes that host the nodes; nothing of it changes what they compute."""

    kind: Annotated[Literal["simulator", "processes"], "all nodes in this process, or spread over several"] = (
        "simulator"
    )
    ranks: Annotated[Count | None, "processes to start on this machine; one per core if not set"] = None
    blocks: Annotated[list[Count] | None, "nodes of each rank; about even if not set"] = None
    timeout: Annotated[float, Field(ge=1, le=86400), "seconds a rank waits for another before the run ends"] = 60.0


def _device(value: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise ValueError("use cpu, cuda or, of several, cuda:0, cuda:1 and so on")
    return value


class RunConfig(Strict):
    name: Annotated[str, "names the run directory"] = "unnamed"
    mode: Annotated[Literal["sound", "paper"], "prove the ε asked for, or do as the method's paper does"] = "sound"
    nodes: Annotated[Count, Field(le=1_000_000), "how many nodes train together"]
    rounds: Annotated[Count, Field(le=10_000_000), "how often they compute and exchange; or auto: see docs/frontier.md"]
    seed: Annotated[
        int,
        Field(ge=0, lt=2**63, strict=True),
        "of initialisation, partition and graph; not of noise that protects anyone",
    ] = 0
    device: Annotated[
        str,
        AfterValidator(_device),
        "cpu, cuda or cuda:1: where gradients are computed; noise is drawn on the CPU",
    ] = "cpu"
    baseline: Annotated[
        Literal["none", "non-private", "no-communication", "central"],
        "the same run with other parts, for comparison",
    ] = "none"
    weighting: Annotated[
        Literal["uniform", "size"], "whose mean is minimised: the nodes' means, or over all records"
    ] = "uniform"
    data: Annotated[Source, datasets, "the records, and who holds them"]
    model: Annotated[Model, models, "the network; from Python also a module of your own"]
    lora: Annotated[Annotated[LoRA, Table()] | None, "low-rank adapters, the network being frozen but for them"] = None
    loss: Annotated[
        Annotated[Any, losses] | None, "what is minimised; cross-entropy, or ½ r² for numbers, if not set"
    ] = None
    topology: Annotated[TopologyKind, topologies, "who sends to whom, in which round"]
    algorithm: Annotated[Algorithm, algorithms, "the method; brings its privacy parts along"]
    privacy: Annotated[Privacy, "what is asked for, and the parts that give it"] = Privacy()
    evaluation: Annotated[Evaluation, "when and on what the models are judged"] = Evaluation()
    checkpoints: Annotated[Checkpoints, "when the state of a run is kept"] = Checkpoints()
    runtime: Annotated[Runtime, "where the nodes live; nothing of it changes what they compute"] = Runtime()

    @model_validator(mode="after")
    def a_persons_column_is_no_feature(self) -> RunConfig:
        """The data read what the unit names: written out, both say so."""
        unit, data = self.privacy.unit, self.data
        if isinstance(unit, PersonUnit) and isinstance(data, OwnFile):
            if data.person is not None and data.person != unit.column:
                raise UserError(
                    f"data.person = {short(data.person)} is another column than privacy.unit.column = {unit.column!r}; "
                    "leave data.person out."
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
                raise UserError(f"{key} lists {len(value)} values but nodes = {self.nodes}; give one per node.")
        return self
