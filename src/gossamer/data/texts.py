"""Texts as tokens, and the mails of the SpamAssassin project's public corpus with their senders.

Tokens are WordPiece with the public vocabulary of uncased BERT (Devlin et al. 2019), as the encoders read it. Every
text by itself: words and punctuation in lower case without accents, each cut into the longest pieces known.
"""

from __future__ import annotations

import email
import hashlib
import html
import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array, at_most
from gossamer.data.dataset import Dataset
from gossamer.data.origins import WEIGHTS
from gossamer.data.source import Source, datasets, described
from gossamer.errors import UserError

VOCABULARY = "minilm-l6-vocabulary"
PADDING, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
LONGEST_WORD = 100  # characters; a longer one is unknown
MOST_TOKENS = 512  # that the encoders have positions for
_CJK = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))


class _Separated(dict[int, str]):
    """For str.translate: spaces around what is a word of its own, nothing for accents and control characters."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            text = " "
        elif category[0] == "C" or category == "Mn" or point == 0xFFFD:
            text = ""
        elif category[0] == "P" or character in string.punctuation or any(a <= point <= b for a, b in _CJK):
            text = f" {character} "
        else:
            text = character
        self[point] = text
        return text


_SEPARATED = _Separated()


class WordPiece:
    """The tokens of a vocabulary; a token's number is its line."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.numbers = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in (PADDING, UNKNOWN, START, END) if piece not in self.numbers]
        if missing or self.numbers[PADDING] != 0:
            raise UserError(f"a vocabulary begins with {PADDING} and has {UNKNOWN}, {START} and {END}.")
        self.pieces = cache(self._pieces)

    def encode(self, texts: Sequence[str], length: int) -> Array:
        """(texts, length): each text between [CLS] and [SEP], cut to that length or filled up with 0."""
        at_most("length", length, MOST_TOKENS, least=2)
        tokens = np.zeros((len(texts), length), np.int64)
        for row, text in zip(tokens, texts, strict=True):
            own: list[int] = []
            for word in unicodedata.normalize("NFD", text).translate(_SEPARATED).lower().split():
                if len(own) > length - 2:
                    break
                own += self.pieces(word)
            own = [self.numbers[START], *own[: length - 2], self.numbers[END]]
            row[: len(own)] = own
        return tokens

    def _pieces(self, word: str) -> list[int]:
        """The longest piece of the vocabulary that the word begins with, and so on; one unknown if there is none."""
        pieces, start = [], 0
        while start < len(word) <= LONGEST_WORD:
            ends = range(len(word), start, -1)
            known = ((self.numbers.get("##" * (start > 0) + word[start:end]), end) for end in ends)
            number, start = next(((n, end) for n, end in known if n is not None), (None, start))
            if number is None:
                return [self.numbers[UNKNOWN]]
            pieces.append(number)
        return pieces or [self.numbers[UNKNOWN]]


def word_piece(data_dir: Path | None = None) -> WordPiece:
    """With the public vocabulary."""
    return WordPiece(WEIGHTS[VOCABULARY].find(data_dir).content.decode("utf-8").split("\n"))


def tokens(texts: Sequence[str], *, length: int = 64) -> Array:
    """Return the tokens (texts, length) of texts, as `model.kind = "minilm"` reads them.

    length: of each text; longer ones are cut, shorter ones filled up with 0. The vocabulary is fetched once.
    """
    return word_piece().encode(texts, length)


LABELS = ("no spam", "spam")
_FROM = re.compile(rb"^From:(.*(?:\n[ \t].*)*)", re.MULTILINE | re.IGNORECASE)
_ADDRESS = re.compile(rb"[\w.+=\-'&/]+@[\w.\-]+")
_NO_TEXT = re.compile(r"<(style|script)\b.*?</\1>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)


def sender(mail: bytes) -> bytes:
    """The address in the header From, or, where there is none, all of that header."""
    line = _FROM.search(mail.split(b"\n\n", 1)[0])
    written = line.group(1).strip() if line else b""
    return bytes((_ADDRESS.findall(written) or [written])[-1]).lower()


def text_of(mail: bytes) -> str:
    """Subject and text: of several forms the plain one, else HTML without its tags."""
    message = email.message_from_bytes(mail)
    parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
    plain = [part for part in parts if part.get_content_subtype() == "plain"]
    body = _content((plain or parts or [message])[0])
    if not plain:
        body = html.unescape(_NO_TEXT.sub(" ", body))
    return f"{message['subject'] or ''}\n{body}"


def _content(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset() or "latin-1", errors="replace")
    except LookupError:  # an unknown charset
        return content.decode("latin-1")


@datasets.register("spam-assassin")
@dataclass(frozen=True, kw_only=True)
class SpamAssassin(Source):
    """6,046 mails of 2002 to 2004 and whether each is spam, as tokens; whose a mail is: its sender's.

    A fifth of the senders, by their addresses' hash, is the hold-out.
    """

    length: Annotated[int, Field(ge=8, le=MOST_TOKENS), "tokens of a mail, its subject first"] = 64

    facts, origin = described("spam-assassin")
    known = None  # the mails themselves name their senders

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        label, sizes = copy.content["y_train"].T
        ends = np.cumsum(sizes)
        whole = copy.content["x_train"].tobytes()
        each = [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        x = word_piece(data_dir).encode([text_of(mail) for mail in each], self.length).astype(np.float32)
        senders, person = np.unique([sender(mail) for mail in each], return_inverse=True)
        test = np.array([hashlib.sha256(one).digest()[0] % 5 == 0 for one in senders.tolist()])[person]
        whole = Dataset(
            "spam-assassin", x, label, x[test], label[test], 2,
            public_test=True, person=person, labels=LABELS, provenance=copy.provenance,
        )  # fmt: skip
        return whole.take(~test)
