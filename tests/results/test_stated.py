"""Every figure of a certificate is held against the ledgers, signed or not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.signed_runs import edit, unsigned, verdict

from gossamer.errors import UserError
from gossamer.results.stated import Stated

STATED: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("epsilon_proven", lambda c: c.update(epsilon_proven=0.001)),
    ("epsilon_proven", lambda c: c.update(epsilon_proven=None)),
    ("epsilon_proven", lambda c: c.update(epsilon_proven="1")),
    ("epsilon_claimed", lambda c: c.update(epsilon_claimed=0.001)),
    ("delta", lambda c: c.update(delta=1e-9)),
    ("delta", lambda c: c.update(delta=None)),
    ("adjacency", lambda c: c.update(adjacency="replace")),
    ("unit", lambda c: c.update(unit="one person")),
    ("observer", lambda c: c.update(observer="a neighbour")),
    ("proven", lambda c: c["epsilon_by_node"][1].update(proven=0.5)),
    (
        "proven",
        lambda c: [c.update(epsilon_proven=0.5), *(e.update(proven=0.5) for e in c["epsilon_by_node"])],
    ),
    ("lower", lambda c: c.update(epsilon_proven_lower=0.0)),
    ("stamp", lambda c: c.update(stamp="seeded noise: no privacy")),
    ("noise_source", lambda c: c.update(noise_source="seeded")),
    ("public_constants", lambda c: c["public_constants"][0].update(records=10**6)),
    ("because", lambda c: c.update(not_proven_because="a reason")),
    ("ledger_heads", lambda c: c.update(draws=c["draws"][:1])),
    ("epsilon_by_node", lambda c: c.update(epsilon_by_node=[1, 2, 3])),
    ("events where 3", lambda c: c["draws"].__setitem__(0, 3)),
]


@pytest.mark.parametrize(("what", "change"), STATED)
def test_every_stated_figure_is_compared_also_without_a_signature(
    run: Path, what: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    assert verdict(unsigned(run)).certified
    edit(run / "certificate.json", change)
    with pytest.raises(UserError, match=what):
        verdict(run)


def test_nodes_that_the_certificate_is_about_must_be_here_or_are_not_said_to_agree(run: Path) -> None:
    edit(unsigned(run) / "manifest.json", lambda m: m.update(ledgers_here=[]))
    with pytest.raises(UserError, match="'ledgers_here' names no node"):
        verdict(run)
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[0, 2]))
    with pytest.raises(UserError, match=r"node-001\.jsonl is of no node"):
        verdict(run)
    (run / "ledger" / "node-001.jsonl").unlink()
    found = verdict(run)
    assert found.elsewhere == (1,)
    assert "as stated by their ranks" in found.sentences()[0]
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[0, 1, 2]))
    with pytest.raises(UserError, match=r"node-001\.jsonl is missing"):
        verdict(run)


MADE = Stated(Path("certificate.json"), {"a": [1, {}], "b": [1], "delta": 1e-5, "text": "x"})


def test_a_figure_may_be_a_little_above_what_is_found_and_never_below() -> None:
    for stated in (1.0, 1.0 - 1e-7, 1.009):
        MADE.close("ε", 1.0, stated)
    for stated in (0.999, 1.02, math.inf, "1", None, True):
        with pytest.raises(UserError, match=r"certificate\.json states ε = .* where the ledgers say 1\.0\."):
            MADE.close("ε", 1.0, stated)
    MADE.close("ε", 1.0, 5.0, above=True)  # where ledgers that are elsewhere may say more
    with pytest.raises(UserError, match="states ε"):
        MADE.close("ε", 1.0, 0.5, above=True)
    MADE.close("ε", math.inf, math.inf)
    with pytest.raises(UserError, match="states ε"):
        MADE.close("ε", math.inf, 3.0)


@pytest.mark.parametrize("value", ["1", -1.0, math.nan, math.inf, True])
def test_what_is_no_epsilon_is_damage(value: Any) -> None:
    with pytest.raises(UserError, match="is damaged: its 'ε'"):
        MADE.epsilon("ε", value)
    assert MADE.epsilon("ε", None) == math.inf
    assert MADE.epsilon("ε", 2) == 2.0


def test_other_types_are_other_values() -> None:
    MADE.same("x", 1, 1.0)
    for found, stated in ((True, 1), ("1", 1), (None, 0), ([1], [2])):
        with pytest.raises(UserError, match="states x"):
            MADE.same("x", found, stated)


def test_lists_and_their_entries_have_their_form() -> None:
    assert MADE.length("a") == 2
    assert MADE.number("delta") == 1e-5
    assert MADE.entry("a", 1) == {}
    for look in (lambda: MADE.length("a", "b"), lambda: MADE.entry("a", 0), lambda: MADE.number("text")):
        with pytest.raises(UserError, match="is damaged"):
            look()


def all_cheaper(c: dict[str, Any]) -> None:
    for point in c["epsilon_by_colluders"]:
        point["epsilon"] *= 0.9
    for line in c["epsilon_by_observer"]:
        line["epsilon"] *= 0.9


BY_OBSERVER: list[Callable[[dict[str, Any]], Any]] = [
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=c["epsilon_by_colluders"][2]["epsilon"]),
    lambda c: c["epsilon_by_colluders"][3].update(epsilon=None),
    lambda c: c["epsilon_by_colluders"][0].update(epsilon="1"),
    lambda c: c["epsilon_by_colluders"][0].update(colluders=True),
    lambda c: c["epsilon_by_colluders"].pop(),
    lambda c: c["epsilon_by_colluders"].reverse(),
    lambda c: c["epsilon_by_colluders"].append({"colluders": 4, "epsilon": 9.0}),
    lambda c: c.update(epsilon_by_colluders=[]),
    lambda c: c.update(epsilon_by_colluders=[1, 2]),
    lambda c: c.pop("epsilon_by_colluders"),
    lambda c: c.pop("epsilon_by_observer"),
    lambda c: [c.pop(key) for key in ("epsilon_by_observer", "epsilon_by_colluders")],
    lambda c: c["epsilon_by_observer"].pop(),
    lambda c: c["epsilon_by_observer"][-1].update(epsilon=c["epsilon_by_observer"][-1]["epsilon"] * 0.999),
    lambda c: c["epsilon_by_observer"][-1].update(words="a neighbour"),
    lambda c: c["epsilon_by_observer"][-1].update(delta=1e-9),
    lambda c: c["epsilon_by_observer"][0].update(planned=True),
    all_cheaper,
]


@pytest.mark.parametrize("change", BY_OBSERVER)
def test_every_figure_by_observer_is_compared(
    shared_run: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    assert verdict(unsigned(shared_run)).certified
    edit(shared_run / "certificate.json", change)
    with pytest.raises(UserError, match="epsilon_by_"):
        verdict(shared_run)


def test_a_run_with_noise_of_each_nodes_own_has_one_line_or_none(run: Path) -> None:
    assert len(json.loads((run / "certificate.json").read_text())["epsilon_by_observer"]) == 1
    edit(unsigned(run) / "certificate.json", lambda c: c["epsilon_by_observer"][0].update(epsilon=0.1))
    with pytest.raises(UserError, match="epsilon_by_observer"):
        verdict(run)
    edit(
        run / "certificate.json", lambda c: [c.pop(f"epsilon_by_{key}") for key in ("observer", "colluders")]
    )
    assert verdict(run).certified  # from before it was stated


def test_where_ledgers_are_elsewhere_more_may_be_stated_and_never_less(shared_run: Path) -> None:
    def dearer(c: dict[str, Any]) -> None:
        c["epsilon_by_colluders"][3]["epsilon"] = c["epsilon_by_observer"][3]["epsilon"] = 99.0

    edit(unsigned(shared_run) / "certificate.json", dearer)
    with pytest.raises(UserError, match="epsilon_by_colluders, 3"):
        verdict(shared_run)
    edit(shared_run / "manifest.json", lambda m: m.update(ledgers_here=[0, 1]))
    for node in (2, 3):
        (shared_run / "ledger" / f"node-00{node}.jsonl").unlink()
    assert verdict(shared_run).elsewhere == (2, 3)
    edit(shared_run / "certificate.json", lambda c: c["epsilon_by_colluders"][3].update(epsilon=0.1))
    with pytest.raises(UserError, match="epsilon_by_colluders, 3"):
        verdict(shared_run)
