"""The front door of the package."""

from __future__ import annotations

from pathlib import Path

import gossamer
from gossamer.config import recipes
from gossamer.training.api import configure

QUICK = {"rounds": 40}


def test_the_front_door_is_not_shadowed_by_a_module() -> None:
    assert gossamer.plan("quickstart", QUICK).privacy.nodes[0].proven.epsilon <= 8.0


def test_places_may_be_written_as_text(tmp_path: Path) -> None:
    changes = {"rounds": 2, "privacy.epsilon": None, "privacy.noise.multiplier": 50.0}
    outcome = gossamer.run("quickstart", changes, out=str(tmp_path / "r"), data_dir=str(tmp_path))
    assert outcome.directory == tmp_path / "r"
    (tmp_path / "own.toml").write_text((Path(recipes.__file__).parent / "quickstart.toml").read_text())
    assert configure(tmp_path / "own.toml").nodes == 8
