"""The options of a step are the keyword-only parameters of its class."""

import re

import pytest

from gossamer.data.features.pipeline import KINDS, check_options, options_of
from gossamer.errors import UserError


class Step:
    def __init__(
        self, before: tuple[int, ...], *, size: int, floor: float = 0.5, words: list[str] | None = None
    ):
        pass


def test_names_defaults_and_what_is_required():
    found = [(option.name, option.required) for option in options_of(Step)]
    assert found == [("size", True), ("floor", False), ("words", False)]
    assert options_of(Step)[1].default == 0.5


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"size": 1, "sise": 2}, "t.sise is not an option of kind 'step'; it takes size, floor, words."),
        ({"size": "1"}, "t.size = '1' does not fit; kind 'step' takes whole number."),
        ({"size": True}, "t.size = true does not fit; kind 'step' takes whole number."),
        ({"size": 1, "words": [1]}, "t.words = [1] does not fit; kind 'step' takes list of texts."),
        ({"floor": 0.1}, "t.size is missing; kind 'step' needs it."),
    ],
)
def test_a_mistake_is_one_sentence(given, sentence):
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        check_options("t", "step", Step, given)


def test_a_whole_number_may_stand_for_a_number_and_none_for_what_may_be_left_out():
    check_options("t", "step", Step, {"size": 3, "floor": 1, "words": None})


def test_a_step_without_options_says_so():
    with pytest.raises(UserError, match="it takes no options"):
        check_options("t", "unit-norm", KINDS["unit-norm"], {"p": 2})
