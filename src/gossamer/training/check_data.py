"""`gossamer data check`: a file, or all files of a configuration, beside what was declared of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gossamer.config.layers import named
from gossamer.data.columns import Finding, skeleton
from gossamer.data.load import datasets
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.tables import open_table
from gossamer.errors import UserError

KINDS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
STAYS_HERE = "What is said of values is for whoever holds the records: do not send it on."


def check_data(file: Path, config: str | None, data_dir: Path | None = None) -> dict[str, Any]:
    """What `--json` prints; `file` may be the configuration itself, and then all files that it names are checked."""
    if file.suffix == ".toml":
        if config is not None:
            raise UserError(f"{file} is a configuration, and --config {config} another; name one of the two.")
        source, nodes = _source(str(file))
        paths = _paths(source, nodes, data_dir)
        return {"config": str(file), "files": [_checked(source, path, data_dir) for path in paths]}
    kind = KINDS.get(file.suffix.lower())
    if kind is None:
        raise UserError(
            f"{file} is of no kind that is checked here; give {', '.join(KINDS)}, or a .toml file."
        )
    if not file.is_file():
        raise UserError(f"{file} is no file; give the path of an existing one.")
    if config is None:
        kinds = open_table(kind, file).kinds
        told = {"file": str(file), "findings": [], "types": kinds, "skeleton": skeleton(kinds, [])}
        return {"config": None, "files": [told]}
    source, _ = _source(config)
    if source.kind != kind:
        raise UserError(
            f"{file} is {kind}, and data.kind = {source.kind!r} in {config}; give a file of that kind."
        )
    return {"config": config, "files": [_checked(source, file, data_dir)]}


def _source(config: str) -> tuple[OwnFile, int]:
    """The table [data], and how many nodes there are; the rest may be missing as long as columns are declared."""
    tables = named(config)[1]
    data, unit = datasets.parse(tables.get("data", {})), tables.get("privacy", {}).get("unit")
    if not isinstance(data, OwnFile) or data.kind not in KINDS.values():
        raise UserError(
            f"data.kind = {data.kind!r} in {config} is no table of your own; csv and parquet are checked."
        )
    if isinstance(unit, dict) and "column" in unit:
        data = replace(data, person=unit["column"])
    return data, tables.get("nodes", 1)


def _paths(source: OwnFile, nodes: int, data_dir: Path | None) -> list[Path]:
    """Those that lie here: of a file per node a machine has its own."""
    if not source.file_per_node:
        return [source.file_of(None, data_dir)]
    found = []
    for node in range(nodes):
        try:
            found.append(source.file_of(node, data_dir))
        except UserError:
            continue
    if not found:
        raise UserError(
            f"data.path = {source.path!r} is no file for any of {nodes} nodes: give the path of one"
        )
    return found


def _checked(source: OwnFile, path: Path, data_dir: Path | None) -> dict[str, Any]:
    table = open_table(source.kind, path)
    kinds = table.kinds
    beside = [getattr(source, key, None) for key in ("label", "owner", "person")]
    findings = [] if source.schema is None else table.findings(source.schema)
    if not any(finding.must for finding in findings):
        findings += _as_a_run_reads_it(source, path, data_dir)
    used = [*(source.schema or {}), *beside]
    told: dict[str, Any] = {
        "file": str(path),
        "findings": [asdict(finding) for finding in findings],
        "not_declared": [] if source.schema is None else [name for name in kinds if name not in used],
    }
    return told if source.schema is not None else told | {"types": kinds, "skeleton": skeleton(kinds, beside)}


def _as_a_run_reads_it(source: OwnFile, path: Path, data_dir: Path | None) -> list[Finding]:
    """Labels, owners, persons and the hold-out: by the reader itself, whose sentences name no value."""
    assert PLACE not in str(path)
    try:
        replace(source, path=str(path)).read(data_dir, 0)
    except UserError as error:
        return [Finding("", "", str(error), True)]
    return []


def does_fit(found: dict[str, Any]) -> bool:
    return not any(finding["must"] for its in found["files"] for finding in its["findings"])


def sentences(found: dict[str, Any]) -> list[str]:
    """The same for people, a line each."""
    lines = []
    for its in found["files"]:
        lines += _of_file(its, found["config"])
    declared = any(finding["column"] for its in found["files"] for finding in its["findings"])
    return [*lines, *([STAYS_HERE] if declared else [])]


def _of_file(its: dict[str, Any], config: str | None) -> list[str]:
    name, findings = Path(its["file"]).name, its["findings"]
    if config is None:
        head = f"{name}: {len(its['types'])} columns; nothing is declared of them"
    else:
        musts = sum(finding["must"] for finding in findings)
        head = f"{name} and {config}: " + (f"{musts} to be mended before a run" if musts else "fits")
    wide = max((len(finding["column"]) for finding in findings), default=0)
    shown = [_line(finding, min(wide, 24)) for finding in findings]
    if its.get("not_declared"):
        shown.append(f"  not declared, so left out: {', '.join(its['not_declared'])}")
    if "skeleton" in its:
        shown += ["", *its["skeleton"]]
    return [head, *shown]


def _line(finding: dict[str, Any], wide: int) -> str:
    mark = "✗" if finding["must"] else " "
    if not finding["column"]:
        return f"{mark} {finding['remark']}"
    return f"{mark} {finding['column']:<{wide}}  {finding['kind']:<11}  {finding['remark']}"
