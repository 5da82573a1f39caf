"""The health insurance experiment: known counts, persons on one side of the split, columns as declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.data import decode, public
from gossamer.data.load import load
from gossamer.data.origins import CheckedCopy

ROW = dict.fromkeys(decode.HIE_COLUMNS, "0")


def written(path: Path, *rows: dict[str, str]) -> Path:
    lines = [",".join(decode.HIE_COLUMNS), *(",".join({**ROW, **row}.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def test_a_table_becomes_whole_numbers(tmp_path: Path) -> None:
    raw = decode.rand_hie(written(tmp_path / "t.csv", {"xage": "0.0136893", "ghindx": ""}, {"mdvis": "7"}))
    assert raw["y_train"].tolist() == [0, 7]
    assert raw["x_train"][0, decode.HIE_COLUMNS.index("xage")] == 136893
    assert raw["x_train"][0, decode.HIE_COLUMNS.index("ghindx")] == np.iinfo(np.int64).min


def test_persons_sites_and_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"zper": str(100 + i // 3), "site": str(1 + i // 15), "mdvis": str(i % 5), "coins": "25", "num": "8"}
        for i in range(30)
    ]
    rows[4]["ghindx"] = ""
    table = decode.rand_hie(written(tmp_path / "t.csv", *rows))
    monkeypatch.setattr(public.RandHie, "published", lambda self, _: CheckedCopy(table, "", "", None))
    data = public.RandHie().read(None, 0)
    assert data.person is not None
    assert data.owner is not None
    assert len(data.y_train) == 24  # eight of ten persons
    assert len(data.y_test) == 6
    assert set(data.owner.tolist()) == {0, 1}
    assert np.bincount(data.person - 100)[np.unique(data.person - 100)].tolist() == [3] * 8
    both = np.vstack([data.x_train, data.x_test])
    at = {name: i for i, name in enumerate(data.columns)}
    assert both[:, at["coins=25"]].tolist() == [1] * 30
    assert both[:, at["num"]].tolist() == [0.5] * 30
    assert both[:, at["ghindx missing"]].sum() == 1
    visits = public.RandHie(outcome="visits").read(None, 0)
    assert sorted([*visits.y_train, *visits.y_test]) == sorted([i % 5 for i in range(30)])
    assert visits.classes is None


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ",".join(decode.HIE_COLUMNS) + "\n1,2\n"])
def test_another_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match="its "):
        decode.rand_hie(tmp_path / "t.csv")


@pytest.mark.data
def test_the_published_counts() -> None:
    """Of statsmodels' description and of Cameron and Trivedi, Microeconometrics, chapter 16."""
    data = load("rand-hie")
    assert (len(data.y_train), len(data.y_test)) == public.RandHie.facts.rows
    assert len(data.y_train) + len(data.y_test) == 20_190
    assert data.person is not None
    assert data.owner is not None
    assert len(np.unique(data.person)) == 5_912 - 5_912 // 5
    assert data.x_train.shape[1] == len(data.columns) == len(public.HIE_NUMBERS)
    visits = load("rand-hie", outcome="visits")
    assert np.concatenate([visits.y_train, visits.y_test]).mean() == pytest.approx(2.860426, abs=1e-6)
    for person in np.unique(data.person)[:50]:
        assert len(np.unique(data.owner[data.person == person])) == 1
