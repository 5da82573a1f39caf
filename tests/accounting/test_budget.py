"""The account beside the records: reserved before, settled after, one writer at a time, and no line changed unseen."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from tests.support.refusals import expect_refusal
from tests.support.spendings import full, spent

from gossamer.accounting import budget
from gossamer.accounting.budget import Account, History, Source, Spending, Total, total
from gossamer.accounting.chain import LedgerError
from gossamer.accounting.releases import Pairwise, Unnoised
from gossamer.accounting.secrets import Secrets
from gossamer.errors import UserError


@pytest.fixture
def source(tmp_path: Path) -> Source:
    file = tmp_path / "r.csv"
    file.write_text("1,2\n")
    return Source(file, "d" * 64, tmp_path / "accounts", "people")


@pytest.fixture
def path(source: Source) -> Path:
    """Of the account."""
    source.folder.mkdir()
    return source.folder / "people.jsonl"


def reserve(source: Source, spending: Spending, cap: float | None = None) -> Total:
    return budget.reserve(source, spending, cap)[1]


def test_a_reservation_stands_until_it_is_settled_for_what_happened(source: Source, path: Path) -> None:
    first = spent("a")
    assert reserve(source, first) == total([first])
    assert reserve(source, spent("b")) == total([first, spent("b")])
    less = replace(first, histories=(History((0,), ((full(10.0), 1),)),), settled=True)
    assert budget.settle(source, less) == total([less, spent("b")])
    assert Account(source).spendings == [replace(less, entry=1), spent("b")]
    assert len(path.read_bytes().splitlines()) == 4


def test_a_run_that_goes_on_is_counted_once(source: Source, path: Path) -> None:
    reserve(source, spent("a"), 100.0)
    before = path.read_bytes()
    again = replace(spent("a"), at="later")
    assert reserve(source, again, cap=1e-9) == total([again])  # it was allowed when it began
    assert path.read_bytes() == before


def test_a_cap_is_never_passed_and_a_refusal_writes_nothing(source: Source, path: Path) -> None:
    one, two = total([spent("a")]).epsilon, total([spent("a"), spent("b")]).epsilon
    with expect_refusal(key="privacy.cap", names="1e-05 add-remove"):
        reserve(source, spent("a"), one * 0.999)
    assert not path.exists()
    reserve(source, spent("a"), one * 1.001)
    before = path.read_bytes()
    with expect_refusal(key="privacy.cap", names=[f"{two:.4g}", f"{one:.4g}"]):
        reserve(source, spent("b"), two * 0.999)
    assert path.read_bytes() == before
    reserve(source, spent("b"))  # a run's cap binds that run


def test_the_owner_may_begin_the_file_with_a_cap(source: Source, path: Path) -> None:
    for first in (
        '{"version": 1, "kind": "budget", "cap": 0.01}\n',
        '{"version": 1, "kind": "budget", "cap": 9}',
    ):
        path.write_text(first)
        if "9" in first:
            reserve(source, spent("a"))
            assert Account(source).cap == 9
        else:
            with expect_refusal(key="people.jsonl", names="0.01"):
                reserve(source, spent("a"), 100.0)
            assert path.read_text() == first


def test_no_cap_lets_a_run_without_proof_or_privacy_pass(source: Source, path: Path) -> None:
    plain = Unnoised(sensitivity=math.inf, sampling="full", rate=1.0, adjacency="add-remove")
    with expect_refusal(key="privacy.cap", names="proven"):
        reserve(source, spent("a", (plain, 1)), 1e6)
    with expect_refusal(key="privacy.cap", names="seeded"):
        reserve(source, spent("a", no_privacy="seeded noise: no privacy"), 1e6)


@pytest.mark.parametrize("damage", ["changed", "removed", "swapped", "header", "foreign", "version"])
def test_damage_is_refused_and_located(source: Source, path: Path, damage: str) -> None:
    for run in "abc":
        reserve(source, spent(run))
    lines = path.read_bytes().splitlines(keepends=True)
    match damage:
        case "changed":
            lines[1] = lines[1].replace(b'"sigma":10.0', b'"sigma":90.0')
        case "removed":
            del lines[1]
        case "swapped":
            lines[1], lines[2] = lines[2], lines[1]
        case "header":
            lines[0] = lines[0].replace(b'"cap": null', b'"cap": 1e6')
        case "foreign":
            lines.insert(2, b"{}\n")
        case "version":
            lines[0] = lines[0].replace(b'"version": 1', b'"version": 7')
    path.write_bytes(b"".join(lines))
    for use in (lambda: Account(source), lambda: reserve(source, spent("d"))):
        with expect_refusal(key="people.jsonl", names=[path], error=LedgerError):
            use()
    assert path.read_bytes() == b"".join(lines)


def test_another_file_is_not_taken_for_a_budget(source: Source, path: Path) -> None:
    for text in ("not json\n", '{"version": 1}\n', '{"version": 1, "kind": "budget", "cap": -1}\n'):
        path.write_text(text)
        with expect_refusal(key="people.jsonl", names="1", error=LedgerError):
            reserve(source, spent("a"))


def test_a_line_that_its_writer_did_not_finish_does_not_count(source: Source, path: Path) -> None:
    """The write had not returned, so nothing had been released."""
    reserve(source, spent("a"))
    whole = path.read_bytes()
    mark = source.mark.read_bytes()
    reserve(source, spent("b"))
    path.write_bytes(path.read_bytes()[:-40])
    source.mark.write_bytes(mark)
    assert [s.run for s in Account(source).spendings] == ["a"]
    reserve(source, spent("c"))
    assert path.read_bytes().startswith(whole)
    assert [s.run for s in Account(source).spendings] == ["a", "c"]


def test_a_file_that_another_run_has_just_made_is_read_as_nothing(source: Source, path: Path) -> None:
    path.write_bytes(b"")  # opened and locked by another run, which has not written yet
    assert Account(source).spendings == []


def test_settling_what_is_no_longer_on_file_is_refused(source: Source, path: Path) -> None:
    reserve(source, spent("a"))
    with expect_refusal(key="people.jsonl", names="reserved", error=LedgerError):
        budget.settle(source, spent("b"))


def test_runs_at_once_take_turns_and_none_is_lost(source: Source, path: Path) -> None:
    """Sixteen at once under a cap that pays for ten: ten are let in, whatever the order."""
    cap = total([spent(str(i)) for i in range(10)]).epsilon * 1.0001
    refused: list[str] = []

    def begin(i: int) -> None:
        try:
            reserve(source, spent(str(i)), cap)
        except UserError:
            refused.append(str(i))

    threads = [threading.Thread(target=begin, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 6
    assert len(Account(source).spendings) == 10


def test_a_run_that_holds_the_file_for_too_long_is_named(
    source: Source, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PATIENCE", 0.1)
    with (
        FileLock(path.with_name(".lock")),
        expect_refusal(key="accounts", names="run", error=LedgerError),
    ):
        reserve(source, spent("a"))


def test_a_place_that_cannot_be_written_names_the_key_for_another(source: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with expect_refusal(key="accounts", names="data.accounts", remedy=True):
        reserve(replace(source, folder=tmp_path / "file" / "accounts"), spent("a"))
    if os.geteuid() == 0:
        return  # root may write everywhere
    (tmp_path / "closed").mkdir(mode=0o500)
    with expect_refusal(names="data.accounts"):
        reserve(replace(source, folder=tmp_path / "closed" / "accounts"), spent("a"))


def test_lines_are_strict_json_each_with_the_hash_of_the_one_before(source: Source, path: Path) -> None:
    reserve(source, spent("a"))
    reserve(source, spent("b"))
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[0])["kind"] == "budget"
    import hashlib

    for before, line in itertools.pairwise(lines):
        assert json.loads(line)["prev"] == hashlib.sha256(before).hexdigest()


def test_a_refusal_names_whom_the_total_holds_against(source: Source, path: Path) -> None:
    shared = Pairwise(
        sigma=10.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove", nodes=4, colluders=2,
        ratio=100.0, secrets=Secrets.complete(4).digest,
    )  # fmt: skip
    with expect_refusal(key="privacy.cap", value="1e-09", names="2", remedy=True):
        reserve(source, spent("a", (shared, 4)), 1e-9)
