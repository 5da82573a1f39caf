import os
import resource

import pytest
from tests.support.releases import event

from gossamer.accounting import ledger
from gossamer.accounting.ledger import Ledger, LedgerBook, LedgerError
from gossamer.errors import UserError


def test_what_was_appended_is_read_back(written):
    header, found = ledger.read(written)
    assert header == {"version": 3, "node": 0, "delta": 1e-5}
    assert found == [event(step, sigma=1.0 + step / 3) for step in range(5)]
    ledger.verify(written, count=5)


def test_a_cut_tail_needs_the_certified_head(written):
    _, found = ledger.read(written)
    with Ledger.resume(written, sync=False) as book:
        head = book.head
    lines = written.read_bytes().splitlines(keepends=True)
    ledger.verify(written, head=head, count=len(found))
    written.write_bytes(b"".join(lines[:-1]))
    ledger.read(written)  # the chain alone cannot know
    with pytest.raises(LedgerError, match="4 events where 5"):
        ledger.verify(written, head=head, count=5)
    with pytest.raises(LedgerError, match="certified"):
        ledger.verify(written, head=head)


def test_resume_goes_on_in_the_same_chain(written):
    with Ledger.resume(written, sync=False) as book:
        assert book.length == 5
        book.append(event(5))
    assert [one.step for one in ledger.read(written)[1]] == [0, 1, 2, 3, 4, 5]


def test_a_torn_fragment_is_moved_aside(written):
    whole = written.read_bytes()
    written.write_bytes(whole + b'{"step":5,"mech')
    with pytest.raises(LedgerError, match="line 7 is incomplete"):
        ledger.read(written)
    with Ledger.resume(written, sync=False) as book:
        assert book.torn == b'{"step":5,"mech'
        assert book.length == 5
    assert written.read_bytes() == whole
    assert written.with_name("node-000.jsonl.torn").read_bytes() == b'{"step":5,"mech'


def test_a_whole_event_without_newline_counts_as_spent(written):
    whole = written.read_bytes()
    written.write_bytes(whole[:-1])
    assert len(ledger.read(written)[1]) == 5
    with Ledger.resume(written, sync=False) as book:
        assert book.length == 5
        assert not book.torn
    assert written.read_bytes() == whole


def test_an_existing_ledger_is_never_overwritten(written):
    with pytest.raises(LedgerError, match="already exists"):
        Ledger.create(written, {}, sync=False)


def test_the_event_is_on_file_before_append_returns(written):
    with Ledger.resume(written, sync=False) as book:
        book.append(event(77))
        assert ledger.read(written)[1][-1].step == 77


def test_the_book_keeps_nodes_apart(tmp_path):
    with LedgerBook.create(tmp_path, {3: {"delta": 1e-5}, 1234: {"delta": 1e-4}}, sync=False) as book:
        book.append(3, event(0))
        book.append(1234, event(0))
        book.append(1234, event(1))
        heads, counts = book.heads(), book.counts()
    assert sorted(os.listdir(tmp_path)) == ["node-003.jsonl", "node-1234.jsonl"]
    assert counts == {3: 1, 1234: 2}
    found = ledger.read_all(tmp_path)
    assert [len(found[node][1]) for node in (3, 1234)] == [1, 2]
    assert found[1234][0]["node"] == 1234
    for node, head in heads.items():
        ledger.verify(ledger.node_path(tmp_path, node), head=head, count=counts[node])
    with LedgerBook.resume(tmp_path, {3: {"delta": 1e-5}, 1234: {"delta": 1e-4}}, sync=False) as book:
        assert book.heads() == heads


def test_a_step_on_file_is_never_logged_again(tmp_path):
    headers = {0: {"delta": 1e-5}, 1: {"delta": 1e-5}}
    with LedgerBook.create(tmp_path, headers, sync=False) as book:
        for node, step in ((0, 0), (1, 0), (0, 1)):
            book.append(node, event(step))
    with LedgerBook.resume(tmp_path, headers, sync=False) as book:
        assert book.next_step == 2  # of any node
        with pytest.raises(LedgerError, match="step 1 of node 0 is on file"):
            book.append(0, event(1))
        book.append(1, event(1))


def test_a_seeded_run_may_repeat_what_is_on_file_but_nothing_else(tmp_path):
    headers = {0: {"delta": 1e-5}}
    with LedgerBook.create(tmp_path, headers, sync=False) as book:
        book.append(0, event(0))
        book.append(0, event(1))
    whole = ledger.node_path(tmp_path, 0).read_bytes()
    with LedgerBook.resume(tmp_path, headers, sync=False, repeats=True) as book:
        book.append(0, event(0))
        with pytest.raises(LedgerError, match="as another release"):
            book.append(0, event(1, sigma=2.0))
    assert ledger.node_path(tmp_path, 0).read_bytes() == whole


def test_a_resumed_ledger_is_held_against_what_a_checkpoint_knew(written):
    with Ledger.resume(written, sync=False) as book:
        known = (book.length, book.head)
        book.append(event(5))
    Ledger.resume(written, sync=False, known=known).close()
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(LedgerError, match="no longer holds the 5 events"):
        Ledger.resume(written, sync=False, known=known)


def test_a_resumed_ledger_must_belong_to_the_configuration(written):
    with pytest.raises(LedgerError, match="another configuration: its 'delta' differs"):
        Ledger.resume(written, sync=False, header={"node": 0, "delta": 1e-4})


@pytest.mark.parametrize("left", [b"", b'{"version":2,"no'])
def test_headers_that_a_stop_left_unwritten_are_written_if_nothing_had_happened(tmp_path, left):
    headers = {0: {"delta": 1e-5}, 1: {"delta": 1e-5}}
    LedgerBook.create(tmp_path, {0: headers[0]}, sync=False).close()
    ledger.node_path(tmp_path, 1).write_bytes(left)
    with LedgerBook.resume(tmp_path, headers, sync=False) as book:
        book.append(0, event(0))
        book.append(1, event(0))
    ledger.node_path(tmp_path, 1).unlink()
    with pytest.raises(LedgerError, match=r"node-001\.jsonl is missing"):
        LedgerBook.resume(tmp_path, headers, sync=False)


def test_more_nodes_than_descriptors(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    before = ledger._room_for
    try:
        ledger._room_for = lambda files: False  # as if the hard limit were no higher
        with LedgerBook.create(tmp_path, {node: {} for node in range(400)}, sync=False) as book:
            for node in range(400):
                book.append(node, event(0))
    finally:
        ledger._room_for = before
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(ledger.read_all(tmp_path)) == 400


def test_an_empty_directory_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="holds no ledger"):
        ledger.read_all(tmp_path)
