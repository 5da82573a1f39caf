"""Two comparisons do not share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import UserError
from gossamer.studies.compare.pool import alone_in


def test_a_folder_is_one_comparisons(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path),
        pytest.raises(UserError, match="is in use by another comparison; wait for it"),
        alone_in(tmp_path),
    ):
        pass
    with alone_in(tmp_path):
        pass
