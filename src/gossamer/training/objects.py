"""What a Python caller brings as objects, as the configuration says it.

A class of the caller's own becomes a kind of its table for as long as the process lives, so that it passes through the
same door as every other: it is checked, priced, written into config.toml by its name and options. Who goes on with
such a run hands it over again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from gossamer import algorithms as rules
from gossamer.algorithms.base import Exponential
from gossamer.config.algorithm import CONTEXT, algorithms
from gossamer.data.memory import Data
from gossamer.errors import UserError
from gossamer.mechanism.clipping import clips
from gossamer.mechanism.noise import families
from gossamer.models.losses import losses, own_loss
from gossamer.options.registry import Registry
from gossamer.topology.kinds import topologies


@dataclasses.dataclass(frozen=True)
class Objects:
    """What stands in place of parts of the configuration; each is a name, a table, or an object of the caller's."""

    module: Any = None  # a torch module; stays an object
    data: Any = None  # see gossamer.Data; stays an object
    loss: Any = None  # (outputs, targets) → one number for each record
    algorithm: Any = None  # a rule's class, or one with its options
    clip: Any = None
    noise: Any = None
    topology: Any = None

    @property
    def given(self) -> Data | None:
        return None if self.data is None else Data.of(self.data)

    def check_nodes(self, nodes: int) -> None:
        """Does `data` have records for these nodes, where it has each node's apart?"""
        if self.given is not None:
            self.given.check_nodes(nodes)

    def changes(self, *, counted: bool = False) -> dict[str, Any]:
        """The same as changes of the configuration; `counted`: there are as many nodes as a list has parts."""
        found: dict[str, Any] = {}
        if self.module is not None:
            found["model"] = {"kind": "own"}
        if (data := self.given) is not None:
            data.check()
            found["data"] = data.table()
            if counted and isinstance(data.records, list):
                found["nodes"] = data.nodes
        for key, value, table in (
            ("algorithm", self.algorithm, _algorithm),
            ("privacy.clip", self.clip, _of(clips)),
            ("privacy.noise", self.noise, _noise),
            ("topology", self.topology, _of(topologies)),
            ("loss", self.loss, _loss),
        ):
            if value is not None:
                found[key] = _by_name(value) or table(value)
        return found


def _by_name(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        return {"kind": value}
    return dict(value) if isinstance(value, Mapping) else None


def _of(registry: Registry[Any]) -> Callable[[Any], dict[str, Any]]:
    def table(value: Any) -> dict[str, Any]:
        if isinstance(value, type):
            value = _without_options(value, registry.table)
        if type(value) is not registry.kinds.get(getattr(value, "kind", "")):
            registry.adopt(type(value))
        return {"kind": value.kind, **registry.options(value)}

    return table


def _without_options(made: type[Any], table: str) -> Any:
    try:
        return made()
    except TypeError as error:
        raise UserError(
            f"{table} = {made.__name__} needs its options: {error}; hand over an object."
        ) from None


def _noise(value: Any) -> dict[str, Any]:
    return {"family": _of(families)(value)}


def _loss(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value) and callable(value):
        value = own_loss(value)
    return _of(losses)(value)


def _algorithm(value: Any) -> dict[str, Any]:
    made = value if isinstance(value, type) else type(value)
    name = rules.adopt(made)
    algorithms.forget(name)  # a class that was defined anew may have other options
    if made is value:
        return {"kind": name}
    options = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.init and field.name not in CONTEXT
    }
    return {"kind": name, **options, **_step_size(getattr(value, "lr", None))}


def _step_size(lr: Any) -> dict[str, Any]:
    if lr is None:
        return {}
    if isinstance(lr, Exponential):
        return {"lr": {"start": lr.start, "decay": lr.decay, "power": lr.power}}
    if isinstance(lr, int | float):
        return {"lr": float(lr)}
    raise UserError(
        "algorithm.lr is a function, which a configuration cannot hold; give a number, or gossamer.algorithms.base."
        "Exponential(start, decay)."
    )
