"""Recorded cells run again from their result files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import assert_names

from gossamer.studies import papers
from reproductions import __main__ as book
from reproductions.known import as_today, config_of
from reproductions.record import read_record

SMALL = [
    ("dp-dkm/figure1", "Laplace, ε = 0.5, δ = 1e-3", "sound"),
    ("dp-dkm/figure2", "ℓ1 least squares, ADMM, truncated Laplace, complete", "paper"),
    ("dp-dkm/figure3", "truncated Laplace, M = 10", "sound"),
]
ITEMS = sorted(file.relative_to(book.RESULTS).with_suffix("").as_posix() for file in book.RESULTS.rglob("*.json"))


@pytest.mark.parametrize(
    ("item", "cell", "mode", "seeds"),
    [(*SMALL[0], [0]), *(pytest.param(*case, [0, 7], marks=pytest.mark.slow) for case in SMALL)],
)
def test_a_small_cell_lies_where_its_file_says(
    item: str,
    cell: str,
    mode: str,
    seeds: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    def no_definition(name: str) -> None:
        raise AssertionError(f"the definition of {name} was read")

    monkeypatch.setattr(papers, "read", no_definition)
    words = [
        "replay",
        item,
        cell,
        "--mode",
        mode,
        "--seeds",
        *map(str, seeds),
        "--out",
        str(tmp_path / "again"),
    ]
    assert book.main([*words, "--jobs", "1", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (replayed["seeds"], len(replayed["values"]), replayed["failed"]) == (seeds, len(seeds), {})


@pytest.mark.parametrize("item", [item for item in ITEMS if not item.startswith(("frontier/", "text/"))])
def test_every_recorded_cell_is_a_configuration_by_itself(item: str) -> None:
    file = read_record(book.RESULTS, item)
    for cell in file["cells"]:
        for figures in cell["modes"].values():
            settings = {**file["settings"], **figures["settings"]}
            config = config_of({**settings, "seed": figures["seeds"][0]})
            assert config.seed == figures["seeds"][0]
            assert all(key not in as_today(settings) for key, value in settings.items() if value is None)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["dp-dkm/figure3", "no such cell"], ["'no such cell'"]),
        (["dp-dkm/figure3", "truncated Laplace, M = 10"], "--mode paper sound"),
        (["frontier/table", "any"], ["frontier", "replay"]),
    ],
)
def test_a_cell_that_cannot_be_replayed_is_refused(words: list[str], names: Any, capsys: Any) -> None:
    assert book.main(["replay", *words]) == 2
    assert_names(capsys.readouterr().err, names=names)
