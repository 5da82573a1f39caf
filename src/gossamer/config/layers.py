"""From a recipe, a method and the user's changes to one checked configuration.

Layers, later ones win: the method's preset, the recipe, the recipe's `[paper]` table (in paper mode), and the `--set`
overrides. The result is checked key by key; the first mistake becomes one sentence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gossamer.config import recipes
from gossamer.config.auto import replace_auto
from gossamer.config.keys import alike
from gossamer.config.methods import PRESETS, algorithms, expand_preset
from gossamer.config.schema import Noise, RunConfig
from gossamer.errors import UserError, compose, ending, short
from gossamer.mechanism.noise import families
from gossamer.models.networks import Own, Withheld
from gossamer.options.plugins import broken_plugins
from gossamer.options.sentences import user_error


def resolve(recipe: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Layers → one checked configuration. `changes` are dotted keys, {"privacy.epsilon": 1.0}; they win."""
    changes = changes or {}
    for key, value in (*recipe.items(), *changes.items()):
        _check_limits(key, value)
    layered = _in_full({key: value for key, value in recipe.items() if key != "paper"})
    mode = changes.get("mode", layered.get("mode", "sound"))
    if not isinstance(mode, str):
        raise UserError(f"mode = {short(mode)} must be 'sound' or 'paper'.")
    if mode == "paper":
        layered = merge(layered, _in_full(_table("paper", recipe.get("paper", {}))))
    written_for = _table("algorithm", layered.get("algorithm", {})).get("kind")
    whole = _table("algorithm", changes.get("algorithm", {}))
    kind = changes.get("algorithm.kind", whole.get("kind", written_for))
    if not isinstance(kind, str) or (kind not in PRESETS and kind not in algorithms):
        known = sorted(algorithms)
        remedy = " ".join([f"the methods are {', '.join(known)}" + ending(kind, known), *broken_plugins()])
        raise UserError(compose("algorithm.kind", kind, "is not a method I know", remedy))
    preset = expand_preset(kind, mode)
    if kind != written_for:
        layered = adopt_method(layered, preset)
    # Kinds first: a new kind takes the old one's keys away, and must not take away what was set with it.
    for key, value in sorted(changes.items(), key=_names_no_kind):
        layered = merge(layered, _in_full(_nest(key.split("."), value)))
    layered = recipes.absolute_paths(merge(preset, layered), Path.cwd())
    layered = replace_auto(layered)
    try:
        return RunConfig.model_validate(layered)
    except ValidationError as error:
        raise user_error(error, layered, model=RunConfig, elsewhere=alike) from None


def replaced(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> str | None:
    """Return a note where another data.kind takes the recipe's keys of its data away: they were written for a file.

    Other tables lose keys too, but those of a clip or a graph belong to its kind alone.
    """
    table, kind = recipe.get("data"), changes.get("data.kind")
    if not isinstance(table, Mapping) or kind is None or kind == table.get("kind", kind):
        return None
    stay = {"kind", *(key.removeprefix("data.") for key in changes)}
    lost = [key for key, value in table.items() if key not in stay and not isinstance(value, Mapping)]
    if not lost:
        return None
    keys = ", ".join(f"data.{key}" for key in lost)
    return (
        f"data.kind = {short(kind)} replaces the recipe's table [data]; dropped with it: {keys}. "
        "Set those again that should stay."
    )


def _in_full(layer: dict[str, Any]) -> dict[str, Any]:
    """A layer with its short keys written out, before it is laid over another.

    `model = "softmax"` is a model of that kind, `model = "net.py:make"` the user's own code.
    `privacy.noise.kind = "pairwise"` is short for a family of that kind, and so are its options next to it. Layer by
    layer: whichever way a key is written, the later one wins, and a new kind takes no other key away.
    """
    if isinstance(model := layer.get("model"), str):
        layer = {**layer, "model": {"kind": "own", "path": model} if ":" in model else {"kind": model}}
    privacy = _table("privacy", layer.get("privacy", {}))
    noise = _table("privacy.noise", privacy.get("noise", {}))
    if set(noise) <= set(Noise.model_fields):
        return layer
    keys = {"kind", *(field.name for kind in families for field in fields(families[kind]))}  # of any noise
    family = {key: value for key, value in noise.items() if key in keys and key not in Noise.model_fields}
    own = {key: value for key, value in noise.items() if key not in family}
    if family:
        own["family"] = merge(_table("privacy.noise.family", noise.get("family", {})), family)
    return {**layer, "privacy": {**privacy, "noise": own}}


def named(recipe: str | Path | Mapping[str, Any] | RunConfig) -> tuple[str, Mapping[str, Any]]:
    """(what people call it, its tables) of a recipe's name, a TOML file's path, tables, or a whole configuration."""
    if isinstance(recipe, str | Path):
        return str(recipe), recipes.read(str(recipe))
    tables: Any = recipe.model_dump(exclude_none=True) if isinstance(recipe, RunConfig) else recipe
    if isinstance(recipe, RunConfig) and isinstance(recipe.model, Withheld):
        tables["model"] = {"kind": "own"}  # its code would be run: tables do not say that it is withheld
    if not isinstance(tables, Mapping):
        raise UserError(f"{short(tables)} is no configuration; give a recipe's name, a TOML file or a dictionary.")
    return str(tables.get("name", "unnamed")), tables


def adopt_method(recipe: dict[str, Any], preset: dict[str, Any]) -> dict[str, Any]:
    """A recipe under another method: its clip and noise schedule go where the new method has its own.

    The clip's size stays: a constant C̄ and a decaying C_k compare at the same geometric mean, C̄ = C_0 ρ^(−½).
    """
    privacy = dict(_table("privacy", recipe.get("privacy", {})))
    privacy.pop("claim", None)
    old, new = _table("privacy.clip", privacy.get("clip", {})), preset["privacy"].get("clip", {})
    if old.get("kind") != new.get("kind"):
        privacy.pop("clip", None)
        of = {"of": old["of"]} if "of" in old else {}
        if old.get("kind") == "decaying" and new.get("kind") == "constant":
            privacy["clip"] = {"kind": "constant", "bound": old["start"] * old["ratio"] ** -0.5, **of}
        elif old.get("kind") == "constant" and new.get("kind") == "decaying":
            privacy["clip"] = {**new, "start": old["bound"] * new["ratio"] ** 0.5, **of}
    noise = dict(_table("privacy.noise", privacy.get("noise", {})))
    schedule = _table("privacy.noise.schedule", noise.get("schedule", {}))
    if schedule.get("kind") != preset["privacy"].get("noise", {}).get("schedule", {}).get("kind"):
        noise.pop("schedule", None)
    # The step size is every method's key; the others belong to the method the recipe was written for.
    algorithm = _table("algorithm", recipe.get("algorithm", {}))
    options = {**preset["algorithm"], **({"lr": algorithm["lr"]} if "lr" in algorithm else {})}
    return {**recipe, "algorithm": options, "privacy": {**privacy, "noise": noise}}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins. A table that changes its `kind` replaces the old table, whose keys belong to the old kind."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if "kind" in value and value["kind"] != old.get("kind", value["kind"]):
                # The sub-tables of [data] outlive a change of kind.
                old = {k: v for k, v in old.items() if isinstance(v, dict)} if key == "data" else {}
            result[key] = merge(old, value)
        else:
            result[key] = value
        if key in _EITHER_OR:  # saying the one takes back the other
            result.pop(_EITHER_OR[key], None)
    return result


_EITHER_OR = {"rate": "lot", "lot": "rate"}


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`a.b=c` → {"a.b": c}, the value read as TOML and, failing that, as a plain string."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UserError(f"--set {short(text)} must have the form key=value; for example privacy.epsilon=1.")
        try:
            read = tomllib.loads(f"v = {value}")
            # A line break in it would make further keys: such a value is a string.
            changes[key.strip()] = read["v"] if len(read) == 1 else value.strip()
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = value.strip()
        except (RecursionError, ValueError):
            raise UserError(
                f"--set {short(text)} is nested too deeply or has too many digits; give a value that a run can have."
            ) from None
    return changes


def stored(path: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration a run directory holds: complete, so no preset is laid under it.

    Code that it names is not run, unless `changes` name it again.
    """
    return whole(recipes.read_toml(path), str(path), changes)


def whole(tables: dict[str, Any], where: str, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The same of tables that came from `where`."""
    layered = tables
    for key, value in (*layered.items(), *(changes or {}).items()):
        _check_limits(key, value)
    for key, value in (changes or {}).items():
        change = _nest(key.split("."), value)
        as_stored = merge(layered, change) == layered
        layered = merge(layered, change if as_stored else recipes.absolute_paths(change, Path.cwd()))
    try:
        config = RunConfig.model_validate(layered)
    except ValidationError as error:
        raise user_error(error, layered, model=RunConfig, elsewhere=alike, where=where) from None
    if isinstance(config.model, Own) and "model.path" not in (changes or {}):
        return config.model_copy(update={"model": config.model.withheld()})
    return config


MOST_DEPTH, MOST_KEY, MOST_DIGITS = 16, 200, 400  # far more than any configuration has


def _check_limits(key: str, value: Any, depth: int = 0) -> None:
    """Refuse what no option means: tables nested too deep, names too long, numbers too large."""
    depth = max(depth, str(key).count("."))
    if depth > MOST_DEPTH or len(str(key)) > MOST_KEY or not str(key).isprintable():
        raise UserError(f"{short(key)} is no key: too long, nested too deeply, or with a line break; name another.")
    if isinstance(value, int) and value.bit_length() > 3.4 * MOST_DIGITS:
        raise UserError(f"{key} is a number of more than {MOST_DIGITS} digits; give a smaller one.")
    entries = [(key, entry) for entry in value] if isinstance(value, list) else []
    for name, its in value.items() if isinstance(value, dict) else entries:
        _check_limits(name, its, depth + 1)


def _names_no_kind(change: tuple[str, Any]) -> bool:
    key, value = change
    return not (key.rpartition(".")[2] == "kind" or (isinstance(value, dict) and "kind" in value))


def _nest(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f'{key} = {short(value)} must be a table, for example {key}.kind = "…".')
    return value
