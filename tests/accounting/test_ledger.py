"""The ledger of a block of nodes: what is written is read back, and what is not what was written is refused."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledgers import HEADER, resumed
from tests.support.refusals import expect_refusal
from tests.support.releases import event, gaussian

from gossamer.accounting.chain import digest
from gossamer.accounting.ledger import (
    Ledger,
    LedgerBook,
    LedgerError,
    ledger_paths,
    ledgers_in,
    read_all,
    read_ledger,
)
from gossamer.accounting.recompute import recompute, worst_epsilon
from gossamer.accounting.releases import Event

NODES = range(10, 16)


def headers(nodes=NODES):
    return {i: {**HEADER, "delta": 1e-5 if i % 2 else 1e-4, "public": {"records": i // 3}} for i in nodes}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with LedgerBook.create(path, headers(), sync=True) as book:
        for draw in range(4):
            book.write([(range(10, 13), event(draw)), ([13, 15], event(draw, sigma=3.0))])
        book.write([((14,), event(4, sigma=2.0))])
    return path


def test_nodes_that_do_the_same_are_one_line(written):
    lines = written.read_text().splitlines()
    assert len(lines) == 1 + 4 + 1
    assert "of" in json.loads(lines[1])
    assert "of" not in json.loads(lines[2])  # as in the line before
    assert json.loads(lines[5])["of"] == [[14, 14, 0]]
    by_node = read_all(written.parent)
    assert list(by_node) == list(NODES)
    assert [one.draw for one in by_node[11][1]] == [0, 1, 2, 3]
    assert by_node[15][1] == [event(draw, sigma=3.0) for draw in range(4)]
    assert by_node[14] == ({**headers()[14], "version": 1, "nodes": [10, 15]}, [event(4, sigma=2.0)])


def test_one_node_is_a_block_of_one(tmp_path):
    with LedgerBook.create(tmp_path / "ledger.jsonl", {7: HEADER}, sync=False) as book:
        for draw in range(3):
            book.write([((7,), event(draw, sigma=1 + draw / 3))])
        assert read_all(tmp_path)[7][1][-1] == event(2, sigma=1 + 2 / 3)  # before the book is closed
    for draw, line in enumerate((tmp_path / "ledger.jsonl").read_text().splitlines()[1:]):
        entry = json.loads(line)
        assert Event.from_json({k: v for k, v in entry.items() if k != "prev"}) == event(draw, sigma=1 + draw / 3)


def test_every_line_holds_the_hash_of_the_one_before(written):
    lines = written.read_bytes().splitlines(keepends=True)
    named = [json.loads(line)["prev"] for line in lines[1:]]
    assert named == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]
    assert read_ledger(written).head == hashlib.sha256(lines[-1]).hexdigest()


def full(draw: int, sigma: float) -> Event:
    """Priced in closed form."""
    return Event(draw, gaussian(sigma, sampling="full", rate=1.0))


Draws = st.lists(
    st.tuples(st.sets(st.integers(0, 5), min_size=1), st.sampled_from([1.0, 1.5, 2.0]), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(draws=Draws)
def test_a_block_and_a_ledger_for_each_node_have_the_same_events_and_epsilon(draws, tmp_path_factory):
    """Whoever releases when: nodes that stop, nodes apart, several events of a draw in one write."""
    folder = tmp_path_factory.mktemp("blocks")
    outcomes = []
    for name, blocks in (("one", [NODES]), ("each", [range(i, i + 1) for i in NODES])):
        ledgers = [
            Ledger.create(path, nodes, headers(), sync=False)
            for nodes, path in ledger_paths(folder / name, blocks).items()
        ]
        with LedgerBook(ledgers) as book:
            for draw, (nodes, sigma, split) in enumerate(draws):
                chosen = sorted(10 + i for i in nodes)
                first, rest = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
                parts = [(first, full(draw, sigma)), (rest, full(draw, 2 * sigma))]
                book.write([(own, one) for own, one in parts if own] if split else [(chosen, parts[0][1])])
            counts = book.counts()
        events = {node: own for node, (_, own) in read_all(folder / name).items()}
        assert {node: len(own) for node, own in events.items()} == counts
        proofs = [(p.node, p.draws, p.proven.epsilon, p.header["delta"]) for p in recompute(folder / name)]
        outcomes.append((events, proofs, worst_epsilon([folder / name])))
        assert len(list((folder / name).iterdir())) == len(blocks)
    assert outcomes[0] == outcomes[1]


def test_a_whole_line_without_its_end_counts_and_a_torn_one_is_moved_aside(written):
    whole = written.read_bytes()
    written.write_bytes(whole[:-1])
    assert len(read_all(written.parent)[14][1]) == 1
    with resumed(written.parent, headers()) as book:
        assert book.counts()[14] == 1
    assert written.read_bytes() == whole
    for cut in range(2, 60, 7):
        written.write_bytes(whole[:-cut])
        with expect_refusal(key="ledger.jsonl", names="6", error=LedgerError):
            read_ledger(written)
        with resumed(written.parent, headers()) as book:
            assert book.counts()[14] == 0
            assert book.counts()[10] == 4
        before = b"".join(whole.splitlines(keepends=True)[:-1])
        assert written.read_bytes() == before
        assert written.with_name("ledger.jsonl.torn").read_bytes() == whole[len(before) : -cut]


def test_a_resumed_ledger_continues_the_chain(written):
    with resumed(written.parent, headers()) as book:
        assert book.next_draw == 5  # of any node
        book.write([(NODES, event(5))])
    assert [one.draw for one in read_all(written.parent)[14][1]] == [4, 5]
    assert "of" in json.loads(written.read_text().splitlines()[-1])


def test_a_draw_on_file_is_refused_or_repeated_exactly(written):
    with (
        resumed(written.parent, headers()) as book,
        expect_refusal(key="draw", value="3", names="10", error=LedgerError),
    ):
        book.write([(NODES, event(3))])
    whole = written.read_bytes()
    with resumed(written.parent, headers(), repeats=True) as book:
        for draw in range(4):
            book.write([(range(10, 13), event(draw)), ([13, 15], event(draw, sigma=3.0))])
        book.write([((14,), event(4, sigma=2.0))])
        assert written.read_bytes() == whole
        book.write([(NODES, event(4))])  # of the others it is new; of node 14 its second event of that draw
    assert [one.draw for one in read_all(written.parent)[14][1]] == [4, 4]
    with (
        resumed(written.parent, headers(), repeats=True) as book,
        expect_refusal(key="draw", value="3", names="13", error=LedgerError),
    ):
        book.write([(NODES, event(3))])


def test_a_node_that_releases_twice_at_once_has_two_lines(tmp_path):
    with LedgerBook.create(tmp_path / "ledger.jsonl", headers(), sync=False) as book:
        book.write([(NODES, event(0)), ([12], event(0, sigma=5.0))])
        assert book.counts() == {10: 1, 11: 1, 12: 2, 13: 1, 14: 1, 15: 1}
    assert read_all(tmp_path)[12][1] == [event(0), event(0, sigma=5.0)]


def test_equal_events_of_nodes_that_are_written_apart_are_one(tmp_path):
    with LedgerBook.create(tmp_path / "ledger.jsonl", headers(), sync=False) as book:
        book.write([((node,), event(0, sigma=1.0 + (node == 12))) for node in NODES])
        book.write([((node,), event(1)) for node in (10, 13)])
    assert [one.release.sigma for one in read_all(tmp_path)[12][1]] == [2.0]
    assert read_all(tmp_path)[13][1] == [event(0), event(1)]
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 3


def chained(lines: list[bytes]) -> bytes:
    """A new chain over changed lines: what a forger would write."""
    chain = [lines[0]]
    for line in lines[1:]:
        payload = line.rpartition(b',"prev":"')[0]
        chain.append(payload + f',"prev":"{digest(chain[-1])}"}}\n'.encode())
    return b"".join(chain)


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'"draw":1', b'"draw":7'), *lines[3:]], 4),
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
        (lambda lines: [lines[0].replace(b"1e-05", b"1e-03"), *lines[1:]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [*lines[:3], b"{}\n", *lines[3:]], 4),
        (lambda lines: [], 1),
        (lambda lines: [lines[0].replace(b'"version": 1', b'"version": 2'), *lines[1:]], 1),
    ],
    ids=["changed", "missing", "reordered", "header", "no header", "foreign line", "empty", "version"],
)
def test_damage_is_found_and_located(written, damage, line):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(damage(lines)))
    with expect_refusal(key="ledger.jsonl", names=[f"line {line}"], error=LedgerError):
        recompute(written.parent)


def test_a_cut_tail_and_a_new_chain_need_the_certified_head(written):
    with resumed(written.parent, headers()) as book:
        heads, counts, marks = book.heads(), book.counts(), book.marks()

    def as_certified() -> bool:
        return all(
            (proof.draws, proof.head) == (counts[proof.node], heads[proof.node]) for proof in recompute(written.parent)
        )

    assert as_certified()
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:-2]))
    assert not as_certified()
    with expect_refusal(key="ledger.jsonl", names="5", error=LedgerError):
        resumed(written.parent, headers(), known=marks)
    for number, old, new in ((1, b'"sigma":[', b'"sigma":[9'), (5, b"[[14,14,0]]", b"[[14,14,0]] ")):
        forged = list(lines)
        forged[number] = forged[number].replace(old, new)
        assert forged != lines
        written.write_bytes(chained(forged))
        assert len(read_all(written.parent)) == len(NODES)  # the chain alone cannot know
        assert not as_certified()


EVENT = b'"draw":9,"kind":"gaussian","sensitivity":1.0,"sampling":"full","rate":1.0,"adjacency":"add-remove"'


@pytest.mark.parametrize(
    "entry",
    [
        b'{"of":[[10,15,0]]',
        b'{"draw":9,"kind":"gaussian","sigma":1.0,"of":[[10,15,0]]',
        b'{"columns":{"sigma":[1.0]},"of":[[10,15,0]]',
        b"[1,2",
        b"{" + EVENT + b',"columns":{"sigma":"12"},"of":[[10,12,0],[13,15,1]]',
        b"{" + EVENT + b',"sigma":1.0,"columns":{"draw":[0]},"of":[[10,15,0]]',
        b"{" + EVENT + b',"columns":{"sigma":[1.0,2.0],"pass":[5]},"of":[[10,15,0]]',
        b"{" + EVENT + b',"columns":{"sigma":[1.0,2.0]}',
        b"{" + EVENT + b',"sigma":1.0,"more":1',
        b"{" + EVENT + b',"sigma":1.0,"step":0.5',
        b"{" + EVENT + b',"sigma":"2e5"',
        b"{" + EVENT + b',"sigma":1.0,"sigma":2.0',
        b"{" + EVENT + b',"sigma":1.0,"of":[[10,10,0]],"of":[[10,15,0]]',
    ],
)
def test_lines_that_no_run_writes_are_one_sentence(written, entry):
    first = written.read_bytes().splitlines(keepends=True)[0]
    written.write_bytes(first + entry + f',"prev":"{digest(first)}"}}\n'.encode())
    with expect_refusal(key="ledger.jsonl", names="2", error=LedgerError):
        read_all(written.parent)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"nodes": [10, 15]', '"nodes": [15, 10]'),
        ('"nodes": [10, 15]', '"nodes": [10, 9999999]'),
        ('"nodes": [10, 15]', '"nodes": 10'),
        ('"adjacency":', '"delta": 0.5, "adjacency":'),  # next to each node's own
    ],
)
def test_headers_that_no_run_writes_are_one_sentence(written, old, new):
    lines = written.read_text().splitlines(keepends=True)
    assert old in lines[0]
    lines[0] = lines[0].replace(old, new)
    written.write_bytes(chained([line.encode() for line in lines]))
    with expect_refusal(key="ledger.jsonl", names="1", error=LedgerError):
        read_all(written.parent)


def test_no_node_has_two_ledgers(written):
    other = written.with_name("ledger-012.jsonl")
    Ledger.create(other, range(12, 20), headers(range(12, 20)), sync=False).close()
    with expect_refusal(key="ledger-012.jsonl", names="ledgers", error=LedgerError):
        read_all(written.parent)
    other.rename(written.with_name("ledger-014.jsonl"))
    with expect_refusal(key="ledger-014.jsonl", names="nodes name", error=LedgerError):
        ledgers_in(written.parent)


def test_a_process_hosts_all_nodes_of_a_ledger_or_none(written):
    with expect_refusal(key="ledger.jsonl", names="host", error=LedgerError):
        resumed(written.parent, headers(range(12, 16)))
    with expect_refusal(key="ledger", names="16", error=LedgerError):
        resumed(written.parent, headers(range(10, 18)))
    paths = ledger_paths(written.parent, [NODES, range(16, 18)])
    with expect_refusal(key="ledger-016.jsonl", names="empty", error=LedgerError):
        LedgerBook.resume(paths, headers(range(10, 18)), sync=False)


def test_one_process_takes_over_the_ledgers_of_several(written):
    path = written.with_name("ledger-016.jsonl")
    Ledger.create(path, range(16, 18), headers(range(16, 18)), sync=False).close()
    with resumed(written.parent, headers(range(10, 18))) as book:
        book.write([(range(10, 18), event(5))])
        assert sorted(book.marks()) == [10, 16]
    assert [one.draw for one in read_all(written.parent)[17][1]] == [5]


def test_a_header_of_another_configuration_is_refused(written):
    others = {i: {**own, "unit": "one person"} for i, own in headers().items()}
    with expect_refusal(key="ledger.jsonl", names="unit", error=LedgerError):
        resumed(written.parent, others)


@pytest.mark.parametrize("left", [b"", b'{"version":1,"no', None])
def test_a_header_that_a_stop_left_unwritten_is_written_if_nothing_had_happened(tmp_path, left):
    paths = ledger_paths(tmp_path, [NODES])
    path = tmp_path / "ledger.jsonl"
    if left is not None:
        path.write_bytes(left)
    with LedgerBook.resume(paths, headers(), sync=False) as book:
        book.write([(NODES, event(0))])
    path.unlink()
    with expect_refusal(key="ledger.jsonl", names="empty", error=LedgerError):
        LedgerBook.resume(paths, headers(), sync=False, known={10: (1, "0" * 64)})


def test_an_existing_ledger_is_never_overwritten(written):
    with expect_refusal(key="ledger.jsonl", names="exists", error=LedgerError):
        LedgerBook.create(written, headers(), sync=False)


def test_a_line_that_could_not_be_written_does_not_count(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    with LedgerBook.create(path, headers(), sync=False) as book:
        book.write([(NODES, event(0))])
        before = book.marks()
        with monkeypatch.context() as patch:
            patch.setattr("os.write", lambda fd, line: len(line) // 2)
            with pytest.raises(OSError, match="bytes of a ledger line"):
                book.write([(NODES, event(1))])
        assert book.marks() == before
        book.write([(NODES, event(2))])
    assert "of" in json.loads(path.read_text().splitlines()[-1])


def test_a_directory_without_a_ledger_is_a_users_mistake(tmp_path, written):
    with expect_refusal(key="empty", names="ledger"):
        read_all(tmp_path / "empty")
    with expect_refusal(names="3"):
        recompute(tmp_path, [3, 12])
