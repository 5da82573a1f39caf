"""Which sites a study has from which round on, whatever roster one holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.consortia import RECIPE, Clock, on_disk

from gossamer.consortium import membership
from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.epochs import built, due, epochs_of, first_with, members_of, nodes_of, rescaled
from gossamer.consortium.names import now
from gossamer.consortium.packing import pack
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.training.plan import Plan


class Place:
    def __init__(self, folder: Path):
        self.folder, self.clock = folder, Clock(now())
        self.north = on_disk(folder, "clinic", "lab", "mercy", clock=self.clock)
        self.study: Study
        self.plan: Plan
        self.study, _, self.plan = pack(
            self.north, RECIPE, {"data.features": ["a", "b"], "rounds": 40, "topology.kind": "ring"}
        )

    def approve(self, name: str, at_round: int, records: int = 50) -> None:
        request, _ = membership.join(
            self.north.invite(name), listen="none", records=records, folder=self.folder / name, cap=1.0,
            clock=self.clock,
        )  # fmt: skip
        self.north.approve(name, request.read_bytes(), "a file", at_round=at_round)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_epochs_are_named_by_their_round_and_nobody_is_renumbered(place: Place) -> None:
    study, north = place.study, place.north
    assert epochs_of(study, north.roster()) == [(0, study.sites)]
    place.approve("wing", at_round=20)
    north.leave("lab", 20)
    place.approve("annex", at_round=10)
    roster = north.roster()
    assert epochs_of(study, roster) == [
        (0, ("clinic", "lab", "mercy")),
        (10, ("annex", "clinic", "lab", "mercy")),
        (20, ("annex", "clinic", "mercy", "wing")),
    ]
    assert [due(study, roster, 0, t) and due(study, roster, 0, t)[0] for t in (9, 10, 25)] == [None, 10, 20]
    assert due(study, roster, 20, 39) is None
    assert first_with(study, roster, "wing") == (20, ("annex", "clinic", "mercy", "wing"))
    # Who joins is one more than the study has, whoever else joins.
    assert nodes_of(study, "wing") == (*study.sites, "wing")
    assert nodes_of(study, "annex") == (*study.sites, "annex")
    assert nodes_of(study, "mercy") == study.sites


def test_a_change_without_a_round_is_for_later_studies(place: Place) -> None:
    place.approve("wing", at_round=0)
    place.north.revoke("lab")
    roster = place.north.roster()
    assert epochs_of(place.study, roster) == [(0, place.study.sites)]
    assert first_with(place.study, roster, "wing") is None
    assert list(members_of(place.study, roster)) == ["clinic", "mercy", "wing"]  # a revoked one has no link


def test_who_leaves_keeps_its_links_until_then_and_may_be_revoked_before(place: Place) -> None:
    place.north.leave("lab", 20)
    assert "lab" in members_of(place.study, place.north.roster())
    place.north.revoke("lab")
    roster = place.north.roster()
    assert "lab" not in members_of(place.study, roster)
    assert [start for start, _ in epochs_of(place.study, roster)] == [
        0,
        20,
    ]  # it is out when it would have been


def test_a_graph_that_cannot_be_is_named_with_its_round(place: Place) -> None:
    assert built(place.plan, 20, ("a", "b", "c", "d")).topology.nodes == 4
    with pytest.raises(
        UserError, match=r"from round 20 on the study has 2 sites \(a, b\), and its recipe has no"
    ):
        built(place.plan, 20, ("a", "b"))


def test_gradients_count_by_the_records_there_are(place: Place) -> None:
    o = place.plan
    assert rescaled(o, 0, [100, 50]) == 1.0
    tables = {**place.study.config.model_dump(exclude_none=True), "weighting": "size"}
    from gossamer.config.layers import whole

    config = whole(tables, "the recipe")
    by_size = Plan.of(config, cache=_without_records(place.north, config))
    # Planned: 100 of 300 records at three nodes, weight 1. Now 100 of 150 at two.
    assert rescaled(by_size, 0, [100, 50]) == pytest.approx(4 / 3)


def _without_records(north: Coordinator, config: object) -> object:
    from gossamer.consortium.packing import _Given, _public

    return _Given(_public(config, None)[2])  # type: ignore[arg-type]


def test_who_joins_needs_one_epsilon_for_all(tmp_path: Path) -> None:
    north = on_disk(tmp_path, "clinic", "mercy", clock=Clock(now()))
    study, _, _ = pack(north, RECIPE, {"data.features": ["a", "b"], "privacy.epsilon": [4.0, 5.0]})
    with pytest.raises(
        UserError, match=r"privacy.epsilon of the study readmission lists one value for each of its 2"
    ):
        study.with_joiner(50)
