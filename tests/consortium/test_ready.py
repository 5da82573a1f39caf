from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.consortia import RECIPE, Clock, accepted, on_disk, rows

from gossamer.consortium import membership
from gossamer.consortium.names import now
from gossamer.consortium.packing import pack
from gossamer.consortium.ready import ready
from gossamer.errors import UserError


def test_a_site_is_ready_or_hears_why_not(tmp_path: Path) -> None:
    clock = Clock(now())
    north = on_disk(tmp_path, "clinic", "mercy", clock=clock)
    rows(tmp_path / "mercy" / "records.csv", 95)
    _, file, _ = pack(north, RECIPE, {"data.features": ["a", "b"]})
    found = ready(file, tmp_path / "mercy", tmp_path, clock.now)
    assert (found.node, found.nodes, found.warnings) == (1, range(1, 2), ())
    assert len(found.plan().privacy.nodes) == 2
    assert found.config.privacy.cap == 8.0
    assert list(found.roster.members(0, found.study.roster.version)) == ["clinic", "mercy"]
    soon = ready(file, tmp_path / "mercy", tmp_path, clock.now + timedelta(days=80))
    assert "ends in 10 days" in soon.warnings[0] or "ends in 9 days" in soon.warnings[0]
    with pytest.raises(UserError, match="is not a file"):
        ready(file, tmp_path / "clinic", tmp_path, clock.now)
    # One that joins after the last round, and one study of strangers.
    request, _ = membership.join(
        north.invite("lab"), listen="none", records=7, folder=tmp_path / "lab", cap=1.0, clock=clock,
        data=str(rows(tmp_path / "lab.csv", 7)),
    )  # fmt: skip
    north.approve("lab", request.read_bytes(), "a file", at_round=4)
    accepted(tmp_path / "lab", north, clock)
    with pytest.raises(
        UserError, match="lab is not in the study readmission, which was packed with roster 3"
    ):
        ready(file, tmp_path / "lab", tmp_path, clock.now)
    request, _ = membership.join(
        north.invite("east"), listen="none", records=9, folder=tmp_path / "east", cap=1.0, clock=clock,
        data=str(rows(tmp_path / "east.csv", 9)),
    )  # fmt: skip
    north.approve("east", request.read_bytes(), "a file", at_round=2)
    accepted(tmp_path / "east", north, clock)
    joiner = ready(file, tmp_path / "east", tmp_path, clock.now)
    assert joiner.first == (2, ("clinic", "east", "mercy"))
    assert (joiner.sites, joiner.node) == (("clinic", "mercy", "east"), 2)  # one more than the study has
    assert joiner.config.data.records == [100, 100, 9]
    assert joiner.plan().privacy.nodes[2].records == 9  # and begins with the same model
    (tmp_path / "other").mkdir()
    strangers = on_disk(tmp_path / "other", "clinic", "mercy", clock=clock)
    _, theirs, _ = pack(strangers, RECIPE, {"data.features": ["a", "b"]})
    with pytest.raises(UserError, match="another consortium's roster"):
        ready(theirs, tmp_path / "mercy", tmp_path, clock.now)
