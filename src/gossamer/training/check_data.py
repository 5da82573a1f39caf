"""`gossamer data check`: a file, or all files of a configuration, against what was declared of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gossamer.config.layers import named
from gossamer.data.columns import Finding, skeleton
from gossamer.data.load import datasets
from gossamer.data.own import OwnFile
from gossamer.data.tables import open_table
from gossamer.errors import UserError

KINDS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
STAYS_HERE = "Remarks about values are for the owner of the records: do not send them on."


def check_data(file: Path, config: str | None, data_dir: Path | None = None) -> dict[str, Any]:
    """Return what `--json` prints; of a configuration as `file`, all files that it names are checked."""
    if file.suffix == ".toml":
        if config is not None:
            raise UserError(f"{file} is a configuration, and --config {config} another; name one of the two.")
        source, nodes = _source(str(file))
        paths = _paths(source, nodes, data_dir)
        return {"config": str(file), "files": [_checked(source, path, data_dir) for path in paths]}
    kind = KINDS.get(file.suffix.lower())
    if kind is None:
        raise UserError(f"{file} is of no kind that is checked here; give {', '.join(KINDS)}, or a .toml file.")
    if not file.is_file():
        raise UserError(f"{file} is no file; give the path of an existing one.")
    if config is None:
        kinds = open_table(kind, file).kinds
        checked = {"file": str(file), "findings": [], "types": kinds, "skeleton": skeleton(kinds, [])}
        return {"config": None, "files": [checked]}
    source, _ = _source(config)
    if source.kind != kind:
        raise UserError(f"{file} is {kind}, and data.kind = {source.kind!r} in {config}; give a file of that kind.")
    return {"config": config, "files": [_checked(source, file, data_dir)]}


def _source(config: str) -> tuple[OwnFile, int]:
    """The table [data], and how many nodes there are; the rest may be missing as long as columns are declared."""
    tables = named(config)[1]
    data, unit = datasets.parse(tables.get("data", {})), tables.get("privacy", {}).get("unit")
    if not isinstance(data, OwnFile) or data.kind not in KINDS.values():
        raise UserError(f"data.kind = {data.kind!r} in {config} is no table of your own; csv and parquet are checked.")
    if isinstance(unit, dict) and "column" in unit:
        data = replace(data, person=unit["column"])
    return data, tables.get("nodes", 1)


def _paths(source: OwnFile, nodes: int, data_dir: Path | None) -> list[Path]:
    """Those that lie here: of a file per node a machine has its own."""
    if not source.file_per_node:
        return [source.file_of(None, data_dir)]
    paths = []
    for node in range(nodes):
        try:
            paths.append(source.file_of(node, data_dir))
        except UserError:
            continue
    if not paths:
        raise UserError(f"data.path = {source.path!r} is no file for any of {nodes} nodes; give the path of one")
    return paths


def _checked(source: OwnFile, path: Path, data_dir: Path | None) -> dict[str, Any]:
    table = open_table(source.kind, path)
    kinds = table.kinds
    beside = [getattr(source, key, None) for key in ("label", "owner", "person")]
    findings = [] if source.schema is None else table.findings(source.schema)
    if not any(finding.must for finding in findings):
        try:  # labels, owners, persons and the hold-out: by the reader itself, whose sentences name no value
            replace(source, path=str(path)).read(data_dir, 0)
        except UserError as error:
            findings = [*findings, Finding("", "", str(error), True)]
    used = [*(source.schema or {}), *beside]
    checked: dict[str, Any] = {
        "file": str(path),
        "findings": [asdict(finding) for finding in findings],
        "not_declared": [] if source.schema is None else [name for name in kinds if name not in used],
    }
    return checked | ({} if source.schema is not None else {"types": kinds, "skeleton": skeleton(kinds, beside)})


def does_fit(report: dict[str, Any]) -> bool:
    return not any(finding["must"] for its in report["files"] for finding in its["findings"])


def sentences(report: dict[str, Any]) -> list[str]:
    """The same for people, a line each."""
    lines, config = [], report["config"]
    for its in report["files"]:
        name, findings = Path(its["file"]).name, its["findings"]
        if config is None:
            lines.append(f"{name}: {len(its['types'])} columns; nothing is declared of them")
        else:
            musts = sum(finding["must"] for finding in findings)
            lines.append(f"{name} and {config}: " + (f"{musts} to be fixed before a run" if musts else "fits"))
        width = min(24, max((len(finding["column"]) for finding in findings), default=0))
        for finding in findings:
            column = f"{finding['column']:<{width}}  {finding['kind']:<11}  " if finding["column"] else ""
            lines.append(f"{'✗' if finding['must'] else ' '} {column}{finding['remark']}")
        if its.get("not_declared"):
            lines.append(f"  not declared, so left out: {', '.join(its['not_declared'])}")
        lines += ["", *its["skeleton"]] if "skeleton" in its else []
    declared = any(finding["column"] for its in report["files"] for finding in its["findings"])
    return [*lines, *([STAYS_HERE] if declared else [])]
