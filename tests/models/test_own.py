"""A network of one's own: a kind in the table, and a module that only Python can hand over."""

import pytest

from gossamer.errors import UserError
from gossamer.models.kinds import build, models


def test_it_stands_in_the_table_without_options_and_says_where_the_module_comes_from() -> None:
    assert "own" in models.kinds
    with pytest.raises(
        UserError, match=r"needs the module itself: gossamer\.run\(\.\.\., module=net\) from Python"
    ):
        build("own", input_shape=(4,), outputs=2)
    with pytest.raises(UserError, match=r"model\.hidden is not a key of kind 'own'"):
        build("own", input_shape=(4,), outputs=2, hidden=3)
