"""The user's own records and code stay on the user's machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.configurations import configured
from tests.support.own_records import on_table, write_table

from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.studies.engine.leaving import refuse


def test_own_records_do_not_leave(tmp_path: Path) -> None:
    config = resolve(on_table(write_table(tmp_path / "all.csv")))
    with pytest.raises(UserError, match=r"data\.kind = 'csv' is records of your own, and E would carry them"):
        refuse(config, "E")


def test_own_code_does_not_leave() -> None:
    own = configured(model={"kind": "own", "path": "net.py:make"})
    with pytest.raises(
        UserError, match=r"model\.path = '.*net\.py:make' is code of yours, and E sends no code"
    ):
        refuse(own, "E")


def test_public_and_made_up_records_may() -> None:
    refuse(configured(), "E")
    refuse(configured(data={"kind": "mnist"}), "E")
