"""The account beside the records: reserved before, settled after, one writer at a time, and no line changed unseen."""

from __future__ import annotations

import itertools
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from tests.support.spendings import full, spent

from gossamer.accounting import budget
from gossamer.accounting.budget import History, total
from gossamer.accounting.chain import LedgerError
from gossamer.accounting.releases import Pairwise
from gossamer.accounting.secrets import Secrets
from gossamer.errors import UserError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.jsonl"


def test_a_reservation_stands_until_it_is_settled_for_what_happened(path: Path) -> None:
    first = spent("a")
    assert budget.reserve(path, first, None) == total([first])
    assert budget.reserve(path, spent("b"), None) == total([first, spent("b")])
    less = replace(first, histories=(History((0,), ((full(10.0), 1),)),), settled=True)
    assert budget.settle(path, less) == total([less, spent("b")])
    assert budget.read(path).of("r.csv", "d") == [less, spent("b")]
    assert len(path.read_bytes().splitlines()) == 4


def test_a_run_that_goes_on_is_counted_once(path: Path) -> None:
    budget.reserve(path, spent("a"), 100.0)
    before = path.read_bytes()
    again = replace(spent("a"), at="later")
    assert budget.reserve(path, again, cap=1e-9) == total([again])  # it was allowed when it began
    assert path.read_bytes() == before


def test_a_cap_is_never_passed_and_a_refusal_writes_nothing(path: Path) -> None:
    one, two = total([spent("a")]).epsilon, total([spent("a"), spent("b")]).epsilon
    with pytest.raises(
        UserError,
        match=r"privacy\.cap = .* \(δ = 1e-05, add-remove, unit: one record of one node; observer: everyone",
    ):
        budget.reserve(path, spent("a"), one * 0.999)
    assert not path.exists()
    budget.reserve(path, spent("a"), one * 1.001)
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"proven ε = {two:.4g} after {one:.4g} so far"):
        budget.reserve(path, spent("b"), two * 0.999)
    assert path.read_bytes() == before
    budget.reserve(path, spent("b"), None)  # a run's cap binds that run


def test_the_owner_may_begin_the_file_with_a_cap(path: Path) -> None:
    for first in (
        '{"version": 1, "kind": "budget", "cap": 0.01}\n',
        '{"version": 1, "kind": "budget", "cap": 9}',
    ):
        path.write_text(first)
        if "9" in first:
            budget.reserve(path, spent("a"), None)
            assert budget.read(path).cap == 9
        else:
            with pytest.raises(UserError, match=r"budget\.jsonl has the cap 0\.01 in its first line"):
                budget.reserve(path, spent("a"), 100.0)
            assert path.read_text() == first


def test_a_release_without_proof_passes_every_cap(path: Path) -> None:
    with pytest.raises(UserError, match=r"proven ε = inf \(a .*seeded noise"):
        budget.reserve(path, spent("a", no_privacy="seeded noise: no privacy"), 1e6)


@pytest.mark.parametrize("damage", ["changed", "removed", "swapped", "header", "foreign", "version"])
def test_damage_is_refused_and_located(path: Path, damage: str) -> None:
    for run in "abc":
        budget.reserve(path, spent(run), None)
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
    for use in (lambda: budget.read(path), lambda: budget.reserve(path, spent("d"), None)):
        with pytest.raises(LedgerError, match=rf"{path} line \d"):
            use()
    assert path.read_bytes() == b"".join(lines)


def test_another_file_is_not_taken_for_a_budget(path: Path) -> None:
    for text in ("not json\n", '{"version": 1}\n', '{"version": 1, "kind": "budget", "cap": -1}\n'):
        path.write_text(text)
        with pytest.raises(LedgerError, match="line 1"):
            budget.reserve(path, spent("a"), None)


def test_a_line_that_its_writer_did_not_finish_does_not_count(path: Path) -> None:
    """The write had not returned, so nothing had been released."""
    budget.reserve(path, spent("a"), None)
    whole = path.read_bytes()
    budget.reserve(path, spent("b"), None)
    path.write_bytes(path.read_bytes()[:-40])
    assert [s.run for s in budget.read(path).spendings] == ["a"]
    budget.reserve(path, spent("c"), None)
    assert path.read_bytes().startswith(whole)
    assert [s.run for s in budget.read(path).spendings] == ["a", "c"]


def test_a_file_that_another_run_has_just_made_is_read_as_nothing(path: Path) -> None:
    path.write_bytes(b"")  # opened and locked by another run, which has not written yet
    assert budget.read(path) == budget.NOTHING


def test_settling_what_is_no_longer_on_file_is_refused(path: Path) -> None:
    budget.reserve(path, spent("a"), None)
    with pytest.raises(LedgerError, match="no longer holds"):
        budget.settle(path, spent("b"))


def test_runs_at_once_take_turns_and_none_is_lost(path: Path) -> None:
    """Sixteen at once under a cap that pays for ten: ten are let in, whatever the order."""
    cap = total([spent(str(i)) for i in range(10)]).epsilon * 1.0001
    refused: list[str] = []

    def begin(i: int) -> None:
        try:
            budget.reserve(path, spent(str(i)), cap)
        except UserError:
            refused.append(str(i))

    threads = [threading.Thread(target=begin, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 6
    assert len(budget.read(path).spendings) == 10


def test_a_run_that_holds_the_file_for_too_long_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PATIENCE", 0.1)
    with (
        FileLock(path.with_name(".budget.jsonl.lock")),
        pytest.raises(LedgerError, match="held by another run"),
    ):
        budget.reserve(path, spent("a"), None)


def test_a_place_that_cannot_be_written_names_the_key_for_another(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    with pytest.raises(UserError, match=r"data\.budget = "):
        budget.reserve(folder / "budget.jsonl", spent("a"), None)
    if os.geteuid() == 0:
        return  # root may write everywhere
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(UserError, match=r"Permission denied.*data\.budget = "):
        budget.reserve(closed / "budget.jsonl", spent("a"), None)


def test_lines_are_strict_json_each_with_the_hash_of_the_one_before(path: Path) -> None:
    budget.reserve(path, spent("a"), None)
    budget.reserve(path, spent("b"), None)
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[0])["kind"] == "budget"
    import hashlib

    for before, line in itertools.pairwise(lines):
        assert json.loads(line)["prev"] == hashlib.sha256(before).hexdigest()


def test_a_refusal_names_whom_the_total_holds_against(path: Path) -> None:
    shared = Pairwise(
        sigma=10.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove", nodes=4, colluders=2,
        ratio=100.0, secrets=Secrets.complete(4).digest,
    )  # fmt: skip
    with pytest.raises(UserError, match="observer: any 2 of the nodes together"):
        budget.reserve(path, spent("a", (shared, 4)), 1e-9)
