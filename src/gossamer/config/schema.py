"""What a user may ask for: strict models, and the only parser of user input.

A configuration is built up in layers, later ones win: the method's preset, the recipe, the recipe's `[paper]`
table (in paper mode), and the `--set` overrides. The result is checked key by key; the first mistake becomes one
sentence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gossamer.config.auto import any_auto, settle
from gossamer.config.methods import PRESETS, expand_preset
from gossamer.errors import UserError
from gossamer.mechanism.clipping import ClipKind, NoClip, clips
from gossamer.mechanism.noise import NoiseKind, NoiseSchedule, families, schedules
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.schedules import ConstantNoise, NoNoise
from gossamer.mechanism.sampling import Full, SamplingKind, samplings
from gossamer.options.numbers import Count, Positive, Probability, Rate
from gossamer.options.registry import UNKNOWN_KIND


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Open(BaseModel):
    """A part whose further keys belong to its kind; the package that owns the kind checks them."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class Partition(Open):
    kind: str = "even"


class Data(Open):
    partition: Partition = Partition()
    records: Count | list[Count] | None = Field(
        default=None, description="the declared, public number of records of each node"
    )


class SlowLinks(Strict):
    """A share of the links carries only every so-many-th of its messages."""

    share: Rate
    every: Annotated[int, Field(ge=2, le=64)]


class Topology(Open):
    mixing: Literal["metropolis", "uniform"] | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    slow: SlowLinks | None = None


class LearningRate(Strict):
    """start · decay^(t / rounds) / (t + 1)^power; decay = 1 and power = 0 keep it constant."""

    start: Positive
    decay: Positive = 1.0
    power: Annotated[float, Field(ge=0, le=1)] = 0.0


class Algorithm(Open):
    """`lr`, `rounds` and `clip` may be "auto": `auto.py` puts numbers there before this is checked."""

    lr: Positive | LearningRate = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    mixes: Annotated[
        int, Field(ge=1, le=1000, description="exchanges in a round, each over the next graph")
    ] = 1
    tail_average: Annotated[
        float, Field(ge=0, le=1, description="share of the last rounds whose mean is the model")
    ] = 0.0
    final_gossip: Annotated[int, Field(ge=0, le=10_000, description="exchanges of the models at the end")] = 0


class Noise(Strict):
    source: Literal["system", "seeded"] = "system"
    arithmetic: Literal["float", "lattice"] = "float"
    family: Annotated[NoiseKind, families] = Gaussian()
    on: Literal["gradient", "iterate"] = Field(
        default="gradient",
        description="what carries the noise: the answers about records, or the messages (dp-dkm)",
    )
    schedule: Annotated[NoiseSchedule, schedules] = ConstantNoise()
    multiplier: Positive | None = Field(
        default=None, description="noise std / sensitivity at the first round; without it, epsilon decides"
    )

    @property
    def kind(self) -> NoiseKind:
        """Which noise it is: the family, unless the schedule is about another, or none."""
        return self.schedule.noise(self.family)


def _not_empty(value: list[float]) -> list[float]:
    if not value:
        raise ValueError("the list is empty")
    return value


class Privacy(Strict):
    epsilon: Positive | Annotated[list[Positive], AfterValidator(_not_empty)] | None = None
    delta: Probability | Annotated[list[Probability], AfterValidator(_not_empty)] = 1e-5
    adjacency: Literal["add-remove", "replace-one"] = "add-remove"
    sampling: Annotated[SamplingKind, samplings] = Full()
    clip: Annotated[ClipKind, clips] = NoClip()
    noise: Noise = Noise(schedule=NoNoise())
    runs: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="how many such runs share the budget, where settings are chosen among them"
    )
    centre: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="share of the budget for a private mean of the records, to be subtracted"
    )
    claim: Literal["gdp-clt", "gdp-general", "adad2p", "rdp", "dp-dkm", "lemma4", "none"] = "none"


class Evaluation(Strict):
    every: Count | None = Field(
        default=None, description="rounds between evaluations; about 10 in all if not set"
    )
    rows: Count | None = Field(
        default=None, description="rows of the hold-out used before the last evaluation"
    )
    diagnostics: bool = False
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

    kind: Literal["simulator", "processes"] = "simulator"
    ranks: Count | None = Field(
        default=None, description="processes to start on this machine; one per core if not set"
    )
    blocks: list[Count] | None = Field(default=None, description="nodes of each rank; about even if not set")
    timeout: Annotated[float, Field(ge=1, le=86400)] = Field(
        default=60.0, description="seconds a rank waits for another before the run ends"
    )


class RunConfig(Strict):
    name: str = "unnamed"
    mode: Literal["sound", "paper"] = "sound"
    nodes: Count
    rounds: Count
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    baseline: Literal["none", "non-private", "no-communication", "central"] = "none"
    weighting: Literal["uniform", "size"] = Field(
        default="uniform", description="whose mean is minimised: the nodes' means, or over all records"
    )
    data: Data
    model: Open
    loss: Open | None = Field(default=None, description="of a linear model; cross-entropy or ½ r² if not set")
    topology: Topology
    algorithm: Algorithm
    privacy: Privacy = Privacy()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def lists_fit_nodes(self) -> RunConfig:
        for key, value in (
            ("privacy.epsilon", self.privacy.epsilon),
            ("privacy.delta", self.privacy.delta),
            ("privacy.sampling.rate", getattr(self.privacy.sampling, "rate", None)),
            ("data.records", self.data.records),
        ):
            if isinstance(value, list) and len(value) != self.nodes:
                raise ValueError(
                    f"{key} lists {len(value)} values but nodes = {self.nodes}; give one per node"
                )
        return self


def resolve(recipe: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Layers → one checked configuration. `changes` are dotted keys, {"privacy.epsilon": 1.0}; they win."""
    changes = changes or {}
    layered = {key: value for key, value in recipe.items() if key != "paper"}
    mode = changes.get("mode", layered.get("mode", "sound"))
    if mode == "paper":
        layered = merge(layered, _table("paper", recipe.get("paper", {})))
    written_for = _table("algorithm", layered.get("algorithm", {})).get("kind")
    kind = changes.get("algorithm.kind", written_for)
    if kind not in PRESETS:
        known = ", ".join(sorted(PRESETS))
        raise UserError(f"algorithm.kind = {kind!r} is not a method I know; the methods are {known}.")
    preset = expand_preset(kind, mode)
    if kind != written_for:
        layered = adopt_method(layered, preset)
    for key, value in changes.items():
        layered = merge(layered, _nest(key.split("."), value))
    layered = merge(preset, layered)
    if any_auto(layered):
        layered = settle(layered)
    try:
        return RunConfig.model_validate(layered)
    except ValidationError as error:
        raise UserError(one_sentence(error, layered)) from None


def adopt_method(recipe: dict[str, Any], preset: dict[str, Any]) -> dict[str, Any]:
    """A recipe under another method: its clip and noise schedule go where the new method has its own.

    The clip's size stays: a constant C̄ and a decaying C_k compare at the same geometric mean, C̄ = C_0 ρ^(−½).
    """
    privacy = dict(_table("privacy", recipe.get("privacy", {})))
    privacy.pop("claim", None)
    old, new = _table("privacy.clip", privacy.get("clip", {})), preset["privacy"].get("clip", {})
    if old.get("kind") != new.get("kind"):
        privacy.pop("clip", None)
        if old.get("kind") == "decaying" and new.get("kind") == "constant":
            privacy["clip"] = {"kind": "constant", "bound": old["start"] * old["ratio"] ** -0.5}
        elif old.get("kind") == "constant" and new.get("kind") == "decaying":
            privacy["clip"] = {**new, "start": old["bound"] * new["ratio"] ** 0.5}
    noise = dict(_table("privacy.noise", privacy.get("noise", {})))
    schedule = _table("privacy.noise.schedule", noise.get("schedule", {}))
    if schedule.get("kind") != preset["privacy"].get("noise", {}).get("schedule", {}).get("kind"):
        noise.pop("schedule", None)
    # The step size is every method's key; the others belong to the method the recipe was written for.
    algorithm = _table("algorithm", recipe.get("algorithm", {}))
    kept = {**preset["algorithm"], **({"lr": algorithm["lr"]} if "lr" in algorithm else {})}
    return {**recipe, "algorithm": kept, "privacy": {**privacy, "noise": noise}}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins. A table that changes its `kind` replaces the old table, whose keys belong to the old kind."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            replaced = "kind" in value and value["kind"] != old.get("kind", value["kind"])
            keep = (
                {k: v for k, v in old.items() if isinstance(v, dict)}
                if replaced and key in _WITH_PARTS
                else {}
            )
            result[key] = merge(keep if replaced else old, value)
        else:
            result[key] = value
        if key in _EITHER_OR:  # saying the one takes back the other
            result.pop(_EITHER_OR[key], None)
    return result


_EITHER_OR = {"rate": "lot", "lot": "rate"}
_WITH_PARTS = {"data"}  # tables with a sub-table of their own that outlives a change of kind


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`a.b=c` → {"a.b": c}, the value read as TOML and, failing that, as a plain string."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UserError(f"--set {text!r} must have the form key=value, for example privacy.epsilon=1.")
        try:
            changes[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = value.strip()
    return changes


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from None


def stored(path: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration a run directory holds: complete, so no preset is laid under it."""
    layered = read_toml(path)
    for key, value in (changes or {}).items():
        layered = merge(layered, _nest(key.split("."), value))
    try:
        return RunConfig.model_validate(layered)
    except ValidationError as error:
        raise UserError(f"{path}: {one_sentence(error, layered)}") from None


def one_sentence(error: ValidationError, layered: dict[str, Any]) -> str:
    """The first mistake: key, value, what would be right."""
    first = error.errors(include_url=False)[0]
    where = _path(first["loc"], layered, missing=first["type"] == "missing")
    key = ".".join(where)
    value, message = first["input"], first["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "must be", 1)
    message = message[0].lower() + message[1:]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key} is not a key I know{_near(where)}."
    if first["type"] == "missing":
        return f"{key} is missing; it must be set."
    if first["type"] == UNKNOWN_KIND:
        kind = value.get("kind") if isinstance(value, dict) else value
        return f"{key}.kind = {kind!r} is not known; {message}."
    if first["type"] == "value_error" and not key:
        return f"{message[0].upper() if not message.startswith(('privacy', 'data')) else message[0]}{message[1:]}."
    shown = f" = {value!r}" if not isinstance(value, dict) else ""
    return f"{key}{shown}: {message}."


def _path(loc: tuple[int | str, ...], layered: Any, *, missing: bool) -> list[str]:
    """The keys the user wrote: pydantic's location without the names of union members."""
    where, current = [], layered
    for part in loc:
        if isinstance(current, dict) and part in current:
            where.append(str(part))
            current = current[part]
    return [*where, str(loc[-1])] if missing else where


def _near(where: list[str]) -> str:
    import difflib

    model: Any = RunConfig
    for part in where[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        model = getattr(field, "annotation", None)
    names = sorted(getattr(model, "model_fields", {}))
    if not names:
        return ""
    close = difflib.get_close_matches(where[-1], names, n=1)
    return f"; did you mean {close[0]}" if close else f"; the keys here are {', '.join(names)}"


def _nest(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f'{key} = {value!r} must be a table, for example {key}.kind = "…".')
    return value
