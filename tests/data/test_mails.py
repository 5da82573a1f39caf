"""Public mails: their text without the sender, whose each is, and the split by senders."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.support.weights import small_minilm

from gossamer.data import decode, texts
from gossamer.data.load import get, load
from gossamer.data.origins import CheckedCopy

PLAIN = b"From: Ann <Ann@Example.org>\nSubject: noon\n\nmeet at noon\n"
FORMS = b"""From: \"x@y.z\"
 <ann@example.org>
Subject: two
Content-Type: multipart/alternative; boundary=b

--b
Content-Type: text/html

<b>free</b>
--b
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: base64

w7zDtg==
--b--
"""
HTML = b"""Subject: =?x?
Content-Type: text/html; charset=nobody-knows

<style>p { color: red }</style><p>free&nbsp;<!-- hidden -->money
"""


def archive(path: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_senders_and_texts() -> None:
    assert [texts.sender(mail) for mail in (PLAIN, FORMS, HTML)] == [b"ann@example.org"] * 2 + [b""]
    assert texts.text_of(PLAIN) == "noon\nmeet at noon\n"
    assert texts.text_of(FORMS).split() == ["two", "üö"]
    assert texts.text_of(HTML).split()[-2:] == ["free", "money"]


def test_an_archive_becomes_bytes_and_labels(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", {"spam-1/2.txt": PLAIN, "easy-ham-1/1.txt": b"hi", "spam-1/2.json": b"{}"})
    raw = decode.mails(path)
    assert raw["x_train"].tobytes() == b"hi" + PLAIN
    assert raw["y_train"].tolist() == [[0, 2], [1, len(PLAIN)]]
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match="damaged"):
        decode.mails(path)


def test_all_mails_of_a_sender_are_on_one_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_minilm(monkeypatch, tmp_path)
    contents = {
        f"{group}/{k}.txt": b"From: p%d@x.org\nSubject: free money\n\nyou" % (k % 20)
        for group in ("easy-ham-1", "spam-1")
        for k in range(30)
    }
    raw = decode.mails(archive(tmp_path / "a.tgz", contents))
    monkeypatch.setattr(texts.SpamAssassin, "published", lambda self, _: CheckedCopy(raw, "", "", None))
    data = texts.SpamAssassin(length=8).read(None, 0)
    assert len(data.y_train) + len(data.y_test) == 60
    assert 0 < len(data.y_test) < 30
    assert data.person is not None
    assert set(np.bincount(data.person)) <= {0, 2, 4}
    assert data.x_train[0].tolist() == [2, 4, 5, 12, 3, 0, 0, 0]


@pytest.mark.data
def test_the_published_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert get("spam-assassin").name == "spam_assassin.npz"
    data = load("spam-assassin")
    assert (len(data.y_train), len(data.y_test)) == texts.SpamAssassin.facts.rows
    assert len(data.y_train) + len(data.y_test) == 6_046
    assert data.y_train.sum() + data.y_test.sum() == 500 + 1_396
    assert data.person is not None
    assert len(np.unique(data.person)) == 2_070
