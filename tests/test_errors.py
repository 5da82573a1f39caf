"""The two exceptions that end a command: which of them is a mistake, and who would swallow the other."""

import pickle

import pytest
from typer import Abort

from gossamer.accounting.ledger import LedgerError
from gossamer.errors import StoppedError, UserError


def test_a_users_mistake_is_a_value_error_with_its_sentence():
    assert issubclass(UserError, ValueError)  # so that pydantic takes it for a refusal of a value
    assert issubclass(LedgerError, UserError)
    assert str(UserError("nodes = 0 must be at least 1.")) == "nodes = 0 must be at least 1."
    error = UserError("is not known", key="topology.kind", value="rign", remedy="did you mean ring?", where="a.toml")
    assert str(error) == "a.toml: topology.kind = 'rign' is not known; did you mean ring?"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.key, again.value, again.remedy) == (str(error), error.key, "rign", error.remedy)


def test_a_stop_is_no_mistake_and_no_interrupt():
    for other in (ValueError, UserError, KeyboardInterrupt, Abort):
        assert not issubclass(StoppedError, other)
    with pytest.raises(Exception, match="go on with --resume"):
        raise StoppedError("go on with --resume")
