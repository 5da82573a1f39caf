"""The dotted keys and kinds of a configuration as a list, for shells that complete words and for "did you mean".

The schema knows them all but brings torch along, which a word to complete must not wait for: so they are kept in
keys.json. `python -m gossamer.config.keys` writes it, and a test holds it against the schema.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from gossamer.config import recipes

_FILE = Path(__file__).with_suffix(".json")


def kinds_by_table() -> dict[str, list[str]]:
    """Table → its kinds; a table without kinds has none."""
    kinds: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))["kinds"]
    return kinds


def all_keys() -> list[str]:
    keys: list[str] = json.loads(_FILE.read_text(encoding="utf-8"))["keys"]
    return keys


def alike(key: str) -> str | None:
    """The known key that was probably meant by one that is not known: misspelt, or without its table."""
    keys = all_keys()
    tables = {one.rpartition(".")[0] for one in keys} - {""}
    same_end = [one for one in (*keys, *tables) if one.endswith(f".{key}")]
    if same_end:
        return min(same_end, key=len)
    if close := difflib.get_close_matches(key, keys, n=1, cutoff=0.85):
        return close[0]
    if key.rpartition(".")[0] in tables:  # a table that there is has its own keys to choose from
        return None
    ends = {one.rpartition(".")[2]: one for one in sorted(keys, key=len, reverse=True)}
    near = difflib.get_close_matches(key.rpartition(".")[2], ends, n=1, cutoff=0.8)
    return ends[near[0]] if near else None


def from_schema() -> str:
    """Return the content that keys.json must have."""
    from gossamer.config.reference import tables

    keys: set[str] = set()
    kinds: dict[str, list[str]] = {}
    for table in tables():
        dot = f"{table.name}." if table.name else ""
        if table.kinds:
            keys.add(f"{dot}kind")
            kinds[table.name] = sorted(name for kind in table.kinds for name in kind.names)
        for option in (*table.options, *(o for kind in table.kinds for o in kind.options)):
            keys.add(f"{dot}{option.name}")
    return json.dumps({"kinds": kinds, "keys": sorted(keys)}, indent=1) + "\n"


if __name__ == "__main__":
    _FILE.write_text(from_schema(), encoding="utf-8")


def recipe_names(incomplete: str) -> list[str]:
    """Recipes, and TOML files as far as they are typed."""
    folder, _, start = incomplete.rpartition("/")
    there = Path(folder or ("/" if incomplete.startswith("/") else "."))
    files = (path for path in there.glob(f"{start}*") if path.is_dir() or path.suffix == ".toml")
    dot = f"{folder}/" if "/" in incomplete else ""
    paths = [f"{dot}{path.name}{'/' if path.is_dir() else ''}" for path in files if start or path.suffix]
    return [name for name in recipes.names() if name.startswith(incomplete)] + sorted(paths)


def settings(incomplete: str) -> list[str]:
    """`privacy.eps` → `privacy.epsilon=`; `topology.kind=r` → `topology.kind=ring`."""
    key, sign, start = incomplete.partition("=")
    if sign:
        kinds = kinds_by_table().get(key.removesuffix(".kind"), []) if key.endswith(".kind") else []
        return [f"{key}={kind}" for kind in kinds if kind.startswith(start)]
    return [f"{one}=" for one in all_keys() if one.startswith(incomplete)]
