"""Lists with an entry per node, in the JSON files and outputs of a run with many nodes: what is alike is written once.

A list of more than `MANY` entries of which most repeat others stands there as `{"values": […], "of": [[first, last,
which], …]}` (accounting/runs.py); `"numbered": true` where every entry said its own place under `node`. Whoever reads
a file through `files.read_object` gets the list, so digests and comparisons know nothing of it. A list whose entries
are all different, as the digests of models are, stays one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gossamer.accounting.runs import MOST_NODES, packed, spread

MANY = 1000  # entries: up to here a list is a list


def pack(content: Mapping[str, Any]) -> dict[str, Any]:
    """Of an object, the lists among its values."""
    return {key: _packed(value) if isinstance(value, list) else value for key, value in content.items()}


def unpack(content: Mapping[str, Any]) -> dict[str, Any]:
    """What `pack` was given; a ValueError where nothing can have been."""
    return {key: _unpacked(value) if _is_packed(value) else value for key, value in content.items()}


def _packed(values: list[Any]) -> Any:
    if len(values) <= MANY:
        return values
    numbered = all(isinstance(one, dict) and one.get("node") == i for i, one in enumerate(values))
    kept = [{k: v for k, v in one.items() if k != "node"} for one in values] if numbered else values
    said = packed(kept, lambda one: json.dumps(one, sort_keys=True))
    if len(said["values"]) > len(values) // 2:
        return values
    return {**said, **({"numbered": True} if numbered else {})}


def _is_packed(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() - {"numbered"} == {"values", "of"}


def _unpacked(said: dict[str, Any]) -> list[Any]:
    runs = said["of"]
    ends = runs[-1] if isinstance(runs, list) and runs else None
    last = ends[1] if isinstance(ends, list) and len(ends) == 3 else None
    if type(last) is not int or not MANY <= last < MOST_NODES:
        raise ValueError("its 'of' is not a list of runs")
    values = spread(said, range(last + 1))
    return (
        [{"node": i, **one} | {"node": i} for i, one in enumerate(values)] if said.get("numbered") else values
    )
