"""What a reader of the figures must know: each note where its cause is, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.configurations import configured
from tests.support.without_replacement import DIGITS

from gossamer.algorithms import RULES
from gossamer.algorithms.dsgd import DSGD
from gossamer.mechanism.clipping import ConstantClip, clips
from gossamer.methods import method_of
from gossamer.training.plan import notes_of

OWN: dict[str, Any] = {"kind": "csv", "path": "records.csv", "label": "y", "classes": 2}
NOTES: list[tuple[str, dict[str, Any], str]] = [
    ("quickstart", {"privacy__runs": 3}, "One of 3 runs that share the budget"),
    ("quickstart", {"privacy__clip": {"kind": "assumed", "bound": 1.0}}, "The gradient bound is believed, not enforced"),
    ("dp-dkm/lasso", {"mode": "paper"}, "The bound on the residual is assumed"),
    ("quickstart", {"data__partition": {"kind": "label-split", "t": 0.5}}, "Labels are split over nodes"),
    ("quickstart", {"privacy__sampling": {"kind": "fixed-size", "lot": 5}}, "Fixed-size sampling uses the exact number"),
    ("quickstart", {"privacy__sampling": {"kind": "single"}}, "Fixed-size sampling uses the exact number"),
    ("quickstart", {"data": OWN}, "The rows were dealt out from one file"),
    ("quickstart", {"data__partition": {"kind": "sampled", "size": 9}}, "A record may lie on up to 8 nodes"),
]  # fmt: skip


def notes(recipe: Any, **changes: Any) -> list[str]:
    config = configured(recipe, **changes)
    return [*method_of(config).notes(), *notes_of(config)]


@pytest.mark.parametrize(("recipe", "changes", "says"), NOTES)
def test_a_note_stands_where_its_cause_is(recipe: str, changes: dict[str, Any], says: str) -> None:
    assert any(note.startswith(says) for note in notes(recipe, **changes))


def test_a_plain_run_has_none_and_an_owner_needs_no_word_about_dealing() -> None:
    assert notes("quickstart") == []
    assert notes("quickstart", data={**OWN, "owner": "site"}) == []
    assert notes("quickstart", data={**OWN, "path": "site-{node}.csv"}) == []


def test_a_method_has_notes_of_its_own() -> None:
    config = configured(DIGITS, mode="paper", algorithm__observes="raw", privacy__runs=2)
    assert any("raw losses" in note for note in method_of(config).notes())
    assert "runs that share the budget" in notes_of(config)[-1]


def test_parts_of_others_are_named_with_what_rests_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Foreign(ConstantClip):
        pass

    class Method(DSGD):
        pass

    monkeypatch.setattr(Foreign, "__module__", "my_parts.clips")
    monkeypatch.setattr(Method, "__module__", "__main__")
    monkeypatch.setitem(clips._kinds, "foreign", Foreign)
    monkeypatch.setitem(RULES, "newcomer", Method)
    Foreign.kind = "foreign"
    said = notes("quickstart", algorithm__kind="newcomer", privacy__clip={"kind": "foreign", "bound": 1.0})
    assert said == [
        "The method 'newcomer' comes from the script itself, not from this library: no paper's ε is claimed for it, and "
        "the proof does not rest on it.",
        "The clip 'foreign' comes from the package my_parts, not from this library: the proof rests on the bound that it "
        "states.",
    ]
