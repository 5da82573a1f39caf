"""Every figure of a certificate is held against the ledgers, signed or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.signed_runs import edit, relaid, unsigned, verdict

from gossamer.errors import UserError

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
    relaid(run, [range(1), range(1, 2), range(2, 3)])
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[[0, 0], [2, 2]]))
    with pytest.raises(UserError, match=r"ledger-001\.jsonl is of no node"):
        verdict(run)
    (run / "ledger-001.jsonl").unlink()
    found = verdict(run)
    assert found.elsewhere == (1,)
    assert "as stated by their ranks" in found.sentences()[0]
    edit(run / "manifest.json", lambda m: m.update(ledgers_here=[[0, 2]]))
    with pytest.raises(UserError, match="no ledger of node 1"):
        verdict(run)
