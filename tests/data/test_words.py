"""Tokens as BERT's own tokenizer gives them; expected numbers were computed with the package tokenizers 0.23.3."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal
from tests.support.weights import small_minilm

import gossamer
from gossamer.data.texts import WordPiece


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.node.get_closest_marker("data") is None:
        small_minilm(monkeypatch, tmp_path)


def test_words_become_their_longest_pieces() -> None:
    tokens = gossamer.tokens(["Free MONEY, moneys!", "meeting at noon", ""], length=8)
    assert tokens.tolist() == [[2, 4, 5, 1, 5, 10, 11, 3], [2, 6, 7, 8, 9, 3, 0, 0], [2, 3, 0, 0, 0, 0, 0, 0]]


def test_a_long_text_is_cut_and_still_ends() -> None:
    assert gossamer.tokens(["you " * 50], length=5).tolist() == [[2, 12, 12, 12, 3]]


def test_accents_control_characters_and_foreign_scripts() -> None:
    tokens = gossamer.tokens(["\u0000Frée\u00a0mone\u200by", "中you中", "x" * 200], length=6)
    assert tokens.tolist() == [[2, 4, 5, 3, 0, 0], [2, 1, 12, 1, 3, 0], [2, 1, 3, 0, 0, 0]]


def test_lengths_and_vocabularies_that_cannot_be() -> None:
    for length in (1, 513):
        with expect_refusal(key="length"):
            gossamer.tokens(["you"], length=length)
    with expect_refusal(key="vocabulary"):
        WordPiece(["[UNK]", "[PAD]"])


TEXTS = {
    "Hello, World! don't": "101 7592 1010 2088 999 2123 1005 1056 102",
    "unaffable \xdcn\xefc\xf6d\xe9 na\xefve \u20ac100": "101 14477 20961 3468 27260 15743 1574 18613 102",
    "\u65e5\u672c\u8a9e text\twith\u200bzero\xadwidth": "101 1864 1876 1950 3793 2007 6290 5004 3593 2705 102",
    "a_b e-mail@x.org \ufb01ne \u0130stanbul \xbd 10\xb2": "101 1037 1035 1038 1041 1011 5653 1030 1060 1012 8917 1984 2638 9960 1092 2184 10701 102",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \ud55c\uad6d\uc5b4 \U0001f642ok": "101 1327 29867 29874 29859 1469 30006 30021 29991 30014 30020 29999 30008 100 102",
}


@pytest.mark.data
def test_the_published_vocabulary() -> None:
    for text, expected in TEXTS.items():
        tokens = gossamer.tokens([text], length=64)[0]
        assert " ".join(map(str, tokens[tokens > 0])) == expected, text
