"""Words that a shell can complete: recipes, keys of --set with the kinds that they take, tables, data sets.

Asked for at every press of a key, so nothing here may load torch.
"""

from __future__ import annotations

from pathlib import Path

from gossamer.config import keys, recipes


def recipe_names(incomplete: str) -> list[str]:
    """Recipes, and TOML files as far as they are typed."""
    folder, _, start = incomplete.rpartition("/")
    there = Path(folder or ("/" if incomplete.startswith("/") else "."))
    files = (path for path in there.glob(f"{start}*") if path.is_dir() or path.suffix == ".toml")
    dot = f"{folder}/" if "/" in incomplete else ""
    found = [f"{dot}{path.name}{'/' if path.is_dir() else ''}" for path in files if start or path.suffix]
    return [name for name in recipes.names() if name.startswith(incomplete)] + sorted(found)


def settings(incomplete: str) -> list[str]:
    """`privacy.eps` → `privacy.epsilon=`; `topology.kind=r` → `topology.kind=ring`."""
    key, sign, start = incomplete.partition("=")
    if sign:
        kinds = keys.kinds_by_table().get(key.removesuffix(".kind"), []) if key.endswith(".kind") else []
        return [f"{key}={kind}" for kind in kinds if kind.startswith(start)]
    return [f"{one}=" for one in keys.all_keys() if one.startswith(incomplete)]
