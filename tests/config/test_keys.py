"""The list of keys is the schema's, and finds what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.config import keys


def test_the_list_is_the_schemas() -> None:
    held = Path(keys.__file__).with_suffix(".json").read_text(encoding="utf-8")
    assert held == keys.from_schema(), "write it anew: python -m gossamer.config.keys"


def test_kinds_and_keys_are_there() -> None:
    assert "ring" in keys.kinds_by_table()["topology"]
    assert {"rounds", "privacy.epsilon", "topology.kind"} <= set(keys.all_keys())


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("epsilon", "privacy.epsilon"),
        ("rouds", "rounds"),
        ("privcy.clip.bound", "privacy.clip.bound"),
        ("lr", "algorithm.lr"),
        ("colour", None),
    ],
)
def test_a_key_is_found_by_its_end_or_its_likeness(key: str, meant: str | None) -> None:
    assert keys.alike(key) == meant
