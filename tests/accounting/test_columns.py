"""One ledger for many nodes: the same events, the same ε, the same refusals as a ledger each."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.releases import event, gaussian

from gossamer.accounting import ledger
from gossamer.accounting.chain import digest
from gossamer.accounting.columns import columns_in, columns_path, parse_columns, read_columns
from gossamer.accounting.ledger import LedgerBook, LedgerError, read_all
from gossamer.accounting.recompute import check_certificate, recompute, worst_epsilon
from gossamer.accounting.releases import Event

NODES = range(10, 16)
COMMON = {"adjacency": "add-remove", "unit": "one record of one node", "noise": "system"}


def headers(nodes=NODES):
    return {i: {"delta": 1e-5 if i % 2 else 1e-4, **COMMON, "public": {"records": i // 3}} for i in nodes}


@pytest.fixture
def together(monkeypatch):
    """Every process hosts many nodes."""
    monkeypatch.setattr(ledger, "MANY", 1)


@pytest.fixture
def written(together, tmp_path):
    with LedgerBook.create(tmp_path, headers(), sync=True) as book:
        for step in range(4):
            book.write([(range(10, 13), event(step)), ([13, 15], event(step, sigma=3.0))])
        book.append(14, event(4, sigma=2.0))
    return columns_path(tmp_path, NODES)


def test_nodes_that_do_the_same_are_one_line(written):
    lines = written.read_text().splitlines()
    assert len(lines) == 1 + 4 + 1
    assert "of" in json.loads(lines[1])
    assert "of" not in json.loads(lines[2])  # as in the line before
    assert json.loads(lines[5])["of"] == [[14, 14, 0]]
    found = read_all(written.parent)
    assert list(found) == list(NODES)
    assert [one.step for one in found[11][1]] == [0, 1, 2, 3]
    assert found[12][1] is not found[13][1]
    assert found[15][1] == [event(step, sigma=3.0) for step in range(4)]
    assert found[14] == ({**headers()[14], "version": 4, "nodes": [10, 15]}, [event(4, sigma=2.0)])


def test_few_nodes_keep_a_file_each(tmp_path):
    with LedgerBook.create(tmp_path, headers(), sync=False):
        pass
    assert len(list(tmp_path.glob("node-*.jsonl"))) == len(NODES)
    assert ledger.ledgers_for(range(1000)) == [range(i, i + 1) for i in range(1000)]
    assert ledger.ledgers_for(range(5, 2005)) == [range(5, 2005)]


def full(step: int, sigma: float) -> Event:
    """Priced in closed form."""
    return Event(step, gaussian(sigma, sampling="full", rate=1.0))


Draws = st.lists(
    st.tuples(st.sets(st.integers(0, 5), min_size=1), st.sampled_from([1.0, 1.5, 2.0]), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(draws=Draws)
def test_both_forms_have_the_same_events_and_the_same_epsilon(draws, tmp_path_factory):
    """Whoever releases when: nodes that stop, nodes apart, several events of a draw in one write."""
    folder = tmp_path_factory.mktemp("forms")
    found = []
    for many in (1000, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "MANY", many)
            with LedgerBook.create(folder / str(many), headers(), sync=False) as book:
                for step, (nodes, sigma, split) in enumerate(draws):
                    chosen = sorted(10 + i for i in nodes)
                    first, rest = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
                    parts = [(first, full(step, sigma)), (rest, full(step, 2 * sigma))]
                    book.write(
                        [(own, one) for own, one in parts if own] if split else [(chosen, parts[0][1])]
                    )
                counts = book.counts()
        events = {node: own for node, (_, own) in read_all(folder / str(many)).items()}
        assert {node: len(own) for node, own in events.items()} == counts
        proofs = recompute(folder / str(many))
        found.append((events, [(p.node, p.draws, p.proven.epsilon, p.header["delta"]) for p in proofs]))
        found[-1] += (worst_epsilon([folder / str(many)]),)
    assert found[0] == found[1]
    assert len(list((folder / "1").iterdir())) == 1


def test_a_whole_line_without_its_end_counts_and_a_torn_one_is_moved_aside(written, together):
    whole = written.read_bytes()
    written.write_bytes(whole[:-1])
    with LedgerBook.resume(written.parent, headers(), sync=False) as book:
        assert book.counts()[14] == 1
    assert written.read_bytes() == whole
    for cut in range(2, 60, 7):
        written.write_bytes(whole[:-cut])
        with pytest.raises(LedgerError, match="line 6 is incomplete"):
            read_columns(written, NODES)
        with LedgerBook.resume(written.parent, headers(), sync=False) as book:
            assert book.counts()[14] == 0
            assert book.counts()[10] == 4
        before = b"".join(whole.splitlines(keepends=True)[:-1])
        assert written.read_bytes() == before
        assert written.with_name(written.name + ".torn").read_bytes() == whole[len(before) : -cut]


def test_it_goes_on_in_the_same_chain(written, together):
    with LedgerBook.resume(written.parent, headers(), sync=False) as book:
        assert book.next_step == 5
        book.write([(NODES, event(5))])
    assert [one.step for one in read_all(written.parent)[14][1]] == [4, 5]
    assert "of" in json.loads(written.read_text().splitlines()[-1])


def test_a_step_on_file_is_refused_or_found_again(written, together):
    with (
        LedgerBook.resume(written.parent, headers(), sync=False) as book,
        pytest.raises(LedgerError, match="step 3 of node 10 is on file: its noise"),
    ):
        book.write([(NODES, event(3))])
    whole = written.read_bytes()
    with LedgerBook.resume(written.parent, headers(), sync=False, repeats=True) as book:
        for step in range(4):
            book.write([(range(10, 13), event(step)), ([13, 15], event(step, sigma=3.0))])
        book.append(14, event(4, sigma=2.0))
        assert written.read_bytes() == whole
        book.write([(NODES, event(4))])  # of the others it is new; of node 14 its second event of that step
    assert [one.step for one in read_all(written.parent)[14][1]] == [4, 4]
    with (
        LedgerBook.resume(written.parent, headers(), sync=False, repeats=True) as book,
        pytest.raises(LedgerError, match="step 3 of node 13 is on file as another release"),
    ):
        book.write([(NODES, event(3))])


def test_a_node_that_releases_twice_at_once_has_two_lines(together, tmp_path):
    with LedgerBook.create(tmp_path, headers(), sync=False) as book:
        book.write([(NODES, event(0)), ([12], event(0, sigma=5.0))])
        assert book.counts() == {10: 1, 11: 1, 12: 2, 13: 1, 14: 1, 15: 1}
    assert read_all(tmp_path)[12][1] == [event(0), event(0, sigma=5.0)]


def chained(lines: list[bytes]) -> bytes:
    """A chain made anew over changed lines: what whoever forges it would write."""
    made = [lines[0]]
    for line in lines[1:]:
        payload = line.rpartition(b',"prev":"')[0]
        made.append(payload + f',"prev":"{digest(made[-1])}"}}\n'.encode())
    return b"".join(made)


@pytest.mark.parametrize("how", ["changed", "removed", "reordered", "nodes", "header"])
def test_what_is_not_what_was_written_is_named(written, how):
    lines = written.read_bytes().splitlines(keepends=True)
    if how == "changed":
        lines[2] = lines[2].replace(b'"step":1', b'"step":7')
    elif how == "nodes":
        lines[5] = lines[5].replace(b"[[14,14,0]]", b"[[15,15,0]]")
    elif how == "removed":
        del lines[3]
    elif how == "reordered":
        lines[2], lines[3] = lines[3], lines[2]
    else:
        lines[0] = lines[0].replace(b"1e-05", b"1e-06")
    assert lines != written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="does not follow"):
        recompute(written.parent) if how != "nodes" else _certified(written, lines)


def _certified(path: Path, lines: list[bytes]) -> None:
    """The last line has nothing behind it that would show it: the certificate's head does."""
    certificate = path.parent / "certificate.json"
    heads, counts = dict.fromkeys(NODES, "0" * 64), {i: len(e) for i, (_, e) in read_all(path.parent).items()}
    certificate.write_text(
        json.dumps(
            {"ledger_heads": [heads.get(i) for i in range(16)], "draws": [counts.get(i) for i in range(16)]}
        )
    )
    with pytest.raises(LedgerError, match="ends in hash"):
        check_certificate(path.parent, certificate, NODES)
    raise LedgerError("does not follow")


def test_a_cut_tail_and_a_chain_made_anew_need_the_certified_head(written, together):
    with LedgerBook.resume(written.parent, headers(), sync=False) as book:
        heads, counts, marks = book.heads(), book.counts(), book.marks()
    certificate = written.parent / "certificate.json"
    said = {"ledger_heads": [heads.get(i) for i in range(16)], "draws": [counts.get(i) for i in range(16)]}
    certificate.write_text(json.dumps(said))
    assert check_certificate(written.parent, certificate, NODES)
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(LedgerError, match="holds 3 events where 4 were certified"):
        check_certificate(written.parent, certificate, NODES)
    with pytest.raises(LedgerError, match="no longer holds the 5 lines that a checkpoint saw"):
        LedgerBook.resume(written.parent, headers(), sync=False, known=marks)
    forged = [*lines[:1], lines[1].replace(b'"each":{"sigma":[', b'"each":{"sigma":[9'), *lines[2:]]
    written.write_bytes(chained(forged))
    assert len(read_all(written.parent)) == len(NODES)  # the chain alone cannot know
    with pytest.raises(LedgerError, match="ends in hash"):
        check_certificate(written.parent, certificate, NODES)


@pytest.mark.parametrize(
    "entry",
    [
        b'{"alike":{},"of":[[10,15,0]]',
        b'{"alike":{"step":9,"kind":"gaussian","sigma":1.0},"of":[[10,15,0]]',
        b'{"each":{"sigma":[1.0]},"of":[[10,15,0]]',
        b"[1,2",
        b'{"alike":[],"of":[[10,15,0]]',
        b'{"alike":{"step":0},"each":{"sigma":"12"},"of":[[10,12,0],[13,15,1]]',
        b'{"alike":{"step":0},"each":{"step":[0]},"of":[[10,15,0]]',
        b'{"alike":{"step":0},"each":{"sigma":[1.0,2.0],"rate":[0.5]},"of":[[10,15,0]]',
        b'{"alike":{"step":0},"more":1,"of":[[10,15,0]]',
    ],
)
def test_lines_that_no_run_writes_are_one_sentence(written, entry):
    first = written.read_bytes().splitlines(keepends=True)[0]
    written.write_bytes(first + entry + f',"prev":"{digest(first)}"}}\n'.encode())
    with pytest.raises(LedgerError, match="line 2 is not a ledger line"):
        read_all(written.parent)


def test_the_nodes_of_a_line_must_be_said_once(written):
    """A line without `of` behind one of other events would be about nobody knows whom."""
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(chained([lines[0], lines[2]]))
    with pytest.raises(LedgerError, match="line 2 is not a ledger line"):
        read_all(written.parent)


def test_a_header_must_be_of_the_nodes_in_the_name(written, tmp_path):
    other = columns_path(tmp_path, range(20, 26))
    written.rename(other)
    with pytest.raises(LedgerError, match="other nodes than its name says"):
        parse_columns(other, other.read_bytes().splitlines(keepends=True)[0], lenient=False)


def test_no_node_has_two_ledgers(written, together):
    ledger.Ledger.create(ledger.node_path(written.parent, 12), {"node": 12}, sync=False).close()
    with pytest.raises(LedgerError, match="a node that has another here"):
        read_all(written.parent)
    with pytest.raises(LedgerError, match="a node that has another here"):
        LedgerBook.resume(written.parent, headers(), sync=False)
    ledger.node_path(written.parent, 12).unlink()
    columns_path(written.parent, range(12, 20)).write_bytes(b"")
    with pytest.raises(LedgerError, match="are ledgers of the same nodes"):
        columns_in(written.parent)


def test_a_process_hosts_all_nodes_of_a_ledger_or_none(written, together):
    with pytest.raises(LedgerError, match="to host only some of them"):
        LedgerBook.resume(written.parent, headers(range(12, 16)), sync=False)
    more = headers(range(10, 18))
    with pytest.raises(LedgerError, match="missing or empty although the run had begun"):
        LedgerBook.resume(written.parent, more, sync=False)


def test_a_header_of_another_configuration_is_refused(written, together):
    others = {i: {**own, "unit": "one person"} for i, own in headers().items()}
    with pytest.raises(LedgerError, match="another configuration: its 'unit' differs"):
        LedgerBook.resume(written.parent, others, sync=False)


@pytest.mark.parametrize("left", [b"", b'{"version":4,"no'])
def test_a_header_that_a_stop_left_unwritten_is_written_if_nothing_had_happened(together, tmp_path, left):
    path = columns_path(tmp_path, NODES)
    path.write_bytes(left)
    with LedgerBook.resume(tmp_path, headers(), sync=False) as book:
        book.write([(NODES, event(0))])
    path.unlink()
    with pytest.raises(LedgerError, match="missing or empty although the run had begun"):
        LedgerBook.resume(tmp_path, headers(), sync=False, known={10: (1, "0" * 64)})


def test_a_line_that_could_not_be_written_is_not_said_to_be(together, tmp_path, monkeypatch):
    with LedgerBook.create(tmp_path, headers(), sync=False) as book:
        book.write([(NODES, event(0))])
        before = book.marks()
        with monkeypatch.context() as patch:
            patch.setattr("os.write", lambda fd, line: len(line) // 2)
            with pytest.raises(OSError, match="bytes of a ledger line"):
                book.write([(NODES, event(1))])
        assert book.marks() == before
        book.write([(NODES, event(2))])
    assert "of" in json.loads(columns_path(tmp_path, NODES).read_text().splitlines()[-1])


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (1, '"of":', '"of":[[10,10,0]],"of":'),
        (1, '"alike":', '"alike":{},"alike":'),
        (0, '"adjacency":', '"delta": 0.5, "adjacency":'),  # beside each node's own
        (5, '"sigma":2.0', '"sigma":"2e5"'),
    ],
)
def test_nothing_is_said_twice_or_as_text(written, line, old, new):
    lines = written.read_bytes().splitlines(keepends=True)
    assert old.encode() in lines[line]
    lines[line] = lines[line].replace(old.encode(), new.encode(), 1)
    written.write_bytes(chained(lines))
    with pytest.raises(LedgerError):
        recompute(written.parent)
