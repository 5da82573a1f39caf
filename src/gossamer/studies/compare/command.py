"""`gossamer compare`: a table and a plot of recipes × settings × seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.options.sentences import as_mapping, as_path, whole_number
from gossamer.results.rundir import write_atomically
from gossamer.studies.compare.batch import run_rows
from gossamer.studies.compare.comparison import Comparison, curves_page, epsilon_page
from gossamer.studies.compare.grid import EPSILON, METHOD, Recipe, Row, lay_out, short
from gossamer.studies.compare.table import as_csv, compare_table, curve, show, summarise


def compare(
    recipes: Recipe | Sequence[Recipe],
    changes: Mapping[str, Any] | None = None,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 1,
    baselines: bool = False,
    out: Path | str | None = None,
    jobs: int | None = None,
    engine: str = "local",
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = True,
) -> Comparison:
    """Runs side by side: every recipe with every value of `over`, `seeds` times each.

    `gossamer.compare("quickstart", {"rounds": 50}, over={"algorithm.kind": ["dyn-d2p", "dp-dsgd"]}, seeds=3)`. Recipes
    are names, TOML files, dictionaries or configurations. What is finished in the folder `out` is not run again; table
    and plot are written there. `engine`: "local" or "dask:ADDRESS" (docs/cluster.md). `quiet`: progress goes to stderr.
    """
    several: list[Any] = list(recipes) if isinstance(recipes, list | tuple | set) else [recipes]
    if not several:
        raise UserError(f"recipes = {recipes!r} is empty; name at least one recipe.")
    seeds = whole_number("seeds", seeds)
    changes, data_dir = as_mapping("changes", changes), as_path("data_dir", data_dir)
    rows = lay_out(several, sets=changes, overs=as_mapping("over", over), seeds=seeds, baselines=baselines)
    out = as_path("out", out) or default_folder([row.recipe for row in rows], rows)
    batch = run_rows(rows, out, jobs=jobs, engine=engine, data_dir=data_dir, force=force, quiet=quiet)
    figures = [
        {
            "recipe": row.recipe,
            "settings": row.settings,
            "baseline": row.baseline,
            **summarise(results),
            "cells": [r["cell"] for r in results],
        }
        for row, results in zip(rows, batch.results, strict=True)
    ]
    table = compare_table(figures)
    write_atomically(out / "table.csv", as_csv([_flat(figure) for figure in figures]).encode())
    write_atomically(out / "table.md", table.markdown().encode())
    swept = any(EPSILON in row.settings for row in rows)
    labels = _labels(rows, without_epsilon=swept)
    page = (
        epsilon_page(figures, labels, table)
        if swept
        else curves_page([curve(results) for results in batch.results], figures, labels, table)
    )
    write_atomically(out / "plot.html", page.html().encode())
    result = {
        "rows": figures,
        "caption": list(table.caption),
        **batch.summary,
        "table": str(out / "table.csv"),
        "plot": str(out / "plot.html"),
    }
    return Comparison(result, table, page)


def show_comparison(found: Comparison, *, quiet: bool) -> None:
    """The table on the terminal, and where the files are; all of it on stderr where `quiet`."""
    from gossamer.results.certificate import account
    from gossamer.results.terminal import terminal

    console, out = terminal(to_stderr=quiet), found.directory
    show(found.table, quiet=quiet)
    for line in account(found.result["budget"]):
        console.print(line, soft_wrap=True)
    console.print(f"in {out}: table.csv, table.md, plot.html", soft_wrap=True)


def default_folder(names: Sequence[str], rows: Sequence[Row]) -> Path:
    """The same command finds its own folder again, and so continues where it stopped."""
    digest = hashlib.sha256("".join(cell.name for row in rows for cell in row.cells).encode()).hexdigest()[:8]
    readable = "-".join(
        Path(name).stem if name.endswith(".toml") else name.replace("/", "-") for name in dict.fromkeys(names)
    )
    return Path("runs") / f"compare-{readable[:60]}-{digest}"


def _labels(rows: Sequence[Row], *, without_epsilon: bool) -> list[str]:
    """A row's name in the plot: only what tells it from the others."""
    several = len({row.recipe for row in rows}) > 1
    labels = []
    for row in rows:
        settings = {k: v for k, v in row.settings.items() if not (without_epsilon and k == EPSILON)}
        own = Row("", settings, row.baseline, ()).label.removeprefix(", ")
        own = own.replace(f"{short(METHOD)}=", "")
        labels.append(", ".join(filter(None, [row.recipe if several or not own else "", own])))
    return labels


def _flat(figure: dict[str, Any]) -> dict[str, Any]:
    """One CSV line: settings as columns of their own, the cells' names joined."""
    flat = {key: value for key, value in figure.items() if key not in ("settings", "cells")}
    return {"recipe": flat.pop("recipe"), **figure["settings"], **flat, "cells": " ".join(figure["cells"])}
