"""`gossamer predict` and `gossamer export`: new rows through a trained model, and the model for other programs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gossamer.data.arrays import listed
from gossamer.data.inputs import Inputs
from gossamer.data.tables import Roles, as_records, class_numbers, load_npz, names_of, open_table, yes_or_no
from gossamer.errors import UserError
from gossamer.models.losses import Regression
from gossamer.models.measures import Predictions, key_of, measures_of
from gossamer.results.export import FILES, card, converted, markdown, whose
from gossamer.results.headline import nodes_judged, title, written
from gossamer.results.rundir import finite, make_empty, write_atomically
from gossamer.results.trained import DESCRIPTION, Models, Node
from gossamer.training.load import LoadedRun, load

KINDS = {".csv": "csv", ".parquet": "parquet", ".npz": "npz"}
NOT_KNOWN_PUBLIC = "not private: the file is not known to be public, so no ε covers this figure"


def predict_file(
    run: Path,
    file: Path,
    out: Path,
    *,
    node: Node | None = None,
    module: nn.Module | None = None,
    data_dir: Path | None = None,
) -> dict[str, Any]:
    """Return what `--json` prints: how many rows, what was left out, how good it was where the file says the truth."""
    loaded = load(run, module=module, data_dir=data_dir)
    models = loaded.models
    node = models.whose(node)
    if out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--out {out} is the file with the rows; name another.")
    if run.resolve() in out.resolve().parents:
        raise UserError(f"--out {out} is in the run directory, which holds what was signed; name another place.")
    if not out.parent.is_dir():
        raise UserError(f"--out {out} cannot be written: there is no folder {out.parent}; make it.")
    x, y, unused = _rows(models, file)
    truth = None if y is None else _truth(models, y, file)
    outputs = models.outputs(x, node)
    predicted, chances = models.decide(outputs), models.chances(outputs)
    columns: dict[str, Any] = {"prediction": predicted}
    if models.description.several is not None:
        columns = {f"prediction_{name}": predicted[:, i] for i, name in enumerate(models.description.names)}
    if models.description.task != Regression.name:
        shown, word = (outputs.numpy(), "score") if chances is None else (chances, "probability")
        names = models.description.names if shown.shape[1] > 1 else models.description.names[1:]
        columns |= {f"{word}_{name}": shown[:, i] for i, name in enumerate(names)}
    _write(out, columns)
    result: dict[str, Any] = {
        "run": str(run),
        "node": node,
        "model": whose(node, models.description.nodes, loaded.certificate if loaded.finished else {}),
        "rows": len(predicted),
        "out": str(out),
        "task": models.description.task,
        "columns": list(columns),
        "not_used": unused,
    }
    if truth is None:
        return result
    measured = measures_of(loaded.config.evaluation.measures, models.description.prediction)
    judged = Predictions(models.description.prediction, outputs, torch.as_tensor(truth))
    figures = {key_of(measure): measure.of(judged) for measure in measured}
    public = _is_public(loaded, file, node, *next(iter(figures.items())))
    return (
        result
        | {**figures, "measures": list(figures), "public": public}
        | ({} if public else {"not_private_because": NOT_KNOWN_PUBLIC})
    )


def _rows(models: Models, file: Path) -> tuple[Any, NDArray[Any] | None, list[str]]:
    """(records, what they should be called where the file says it, columns that nothing is done with)."""
    inputs, kind = models.description.inputs, KINDS.get(file.suffix.lower())
    if kind is None:
        raise UserError(f"{file} is of no kind that is read here; give {', '.join(KINDS)}.")
    if not file.is_file():
        raise UserError(f"{file} is no file; give the path of an existing one.")
    return _from_npz(file, inputs) if kind == "npz" else _from_table(kind, file, inputs)


def _from_table(kind: str, file: Path, inputs: Inputs) -> tuple[Any, NDArray[Any] | None, list[str]]:
    if not inputs.columns:
        raise UserError(
            f"the model takes records of shape {inputs.shape} without names of columns; give an .npz file with an "
            "array x."
        )
    table = open_table(kind, file)
    there = table.names
    lacking = [name for name in inputs.columns if name not in there]
    if lacking:
        raise UserError(
            f"{file.name} has no column {listed(lacking)}, which the model was trained on: columns are matched by "
            f"name, and it has {listed(there)}."
        )
    labels = names_of(inputs.label)
    label = inputs.label if labels and all(name in there for name in labels) else None
    records = table.records(Roles(label=label, features=inputs.columns, schema=inputs.schema))
    unused = [name for name in there if name not in (*inputs.columns, *labels)]
    return records.x, None if label is None else records.y, unused


def _from_npz(file: Path, inputs: Inputs) -> tuple[Any, NDArray[Any] | None, list[str]]:
    raw = load_npz(file)
    if inputs.parts is not None and "x" not in raw:
        parts = {str(part.name): raw[str(part.name)] for part in inputs.parts if str(part.name) in raw}
        return inputs.records(parts), raw.get("y"), [name for name in raw if name not in (*parts, "y")]
    x = next((name for name in ("x", "x_test") if name in raw), None)
    if x is None:
        raise UserError(f"{file.name} has no array x or x_test; it has {listed(list(raw))}.")
    y = x.replace("x", "y", 1)
    rows = raw[x] if raw[x].ndim not in (2, 3, 4) or raw[x].dtype.kind not in "iufb" else as_records(raw[x])
    try:
        rows = inputs.records(rows)
    except UserError as error:
        raise UserError(f"{file.name}: {error}") from None
    if y in raw and (raw[y].ndim not in (1, 2) or len(raw[y]) != len(rows)):
        raise UserError(f"{file.name}: {y} has shape {raw[y].shape} where one value per row needs ({len(rows)},).")
    return rows, raw.get(y), [name for name in raw if name not in (x, y)]


def _truth(models: Models, y: NDArray[Any], file: Path) -> NDArray[Any]:
    """Labels as the numbers of their classes, or targets, or several of yes or no."""
    d = models.description
    what = f"{file.name}: {', '.join(names_of(d.inputs.label)) or 'y'}"
    shape = (len(y),) if d.several is None else (len(y), d.several)
    if y.shape != shape:
        raise UserError(f"{what} has shape {y.shape}, and the model predicts {shape}.")
    if d.several is not None:
        return yes_or_no(y, what)
    if d.classes is None:
        if y.dtype.kind not in "iufb":
            raise UserError(f"{what} holds words, and the model predicts numbers.")
        return y.astype(np.float32)
    return class_numbers(
        y, np.asarray(d.names), what, "the classes that the model knows; without them, predictions work"
    )


def _is_public(run: LoadedRun, file: Path, node: Node, name: str, figure: float) -> bool:
    """Only the hold-out that the run itself declared is known to be: by its name, and the figure that it gave then."""
    declared = getattr(run.config.data, "test", None)
    if not isinstance(declared, str) or Path(declared).expanduser().resolve() != file.resolve():
        return False
    row = run.metrics[-1] if run.metrics else {}
    values = row.get(f"{name}_by_node", [])
    # A site of a study has figures of its own model alone.
    nodes = run.models.nodes if len(values) == len(run.models.nodes) else nodes_judged(row, name) or range(len(values))
    by_node = dict(zip(nodes, values, strict=False))
    known = row.get(f"{name}_average_model") if node == "average" else by_node.get(node)
    return known is not None and math.isclose(known, figure, rel_tol=1e-6)


def _write(out: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    table = pa.table({name: pa.array(_cells(values)) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    try:
        write_atomically(out, sink.getvalue().to_pybytes())
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror or error}.") from None


def _cells(values: NDArray[Any]) -> Any:
    """Words that a spreadsheet would run as a formula get an apostrophe, which makes text of them; numbers stay."""
    if values.dtype.kind != "U":
        return values
    return [f"'{word}" if _would_run(word) else word for word in values.tolist()]


def _would_run(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
    return False


def sentences(result: dict[str, Any]) -> list[str]:
    """The same for people, a line each."""
    lines = [f"{result['rows']} rows predicted: {result['out']}", f"model: {result['model']}"]
    if result["not_used"]:
        lines.append(f"columns not used: {listed(result['not_used'])}")
    lines += [f"{title(name)} {written(name, result[name])} on these rows" for name in result.get("measures", ())]
    if "not_private_because" in result:
        lines.append(f"({result['not_private_because']})")
    return lines


def node_of(text: str | None) -> Node | None:
    """`--node`: a number, or average."""
    if text is None:
        return None
    if text == "average":
        return "average"
    if not text.isdecimal() or len(text) > 9:
        raise UserError(f"--node {text} is no node; give its number, or 'average'.")
    return int(text)


def export(
    run: Path,
    out: Path,
    *,
    kind: str = "safetensors",
    node: Node | None = None,
    module: nn.Module | None = None,
) -> dict[str, Any]:
    """The files that were written, and the card. `node` None: the average, or at a site of a study its own model."""
    if kind not in FILES:
        raise UserError(f"--format {kind} is not known; use {', '.join(FILES)}.")
    loaded = load(run, module=module)
    if loaded.finished and loaded.verdict.broken is not None:
        raise UserError(f"{run} does not verify, so its privacy statement goes onto no card: {loaded.verdict.broken}")
    models = loaded.models
    node = models.whose(node)
    content, file = converted(models, node, kind), FILES[kind]  # a mistake shows before anything is made
    make_empty(out)
    try:
        write_atomically(out / file, content)
        known = models.description, loaded.certificate, loaded.manifest
        facts = finite(card(*known, rounds=loaded.config.rounds, node=node, file=file, kind=kind))
        write_atomically(out / DESCRIPTION, models.description.text().encode())
        write_atomically(out / "model_card.json", (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
        write_atomically(out / "MODEL_CARD.md", markdown(facts).encode())
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror or error}.") from None
    return {"out": str(out), "files": [file, DESCRIPTION, "MODEL_CARD.md", "model_card.json"], "card": facts}
