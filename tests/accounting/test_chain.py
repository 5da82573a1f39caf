"""The file of a ledger: what breaks its chain is found and located."""

import hashlib
import json

import pytest
from tests.support.releases import event

from gossamer.accounting import chain, ledger
from gossamer.accounting.ledger import LedgerBook, LedgerError
from gossamer.accounting.releases import Event


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'"sigma":1.33', b'"sigma":9.33'), *lines[3:]], 4),
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
        (lambda lines: [lines[0].replace(b"1e-05", b"1e-03"), *lines[1:]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [*lines[:3], b"{}", *lines[3:]], 4),
        (lambda lines: [], 1),
    ],
    ids=["changed", "missing", "reordered", "header changed", "header missing", "foreign line", "empty"],
)
def test_damage_is_found_and_located(written, damage, line):
    lines = written.read_bytes().splitlines()
    written.write_bytes(b"".join(part + b"\n" for part in damage(lines)))
    with pytest.raises(LedgerError, match=rf"node-000.jsonl line {line} "):
        ledger.read(written)


def version_1(events: list[Event]) -> bytes:
    """A ledger as it was written when an event's kind was called mechanism."""
    lines = [b'{"version": 1, "node": 0, "delta": 1e-05}\n']
    for one in events:
        prev = hashlib.sha256(lines[-1]).hexdigest()
        text = one.to_json().replace('"kind"', '"mechanism"')
        lines.append(f'{text[:-1]},"prev":"{prev}"}}\n'.encode())
    return b"".join(lines)


def test_a_ledger_of_version_1_is_read_verified_and_resumed(tmp_path):
    path = ledger.node_path(tmp_path, 0)
    before = version_1([event(0), event(1)])
    path.write_bytes(before)
    header, found = ledger.read(path)
    assert header["version"] == 1
    assert found == [event(0), event(1)]
    with LedgerBook.resume(tmp_path, {0: {"delta": 1e-5}}, sync=False, repeats=True) as book:
        book.append(0, event(1))  # seeded: it is on file, whatever the words
        book.append(0, event(2))
        head = book.heads()[0]
    assert path.read_bytes().startswith(before)
    ledger.verify(path, head=head, count=3)
    assert ledger.read(path)[1] == [event(0), event(1), event(2)]
    path.write_bytes(before.replace(b'"sigma":1.0', b'"sigma":2.0', 1))
    with pytest.raises(LedgerError, match="line 3 does not follow line 2"):
        ledger.read(path)


def test_a_ledger_of_a_version_to_come_is_refused(written):
    written.write_bytes(written.read_bytes().replace(b'"version": 3', b'"version": 4', 1))
    with pytest.raises(LedgerError, match="version 4, this program reads 1 and 2 and 3"):
        ledger.read(written)


def test_every_line_holds_the_hash_of_the_one_before(written):
    lines = written.read_bytes().splitlines(keepends=True)
    named = [json.loads(line)["prev"] for line in lines[1:]]
    assert named == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]
    header, events, head, rest = chain.parse(written, written.read_bytes(), lenient=False)
    assert (header["node"], len(events), rest) == (0, 5, b"")
    assert head == chain.digest(lines[-1]) == hashlib.sha256(lines[-1]).hexdigest()


def test_a_torn_rest_is_handed_back_only_to_who_asks(written):
    data = written.read_bytes() + b'{"step":5,'
    assert chain.parse(written, data, lenient=True)[3] == b'{"step":5,'
    with pytest.raises(LedgerError, match="line 7 is incomplete: the run stopped while writing it"):
        chain.parse(written, data, lenient=False)


def test_headers_are_compared_as_json_in_both_directions(tmp_path):
    chain.check_header(tmp_path, {"a": [1, 2]}, {"a": (1, 2)})
    for found, expected in (({"a": 1}, {}), ({}, {"a": 1}), ({"a": 1}, {"a": 2})):
        with pytest.raises(LedgerError, match="its 'a' differs"):
            chain.check_header(tmp_path, found, expected)


def test_what_is_unwritten_stopped_before_any_event(tmp_path):
    path = tmp_path / "node-000.jsonl"
    assert chain.unwritten(path)
    path.write_bytes(b'{"version"')
    assert chain.unwritten(path)
    path.write_bytes(b'{"version": 2}\n')
    assert not chain.unwritten(path)


def test_files_that_cannot_be_opened_are_a_sentence(tmp_path):
    with pytest.raises(LedgerError, match="cannot be read: No such file"):
        chain.content(tmp_path / "none")
    with pytest.raises(LedgerError, match="cannot be written: No such file"):
        chain.open_to_append(tmp_path / "none")
