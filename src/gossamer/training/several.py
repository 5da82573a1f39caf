"""What the processes of a run must have in common before it begins, and who of them is on which machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gossamer
from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.kernels.stack import fixed_digest
from gossamer.models.networks import Own
from gossamer.runtime.group import Group
from gossamer.topology.kinds import Matrix
from gossamer.training.assemble import Parts


def nodes_here(group: Group) -> list[int]:
    """Those whose ledgers lie on this machine."""
    return [node for nodes in blocks_here(group) for node in nodes]


def blocks_here(group: Group) -> list[range]:
    """What each process of this machine hosts."""
    machines = group.join([group.machine])
    return [nodes for nodes, one in zip(group.blocks, machines, strict=True) if one == group.machine]


def require_same_everywhere(parts: Parts, group: Group) -> None:
    """Processes with different settings would wait for each other's messages, or misread them."""
    o = parts.plan
    if group.spread and o.privacy.copies > 1:
        sites = o.config.privacy.max_sites
        reason = (
            f"privacy.unit.max_sites = {sites} has the same person"
            if sites > 1
            else f"data.partition.kind = {o.config.data.partition.kind!r} puts copies of a record"
        )
        raise UserError(
            f"{reason} on several nodes, whose releases are priced together, and their ledgers would lie on several "
            "machines; use one machine, or have each record or person on one node."
        )
    own = o.config.data.own
    # Names and order of the columns, and what was declared of them: weights that mean other columns elsewhere learn
    # nothing, and nobody is told.
    schema = datasets.options(o.config.data).get("columns") if own else None
    names = json.dumps([parts.dataset.columns, *([schema] if schema else [])])
    columns = hashlib.sha256(names.encode()).hexdigest()
    here = (
        digest(_without_folders(o.asked), without={"runtime", "data"} if own else {"runtime"}),
        hashlib.sha256(f"{o.stack.dim} {fixed_digest(o.module)}".encode()).hexdigest(),
        gossamer.__version__,
        # Of records that are public; a digest of private ones would let everyone test guesses of them.
        None if own else parts.dataset.provenance.get("sha256"),
        columns,
    )
    everywhere = group.join([here])
    for rank, other in enumerate(everywhere):
        for name, first, theirs in zip(
            ("configuration", "model", "version", "data set", "columns"), everywhere[0], other, strict=True
        ):
            if first != theirs and name == "columns":
                raise UserError(
                    f"rank {rank} has other names, another order or another declaration of columns than rank 0; name "
                    "them in data.features or data.columns, the same on all ranks."
                )
            if first != theirs:
                what = _different_keys(o.asked, own, group, rank) if name == "configuration" else name
                raise UserError(f"rank {rank} has another {what} than rank 0; give all ranks the same.")


def _different_keys(config: RunConfig, own: bool, group: Group, rank: int) -> str:
    """The dotted keys in which that rank's configuration is another than the first's; all ranks ask for this at once.

    Only digests travel, and none of what is a host's own: the values stay where they are.
    """
    content = _without_folders(config).model_dump(
        mode="json", exclude={"runtime", "data"} if own else {"runtime"}
    )
    here = sorted([key, _digest_of([key, value])] for key, value in _flat(content))
    digests = [dict(one) for one in group.join([here])]
    first, other = digests[0], digests[rank] if rank < len(digests) else {}
    keys = sorted(key for key in first.keys() | other.keys() if first.get(key) != other.get(key))
    if not keys:
        return "configuration"
    more = f" (and {len(keys) - 3} more keys)" if len(keys) > 3 else ""
    return f"{', '.join(keys[:3])}{more}"


def _without_folders(config: RunConfig) -> RunConfig:
    """Where a host keeps its files is its own affair."""
    update: dict[str, Any] = {}
    if isinstance(config.model, Own) and config.model.path is not None:
        update["model"] = replace(config.model, path=Path(config.model.path).name)
    if isinstance(config.topology, Matrix) and isinstance(config.topology.matrix, str):
        update["topology"] = replace(config.topology, matrix=Path(config.topology.matrix).name)
    return config.model_copy(update=update)


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest(config: RunConfig, *, without: set[str]) -> str:
    content = json.dumps(config.model_dump(exclude=without), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
