"""A paper's table of lower bounds, at a size that fits into a test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gossamer.studies.reproduce.command import reproduce
from gossamer.studies.reproduce.paper_table import paper_cells, read

TINY = """
title = "Lower bounds"
paper = "A paper"
recipe = "dp-consensus/membership"
set = { data.kind = "digits", data.train_rows = 150, rounds = 2, model.kind = "softmax", privacy.noise.source = "seeded" }

[audit]
canary = "blank"
observer = "final"
confidence = 0.95
runs = { small = 16, full = 80 }

[[grid]]
source = "Table 9"
rows = "method"
columns = "figure"
cells = '''
        | ε lower bound
Central | 0.230
DP-DSGD | 0.173
'''

[scale.full]
seeds = 1

[scale.small]
seeds = 1
cut = ["40 of 80 trainings"]

[[rule]]
only = "paper"

[[rule]]
where = { method = "Central" }
set = { baseline = "central", weighting = "size" }
"""


@pytest.mark.slow
def test_a_table_of_audits_stands_beside_the_papers_and_continues(tmp_path: Path) -> None:
    definition = tmp_path / "tiny.toml"
    definition.write_text(TINY)
    found = reproduce(str(definition), scale="small", out=tmp_path / "out", quiet=True)
    assert [row["paper"] for row in found["rows"]] == [0.230, 0.173]
    assert all(row["audit"]["runs"] == 16 and not row["violation"] for row in found["rows"])
    text = (tmp_path / "out" / "table.md").read_text()
    for part in ("0.173", "40 of 80 trainings", "0.95 confidence", "δ = 0.01", "records/s"):
        assert part in text
    scores = sorted((tmp_path / "out" / "cells").glob("*/scores.jsonl"))
    before = [path.read_text() for path in scores]
    again = reproduce(str(definition), scale="small", out=tmp_path / "out", quiet=True)
    assert [path.read_text() for path in scores] == before
    assert json.dumps([r["audit"]["bounds"] for r in again["rows"]]) == json.dumps(
        [r["audit"]["bounds"] for r in found["rows"]]
    )


def test_table_5_is_the_papers_setting() -> None:
    definition = read("dp-consensus/table5")
    assert definition.audit is not None
    assert definition.audit.runs["full"] == 10_000
    printed = {cell.labels["method"]: cell.mean for cell in paper_cells(definition, "full", runs=False)}
    assert printed == {"Central": 0.230, "DP-DSGD": 0.173, "DP-DSGT": 0.129, "DP-DiNNO": 0.165}
