"""The two exceptions that end a command: which of them is a mistake, and who would swallow the other."""

import pytest
from typer import Abort

from gossamer.accounting.ledger import LedgerError
from gossamer.errors import StoppedError, UserError


def test_a_users_mistake_is_a_value_error_with_its_sentence():
    assert issubclass(UserError, ValueError)  # so that pydantic takes it for a refusal of a value
    assert issubclass(LedgerError, UserError)
    assert str(UserError("nodes = 0 must be at least 1.")) == "nodes = 0 must be at least 1."


def test_a_stop_is_no_mistake_and_no_interrupt():
    for other in (ValueError, UserError, KeyboardInterrupt, Abort):
        assert not issubclass(StoppedError, other)
    with pytest.raises(Exception, match="go on with --resume"):
        raise StoppedError("go on with --resume")
