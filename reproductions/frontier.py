"""The frontier: the best accuracy at a proven ε, next to what papers report at theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gossamer.accounting.recompute import worst_epsilon
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.recipes import read_toml
from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.rundir import write_atomically
from gossamer.results.terminal import Table, as_csv, terminal
from gossamer.studies.cells import Cell, Row, cells, run_rows
from gossamer.studies.compare import proven_text, quality_text, summarise
from gossamer.studies.reproduce import Strict, validated
from reproductions.accuracy_plot import accuracy_plot
from reproductions.frontier_record import Place, Shown, known_shown, shown_of, write_cells
from reproductions.known import finished_rows

Scale = Literal["small", "full"]
DEFINITIONS = Path(__file__).parent / "definitions"


class Printed(Strict):
    """What a paper prints for the budgets of a block, and the run whose noise it stands for."""

    paper: str
    values: list[str]
    recipe: str | None = None  # its claimed and proven ε are computed from this, in paper mode
    set: dict[str, Any] = {}
    because: str | None = None  # why nothing is proven, where there is no recipe


class Variant(Strict):
    """A recipe with changes of its own: a baseline, another noise."""

    recipe: str
    set: dict[str, Any] = {}


class Block(Strict):
    """One experiment: the same data, nodes and budgets, with different features or noise under the same method."""

    title: str
    budgets: Annotated[list[float], Field(min_length=1)]
    recipes: dict[str, str | Variant]  # column → recipe
    set: dict[str, Any] = {}
    printed: Printed | None = None


class Frontier(Strict):
    layout: Literal["frontier"]
    title: str
    seeds: dict[Scale, Annotated[int, Field(ge=1)]]
    unit: str = UNIT
    notes: list[str] = []
    columns: list[str] = []  # those that stand first, in order; the rest as blocks name them
    block: list[Block]


def names() -> list[str]:
    return sorted(path.relative_to(DEFINITIONS).with_suffix("").as_posix() for path in DEFINITIONS.rglob("*.toml"))


def is_frontier(name: str) -> bool:
    return name in names() or (name.endswith(".toml") and read_toml(Path(name)).get("layout") == "frontier")


def read(name: str) -> Frontier:
    file = Path(name) if name.endswith(".toml") else DEFINITIONS / f"{name}.toml"
    definition = validated(Frontier, read_toml(file), name)
    for block in definition.block:
        if block.printed and len(block.printed.values) != len(block.budgets):
            raise UserError(
                f"{name}: {block.title} has {len(block.budgets)} budgets but {len(block.printed.values)} values."
            )
    return definition


def run_frontier(
    name: str,
    *,
    scale: str,
    out: Path | None,
    jobs: int | None,
    engine: str,
    data_dir: Path | None,
    quiet: bool,
    force: bool = False,
    into: Path | None = None,
    as_is: bool = False,
    results: Path | None = None,
) -> dict[str, Any]:
    """Run what is missing (nothing, if `as_is`), write tables and plots, and return what `--json` prints.

    `results` is the folder for the table's result file: cells in there are not run again.
    """
    size: Scale = "small" if scale == "small" else "full"
    definition = read(name)
    if into is not None:
        _marked(into, name)  # a file without the place for it shows now
    named = (column for block in definition.block for column in block.recipes)
    columns = list(dict.fromkeys([*definition.columns, *named]))
    wanted: dict[Place, Sequence[Cell]] = {}
    for block in definition.block:
        for column, recipe in block.recipes.items():
            for epsilon in block.budgets:
                label = f"{block.title}, {column}, ε = {epsilon:g}"
                chosen = Variant(recipe=recipe) if isinstance(recipe, str) else recipe
                changes = {**block.set, **chosen.set, "privacy.epsilon": epsilon}
                runs = cells(recipes.read(chosen.recipe), changes, label, definition.seeds[size])
                wanted[block.title, epsilon, column] = runs
    known = known_shown(results, name, wanted) if results is not None else None
    if known is not None:
        known.announce(as_is=as_is, quiet=quiet)
    shown = shown_of(known) if known else {}
    missing = [place for place in wanted if place not in shown]
    rows = [Row(wanted[place][0].label, {}, None, tuple(wanted[place])) for place in missing]
    folder = out or Path("runs") / f"reproduce-{name.replace('/', '-')}-{size}"
    batch = (
        finished_rows(rows, folder)
        if as_is
        else run_rows(rows, folder, jobs=jobs, engine=engine, data_dir=data_dir, force=force, quiet=quiet)
    )
    for place, own in zip(missing, batch.results, strict=True):
        shown[place] = _shown(folder, own)
    figures = [
        {
            "experiment": block.title,
            "epsilon": epsilon,
            "columns": {c: own[c].row for c in columns if c in own},
            "observers": {c: one.observers for c, one in own.items()},
            "without_noise": [c for c, one in own.items() if one.without_noise],
            "replace_one": max((one.replace_one for one in own.values() if one.replace_one), default=None),
            "paper": _paper(block.printed, k, epsilon, data_dir, force=force),
        }
        for block in definition.block
        for k, epsilon in enumerate(block.budgets)
        for own in [{c: shown[block.title, epsilon, c] for c in block.recipes}]
    ]
    table = frontier_table(definition, figures, columns)
    write_atomically(folder / "table.csv", as_csv([_flat(figure) for figure in figures]).encode())
    write_atomically(folder / "table.md", f"## {definition.title}\n\n{table.markdown()}".encode())
    for number, block in enumerate(definition.block):
        drawn = accuracy_plot(block.title, figures_of(figures, block.title))
        if drawn is not None:
            write_atomically(folder / f"plot-{number + 1}.svg", drawn.encode())
    if results is not None and known is not None and not batch.failed:
        known.refuse_changed()
        write_cells(results, name, definition.title, wanted, shown)
    if into is not None and not batch.failed:
        before, after = _marked(into, name)
        write_atomically(into, f"{before}{table.markdown()}{after}".encode())
    table.show(terminal(to_stderr=quiet))
    lost = {"anew": known.anew, "gone": known.gone} if known else {}
    return {"table": name, "scale": size, "rows": figures, **batch.summary, **lost}


def figures_of(figures: Sequence[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    return [figure for figure in figures if figure["experiment"] == title]


def frontier_table(definition: Frontier, figures: Sequence[dict[str, Any]], columns: Sequence[str]) -> Table:
    printed = any(block.printed for block in definition.block)  # else nothing stands beside ours
    body = []
    for figure in figures:
        own, paper = figure["columns"], figure["paper"]
        run = [row for column, row in own.items() if row["seeds"] and column not in figure["without_noise"]]
        worst = max(run, key=lambda row: row["epsilon_proven"] or float("inf"), default=None)
        proof = epsilon_text(paper["proven"]) if paper["proven"] else paper["because"] or "—"
        body.append(
            (
                figure["experiment"],
                *(quality_text(own[c]) if c in own else "—" for c in columns),
                *((proven_text(worst), f"{worst['delta']:.3g}") if worst else ("—", "—")),
                *((paper["printed"] or "—", proof) if printed else (epsilon_text(figure["replace_one"]),)),
            )
        )
    counts = sorted({row["seeds"] for f in figures for row in f["columns"].values() if row["seeds"]})
    seeds = "–".join(map(str, sorted({counts[0], counts[-1]}))) if counts else "0"
    replaced = _replaced(figures) if printed else "beside it that of the same noise for replace-one"
    caption = [
        f"{definition.title}. Test accuracy in per cent: mean over nodes, mean ± standard deviation over "
        f"{seeds} seeds of noise, start and graph; nodes × records.",
        f"Proven ε: add-remove; unit: {definition.unit}; {_observers(figures)}; {replaced}.",
        *(f"{paper}." for paper in dict.fromkeys(b.printed.paper for b in definition.block if b.printed)),
        *definition.notes,
    ]
    beside = ("paper", "its noise proves") if printed else ("replace-one",)
    return Table(("experiment", *columns, "proven ε", "δ", *beside), tuple(body), tuple(caption))


def _replaced(figures: Sequence[dict[str, Any]]) -> str:
    """The ε of the same noise for replace-one in a sentence: with a paper beside ours a column is too many."""
    found = {
        f"{epsilon_text(figure['replace_one'])} at {epsilon_text(row['epsilon_proven'])} (δ = {row['delta']:.3g})"
        for figure in figures
        for column, row in figure["columns"].items()
        if figure["replace_one"] and row["seeds"] and column not in figure["without_noise"]
    }
    return "that of the same noise for replace-one: " + (", ".join(sorted(found, key=_number)) or "none")


def _number(text: str) -> float:
    return float(text.split(maxsplit=1)[0])


def _without_noise(result: dict[str, Any]) -> bool:
    """Was the run there to show what no privacy would reach?"""
    return bool(result["baseline"] == "non-private")


def _observers(figures: Sequence[dict[str, Any]]) -> str:
    """Whom the ε holds against: the same in all columns, or said of each."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        for column, names in figure["observers"].items():
            for name in names:
                columns = found.setdefault(name, [])
                columns += [column] if column not in columns else []
    if len(found) <= 1:
        return f"observer: {next(iter(found), OBSERVER)}"
    return "; ".join(f"observer of {', '.join(columns)}: {name}" for name, columns in found.items())


def _shown(folder: Path, results: Sequence[dict[str, Any]]) -> Shown:
    noisy = [result for result in results if not _without_noise(result)]
    return Shown(
        summarise(results),
        sorted({result["observer"] for result in noisy}),
        len(noisy) < len(results),
        _replace_one(folder, noisy),
    )


def _replace_one(folder: Path, results: Sequence[dict[str, Any]]) -> float | None:
    """What the same releases prove where one record is replaced by another."""
    found = [worst_epsilon([folder / "cells" / result["cell"]], "replace-one") for result in results]
    return max(found) if found and max(found) < float("inf") else None


def _paper(printed: Printed | None, k: int, epsilon: float, data_dir: Path | None, *, force: bool) -> dict[str, Any]:
    if printed is None:
        return {"printed": None, "claimed": None, "proven": None, "because": None}
    figure = {"printed": printed.values[k], "claimed": epsilon, "proven": None, "because": printed.because}
    if printed.recipe is None:
        return figure
    from gossamer.training.plan import Plan

    changes = {**printed.set, "mode": "paper", "privacy.epsilon": epsilon}
    config = resolve(recipes.read(printed.recipe), changes)
    plan = Plan.of(config, data_dir=data_dir, force=force).privacy.figures()
    return {**figure, "claimed": plan["epsilon_claimed"], "proven": plan["epsilon_proven"]}


def _marked(path: Path, name: str) -> tuple[str, str]:
    """What stands before and after the table's place in a file."""
    mark, end = f"<!-- {name} -->\n", "<!-- end -->"
    try:
        before, found, rest = path.read_text(encoding="utf-8").partition(mark)
    except OSError as error:
        raise UserError(f"--into {path} cannot be read: {error.strerror}.") from None
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise UserError(f"--into {path} has no lines '{mark.strip()}' and '{end}' for the table to stand between.")
    return before + mark, end + after


def _flat(figure: dict[str, Any]) -> dict[str, Any]:
    """One CSV line."""
    flat = {"experiment": figure["experiment"], "epsilon": figure["epsilon"]}
    for column, row in figure["columns"].items():
        flat |= {f"{column}_{key}": row[key] for key in _SHOWN}
    return {
        **flat,
        "replace_one": figure["replace_one"],
        **{f"paper_{k}": v for k, v in figure["paper"].items()},
    }


_SHOWN = (
    "accuracy_mean", "accuracy_std", "worst_node_mean", "consensus_distance_mean", "epsilon_proven", "delta",
    "adjacency", "seeds", "seconds_mean",
)  # fmt: skip
