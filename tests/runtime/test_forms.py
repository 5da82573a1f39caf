"""Forms: what another rank states is taken as it is, or refused without repeating it."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.runtime import forms
from gossamer.runtime.forms import FormError

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PROOF = forms.record({"epsilon": forms.bound, "because": forms.maybe(forms.sentence)})
FORMS = [
    forms.number, forms.bound, forms.any_number, forms.count, forms.yes_or_no, forms.sentence, forms.words, forms.file_name,
    forms.hexadecimal(4), forms.one_of("a", "b"), forms.list_of(forms.count), forms.row(forms.count, forms.number), PROOF,
]  # fmt: skip


@settings(deadline=None)
@given(ANY, st.sampled_from(FORMS))
def test_anything_is_taken_as_it_is_or_refused(value: Any, form: Any) -> None:
    try:
        found = form(value)
    except FormError:
        return
    assert found == value or (isinstance(value, float) and math.isnan(value))


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (forms.number, [0, -1.5], [True, math.inf, math.nan, "1", None]),
        (forms.bound, [0, 2.5, math.inf], [-0.001, math.nan, True, "0.001"]),
        (forms.any_number, [math.nan, -math.inf, 1], [True, "1", None]),
        (forms.count, [0, 7], [1.0, -1, 1 << 63, True, "7"]),
        (forms.yes_or_no, [True], [1, None]),
        (forms.sentence, ["σ is too small – for δ = 0.1"], ["<b>", "a\x1b[2J", "line\nline", "a" * 401, 3]),
        (forms.file_name, ["round-000002.safetensors"], ["../x", "a/b", "a\\b", "..", ".", "", "a\nb", 3]),
        (forms.hexadecimal(4), ["00ff"], ["00fg", "00FF", "00f", "00ff\n", 4]),
        (forms.one_of("a"), ["a"], ["b", ["a"], None]),
        (forms.list_of(forms.count), [[], [1, 2]], [[1.5], {"0": 1}, "12"]),
        (forms.row(forms.count, forms.sentence), [[1, "x"]], [[1], [1, "x", 2], ["x", 1]]),
        (PROOF, [{"epsilon": 1.0, "because": None}], [{"epsilon": 1.0}, {"epsilon": 1.0, "because": None, "more": 1}, []]),
    ],
)  # fmt: skip
def test_each_form(form: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert form(value) == value or math.isnan(value)
    for value in bad:
        with pytest.raises(FormError):
            form(value)


def test_a_refusal_repeats_nothing_of_what_came() -> None:
    for form in FORMS:
        with pytest.raises(FormError) as caught:
            form({"patient": "Müller"})
        assert "Müller" not in str(caught.value)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_are_a_list_or_refused(text: bytes) -> None:
    with suppress(FormError):
        assert isinstance(forms.parsed(text), list)


def test_deep_brackets_are_refused() -> None:
    with pytest.raises(FormError):
        forms.parsed(b"[" * 100_000)


def test_what_is_shown_of_a_note_is_what_a_terminal_can_bear() -> None:
    assert forms.shown("rank 1 ≤ ε ended.") == "rank 1 ≤ ε ended."
    assert "\x1b" not in forms.shown("\x1b[2J\x1b]0;title\x07 all is well")
    assert "\n" not in forms.shown("one\ntwo")
    assert len(forms.shown("a" * 10**6)) == 2000
