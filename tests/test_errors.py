"""The two exceptions that end a command: which of them is a mistake, and who would swallow the other."""

import pickle

import pytest
from typer import Abort

from gossamer.accounting.ledger import LedgerError
from gossamer.errors import StoppedError, UserError, compose


def test_a_users_mistake_is_a_value_error_with_its_sentence():
    assert issubclass(UserError, ValueError)  # so that pydantic takes it for a refusal of a value
    assert issubclass(LedgerError, UserError)
    error = UserError(f"a.toml: {compose('topology.kind', 'rign', 'is not known', 'did you mean ring?')}")
    assert str(error) == "a.toml: topology.kind = 'rign' is not known; did you mean ring?"
    assert compose("data", None, "is missing") == "data is missing."
    assert compose(None, 3, "there is nothing") == "there is nothing."
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.key, again.value) == (str(error), "topology.kind", "rign")


@pytest.mark.parametrize(
    ("sentence", "key", "value", "remedy"),
    [
        ("nodes = 0 must be at least 1.", "nodes", "0", "must be at least 1"),
        (
            "a.toml: topology.kind = 'rign' is no kind; did you mean ring?",
            "topology.kind",
            "rign",
            "did you mean ring?",
        ),
        (
            "privacy.epsilon = [[1, 2], [3]] is too deep; give a list.",
            "privacy.epsilon",
            "[[1, 2], [3]]",
            "give a list",
        ),
        ("data.label = 'a; b = \\'c' is missing; name one.", "data.label", "a; b = \\'c", "name one"),
        ("nodes = 1: topology.kind = 'ring' needs 3; use 'complete'", "nodes", "1", "use 'complete'"),
        (
            "a roster is damaged: sites[0].records = 0 must be at least 1.",
            "sites[0].records",
            "0",
            "must be at least 1",
        ),
        ("/run/a.json is damaged: model.json does not know 'b'; put it back.", "/run/a.json", None, "put it back"),
        ("event ratio = 2 must be below 1", "ratio", "2", "must be below 1"),
        ("--seeds 0 is not enough; give more.", "--seeds", "0", "give more"),
        (
            "a/b.toml, algorithm.lr=0.1: data.classes is not set: they are private; set them.",
            "data.classes",
            None,
            "set them",
        ),
        ("--anchor is for one run; name it with --ledger.", "--anchor", None, "name it with --ledger"),
        ("/my runs/a/x.json line 3 is damaged: it is cut off; put it back.", "/my runs/a/x.json", None, "put it back"),
        ("model: layer '0' mixes records; use GroupNorm.", "model", None, "use GroupNorm"),
        ("the roster 3 is older than roster 4.", "roster", "3", None),
        ("'mnits' is no data set; did you mean mnist?", "mnits", None, "did you mean mnist?"),
        ("mercy has left; invite it again.", "mercy", None, "invite it again"),
        ("", None, None, None),
    ],
)
def test_a_sentence_has_its_key_value_and_remedy(sentence, key, value, remedy):
    error = UserError(sentence)
    assert (error.key, error.value, error.remedy) == (key, value, remedy)


def test_a_stop_is_no_mistake_and_no_interrupt():
    for other in (ValueError, UserError, KeyboardInterrupt, Abort):
        assert not issubclass(StoppedError, other)
    with pytest.raises(Exception, match="go on with --resume"):
        raise StoppedError("go on with --resume")
