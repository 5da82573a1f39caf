"""Runs on the same records of one's own share an account: what each spends is on file, and all of it is composed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.own_records import on_table, write_table
from tests.support.pool import Pool
from tests.support.refusals import expect_refusal

from gossamer.accounting.budget import Account, default_folder
from gossamer.accounting.ledger import read_all
from gossamer.accounting.recompute import worst_epsilon
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.runtime.group import Alone
from gossamer.training import api
from gossamer.training.assemble import assemble
from gossamer.training.budget import Accounts, charge, places, preview, refuse_above_cap
from gossamer.training.plan import Plan
from gossamer.training.run import Run, execute


def stop_in_first_round(table: Path, out: Path) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(assemble(Plan.of(resolve(on_table(table)))), out=out, on_round=stop)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "records").mkdir()
    return write_table(tmp_path / "records" / "all.csv")


def account(table: Path, **data: Any) -> Account:
    return Account(places(resolve(on_table(table, **data), {}), None, range(3))[0].source)


def account_files() -> list[Path]:
    """Those of the test's own user."""
    return sorted(default_folder().glob("*.jsonl"))


def test_the_total_is_the_composition_of_all_ledgers(table: Path, tmp_path: Path) -> None:
    """Against the ledgers themselves, priced together."""
    runs = [api.run(on_table(table), {"rounds": rounds}, out=tmp_path / str(rounds)) for rounds in (2, 5)]
    together = worst_epsilon([run.directory for run in runs])
    stated = runs[1].certificate["budget"]
    assert stated["epsilon"] == pytest.approx(together, rel=1e-9)
    assert together > 1.3 > runs[1].certificate["epsilon_proven"]
    assert runs[0].certificate["budget"]["epsilon"] == pytest.approx(runs[0].certificate["epsilon_proven"], rel=1e-9)
    assert (stated["runs"], stated["delta"], stated["adjacency"]) == (2, 1e-5, "add-remove")
    assert stated["unit"]
    assert stated["observer"]
    assert runs[1].result["budget"] == stated
    assert [s.settled for s in account(table).spendings] == [True, True]


def test_a_run_reserves_before_its_first_release_and_a_crash_leaves_that(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.mechanism.reader import PrivateGradient

    seen: list[int] = []

    def crash(self: Any, points: Any) -> Any:
        seen.append(len(account(table).spendings))
        raise RuntimeError("power cut")

    monkeypatch.setattr(PrivateGradient, "__call__", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        api.run(on_table(table), out=tmp_path / "run")
    assert seen == [1]
    (left,) = account(table).spendings
    assert not left.settled
    assert sum(count for _, count in left.histories[0].releases) == 2  # all that was planned


def test_a_resumed_run_counts_once(table: Path, tmp_path: Path) -> None:
    parts = assemble(Plan.of(resolve(on_table(table), {"rounds": 4})))

    def stop(done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(parts, out=tmp_path / "run", on_round=stop)
    reserved = account(table).spendings
    outcome = api.resume(tmp_path / "run")
    (settled,) = account(table).spendings
    assert settled.run == reserved[0].run
    assert outcome.certificate["budget"]["runs"] == 1
    assert outcome.certificate["budget"]["epsilon"] == pytest.approx(outcome.certificate["epsilon_proven"], rel=1e-9)


def test_a_run_that_cannot_begin_spends_nothing(table: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("")
    with expect_refusal(key="--out", names="empty"):
        api.run(on_table(table), out=tmp_path / "taken")
    assert preview([(api.plan(on_table(table)), 0)], None)["epsilon"] == 0.0  # type: ignore[index]


def test_a_cap_refuses_the_run_before_anything_is_written(table: Path, tmp_path: Path) -> None:
    api.run(on_table(table), out=tmp_path / "a")
    (path,) = account_files()
    before = path.read_bytes()
    with expect_refusal(key="privacy.cap", value="1.2"):
        api.run(on_table(table), {"privacy.cap": 1.2}, out=tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert path.read_bytes() == before
    api.run(on_table(table), {"privacy.cap": 2.0}, out=tmp_path / "b")
    with expect_refusal(key="privacy.cap", value="2"):
        refuse_above_cap([(api.plan(on_table(table), {"privacy.cap": 2.0}), 3)], None)


def test_what_was_drawn_is_settled_not_what_was_planned(table: Path, tmp_path: Path) -> None:
    """Nobody writes the shared model with controller = pass-end but at a pass's end: fewer releases than turns."""
    asked = on_table(table) | {"algorithm": {"kind": "without-replacement", "lr": 0.1, "controller": "pass-end"}}
    asked["privacy"] = {
        "epsilon": 1.0,
        "sampling": {"kind": "one-pass", "lot": 10},
        "adjacency": "replace-one",
    }
    asked["model"] = {"kind": "one-vs-all"}
    run = api.run(asked, {"rounds": 6}, out=tmp_path / "run")
    (settled,) = account(table).spendings
    _, events = read_all(run.directory)[0]
    assert sum(count for _, count in settled.histories[0].releases) == len(events) < 6


@pytest.mark.parametrize("change", [{"privacy.noise.source": "seeded"}, {"baseline": "non-private"}])
def test_a_run_without_privacy_costs_nothing_and_no_cap_lets_it_pass(
    table: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    good = api.run(on_table(table), out=tmp_path / "a").certificate["budget"]
    unprotected = api.run(on_table(table), change, out=tmp_path / "b").certificate["budget"]
    assert unprotected["epsilon"] == pytest.approx(good["epsilon"], rel=1e-9)
    assert (unprotected["runs"], unprotected["unprotected"]) == (1, 1)
    with expect_refusal(key="privacy.cap"):
        api.run(on_table(table), {**change, "privacy.cap": 50.0}, out=tmp_path / "c")
    with expect_refusal(key="privacy.cap"):
        refuse_above_cap([(api.plan(on_table(table), {**change, "privacy.cap": 50.0}), 1)], None)
    assert not (tmp_path / "c").exists()


def test_every_node_with_a_file_of_its_own_has_its_own_account(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i)
    asked = on_table(tmp_path / "{node}" / "clinic.csv")
    api.run(asked, out=tmp_path / "a")
    # A second study with two of the clinics only: theirs is what grows.
    asked["nodes"] = 2
    second = api.run(asked, out=tmp_path / "b")
    assert [len(account(tmp_path / str(i) / "clinic.csv").spendings) for i in range(3)] == [2, 2, 1]
    assert second.certificate["budget"]["runs"] == 2
    # So have files in one folder.
    for i in range(2):
        write_table(tmp_path / f"site-{i}.csv", seed=10 + i)
    third = api.run({**asked, "data": {**asked["data"], "path": str(tmp_path / "site-{node}.csv")}}, out=tmp_path / "c")
    assert third.certificate["budget"]["runs"] == 1
    assert len(account_files()) == 5


def test_a_process_keeps_the_accounts_of_its_own_nodes_only(tmp_path: Path) -> None:
    for i in range(3):
        write_table(tmp_path / f"site-{i}.csv", seed=i)
    config = resolve(on_table(tmp_path / "site-{node}.csv"), {})
    assert [p.source.file.name for p in places(config, None, range(1, 2))] == ["site-1.csv"]
    shared = resolve(on_table(tmp_path / "site-0.csv"), {})
    assert places(shared, None, range(1, 2), shared=False) == []
    assert places(shared, None, range(1, 2))[0].nodes == (0, 1, 2)


def test_a_digest_of_records_is_in_accounts_only(table: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "study" / "accounts"
    run = api.run(on_table(table, accounts=str(elsewhere)), out=tmp_path / "run")
    assert not account_files()
    digest = account(table, accounts=str(elsewhere)).source.digest.encode()
    (path,) = elsewhere.glob("*.jsonl")
    assert digest in path.read_bytes()
    for file in (*run.directory.rglob("*"), *table.parent.iterdir()):
        assert not file.is_file() or digest not in file.read_bytes()


def test_a_renamed_file_and_an_edited_one_are_the_same_records(table: Path, tmp_path: Path) -> None:
    api.run(on_table(table), out=tmp_path / "a")
    renamed = table.rename(table.with_name("other.csv"))
    api.run(on_table(renamed), out=tmp_path / "b")
    renamed.write_text(renamed.read_text() + "0.1,0.2,0,1\n")
    assert api.run(on_table(renamed), out=tmp_path / "c").certificate["budget"]["runs"] == 3
    write_table(table, seed=9)  # other records under the first name: pessimistic, they count as the same
    assert api.run(on_table(table), out=tmp_path / "d").certificate["budget"]["runs"] == 4


def _spent(table: Path) -> tuple[int, float]:
    found = preview([(api.plan(on_table(table)), 0)], None)
    assert found is not None
    return found["runs"], found["epsilon"]


COPIES = {
    "copied": shutil.copy,
    "moved": shutil.move,
    "linked": lambda old, new: new.symlink_to(old),
    "hard link": lambda old, new: new.hardlink_to(old),
}


@pytest.mark.parametrize("how", COPIES)
def test_records_keep_their_account_wherever_they_are(table: Path, tmp_path: Path, how: str) -> None:
    for name in "ab":
        api.run(on_table(table), out=tmp_path / "runs" / name)
    _, epsilon = _spent(table)
    elsewhere = tmp_path / "elsewhere" / "renamed.csv"
    elsewhere.parent.mkdir()
    COPIES[how](table, elsewhere)
    assert _spent(elsewhere) == (2, epsilon)
    with expect_refusal(key="privacy.cap"):
        api.run(on_table(elsewhere), {"privacy.cap": epsilon * 1.05}, out=tmp_path / "new" / "c")
    third = api.run(on_table(elsewhere), out=tmp_path / "new" / "c")
    assert third.certificate["budget"]["runs"] == 3


def test_another_spelling_of_the_path_is_the_same_account(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.run(on_table(table), out=tmp_path / "runs" / "a")
    monkeypatch.chdir(table.parent)
    for spelling in ("all.csv", "../records/all.csv", f"{table.parent}/./all.csv"):
        assert _spent(Path(spelling))[0] == 1


@pytest.mark.parametrize("what", ["deleted", "older", "cut", "another folder", "another user"])
@pytest.mark.parametrize("how", ["run", "resume", "plan"])
def test_a_missing_or_shorter_account_is_an_error(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, how: str
) -> None:
    api.run(on_table(table), out=tmp_path / "runs" / "a")
    (path,) = account_files()
    older = path.read_bytes()
    stop_in_first_round(table, tmp_path / "runs" / "b")
    whole, asked = path.read_bytes(), on_table(table)
    match what:
        case "deleted":
            path.unlink()
        case "older":
            path.write_bytes(older)
        case "cut":
            path.write_bytes(whole[:-40])
        case "another folder":
            asked["data"]["accounts"] = str(tmp_path / "accounts")
        case _:
            monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "another user"))
    if how == "resume" and what == "another folder":
        return  # a run is resumed with what it was begun with

    def go_on() -> Any:
        match how:
            case "run":
                return api.run(asked, out=tmp_path / "other" / "c").certificate["budget"]
            case "resume":
                return api.resume(tmp_path / "runs" / "b").certificate["budget"]
            case _:
                return preview([(api.plan(asked), 1)], None)

    with expect_refusal(key="all.csv", names="data.accounts", remedy=True):
        go_on()
    assert not (tmp_path / "other" / "c").exists()
    # What the message says: the account as it was, under any name, in the folder that is asked.
    folder = Path(asked["data"].get("accounts", default_folder()))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "brought.jsonl").write_bytes(whole)
    assert go_on()["runs"] == (2 if how == "resume" else 3)


@pytest.mark.parametrize("how", ["run", "resume", "plan"])
def test_a_run_directory_that_no_account_lists_is_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Where nothing can be written next to the records, so that nothing there shows how far the account had come."""
    stop_in_first_round(table, tmp_path / "runs" / "a")
    (path,) = account_files()
    table.with_name("all.csv.account").unlink()
    kept = path.read_bytes()
    path.unlink()
    monkeypatch.chdir(tmp_path)

    def go_on() -> Any:
        match how:
            case "run":
                return api.run(on_table(table), out=tmp_path / "runs" / "b").certificate["budget"]
            case "resume":
                return api.resume(tmp_path / "runs" / "a").certificate["budget"]
            case _:
                return preview([(api.plan(on_table(table)), 1)], None)

    with expect_refusal(names="runs run all.csv"):
        go_on()
    assert not account_files()
    path.write_bytes(kept)
    assert go_on()["runs"] == (1 if how == "resume" else 2)


def test_other_rows_elsewhere_are_counted_by_the_name_alone(table: Path, tmp_path: Path) -> None:
    named = {"privacy.account": "cardiology patients"}
    api.run(on_table(table), named, out=tmp_path / "runs" / "a")
    (tmp_path / "next year").mkdir()
    later = tmp_path / "next year" / "all.csv"
    later.write_text(table.read_text() + "0.1,0.2,0,1\n")
    told = preview([(api.plan(on_table(later), named), 1)], None)
    assert told is not None
    assert (told["runs"], told["runs_before"], told["account"]) == (2, 1, "cardiology patients")
    assert told["account_note"]
    unnamed = preview([(api.plan(on_table(later)), 1)], None)
    assert unnamed is not None
    assert unnamed["runs"] == 1
    assert "privacy.account" in unnamed["account_note"]


def test_another_name_for_the_same_records_starts_no_new_account(table: Path, tmp_path: Path) -> None:
    for k, name in enumerate((None, "patients", "nobody")):
        change = {} if name is None else {"privacy.account": name}
        done = api.run(on_table(table), change, out=tmp_path / "runs" / str(k))
        assert done.certificate["budget"]["runs"] == k + 1
    assert len(account_files()) == 3
    table.write_text(table.read_text() + "0.1,0.2,0,1\n")  # now by what was copied into the last
    for path in account_files():
        if path.stem != "nobody":
            path.unlink()
    assert _spent(table)[0] == 3


def test_the_names_of_accounts_are_written_in_one_way(table: Path) -> None:
    names = ("caf\u00e9  patients ", "cafe\u0301 patients")
    assert len({api.plan(on_table(table), {"privacy.account": name}).asked.privacy.account for name in names}) == 1
    for wrong in ("", "../x", "a/b", ".hidden", "a\0b", "x" * 300):
        with expect_refusal(key="privacy.account"):
            api.plan(on_table(table), {"privacy.account": wrong})


def test_one_account_counts_all_its_nodes(tmp_path: Path) -> None:
    """The same people at several nodes: by name, or because the files are the same."""
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i // 2)
    asked = on_table(tmp_path / "{node}" / "clinic.csv")
    alone = api.plan(asked).privacy.worst.proven.epsilon
    for change, accounts in (({}, 2), ({"privacy.account": "all"}, 1), ({"privacy.account": "{node}"}, 3)):
        run = api.run(asked, change, out=tmp_path / "runs" / str(accounts))
        assert run.certificate["budget"]["epsilon"] > 1.3 * alone
        assert len({account(tmp_path / str(i) / "clinic.csv").name for i in range(3)}) <= accounts


@pytest.mark.parametrize("ended", [True, False])
def test_a_copy_of_a_run_directory_is_not_resumed(table: Path, tmp_path: Path, ended: bool) -> None:
    """What it would draw has other noise than what the original draws, and was reserved once."""
    original, copy = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    stop_in_first_round(table, original)
    shutil.copytree(original, copy)
    if ended:
        api.resume(original)
    with expect_refusal(key="b", names="runs"):
        api.resume(copy)
    if ended:
        shutil.rmtree(original)
        with expect_refusal(key="b", names="draws"):
            api.resume(copy)
    else:
        shutil.rmtree(original)  # then it was moved
        assert api.resume(copy).certificate["budget"]["runs"] == 1


def test_a_run_killed_before_its_first_draw_leaves_its_reservation(table: Path, tmp_path: Path) -> None:
    """kill -9 between the reservation and the ledger: whoever runs again sees what was planned."""
    api.run(on_table(table), out=tmp_path / "runs" / "a")
    program = f"""
import os, signal
from gossamer.accounting.ledger import LedgerBook
from gossamer.training import api
LedgerBook.create = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
api.run({on_table(table)!r}, out={str(tmp_path / "runs" / "b")!r})
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert [one.settled for one in account(table).spendings] == [True, False]
    assert api.run(on_table(table), out=tmp_path / "runs" / "c").certificate["budget"]["runs"] == 3


def test_processes_at_once_share_one_new_account(table: Path, tmp_path: Path) -> None:
    """Neither has a name, and the cap pays for one of them."""
    alone = api.plan(on_table(table)).privacy.worst.proven.epsilon
    program = "import sys; from gossamer.training import api; api.run({!r}, {!r}, out=sys.argv[1])"
    command = program.format(on_table(table), {"privacy.cap": 1.05 * alone})
    started = [
        subprocess.Popen([sys.executable, "-c", command, str(tmp_path / name)], stderr=subprocess.PIPE) for name in "ab"
    ]
    errors = [process.communicate()[1] for process in started]
    assert sorted(process.returncode == 0 for process in started) == [False, True]
    assert sum(b"privacy.cap" in text for text in errors) == 1
    assert len(account_files()) == len(account(table).spendings) == 1


def test_records_that_change_while_a_run_is_under_way_keep_its_account(table: Path, tmp_path: Path) -> None:
    def edit(done: int) -> None:
        if done == 1:
            table.write_text(table.read_text() + "0.1,0.2,0,1\n")
            table.with_name("all.csv.account").unlink()

    execute(assemble(Plan.of(resolve(on_table(table)))), out=tmp_path / "runs" / "a", on_round=edit)
    (path,) = account_files()
    (left,) = Account(replace(places(resolve(on_table(table)), None, range(3))[0].source, name=path.stem)).spendings
    assert left.settled


def test_the_clock_decides_nothing(table: Path) -> None:
    """A run that failed is given back, and resumed with an earlier clock: an older copy of the account is no later."""
    o = api.plan(on_table(table))
    accounts = Accounts(o, places(o.asked, None, range(3)), "the run")
    accounts.reserve("2026-02-01T00:00:00Z")
    accounts.settle("2026-03-01T00:00:00Z", None)
    (path,) = account_files()
    path.with_name("older.jsonl").write_bytes(path.read_bytes())
    accounts.reserve("2020-01-01T00:00:00Z")
    (left,) = account(table).spendings
    assert not left.settled
    assert left.draws > 0


def test_a_damaged_mark_is_an_error(table: Path, tmp_path: Path) -> None:
    api.run(on_table(table), out=tmp_path / "runs" / "a")
    mark = table.with_name("all.csv.account")
    whole = mark.read_bytes()
    for damaged in (b"", b"{", b"[]", b"{}", whole[:30], b"\xff"):
        mark.write_bytes(damaged)
        with expect_refusal(key="all.csv.account", names="damaged"):
            _spent(table)
    mark.write_bytes(whole)
    assert _spent(table)[0] == 1


def test_records_where_no_mark_can_be_written_have_an_account(table: Path, tmp_path: Path) -> None:
    long = table.rename(table.with_name("x" * 250 + ".csv"))
    for k in (1, 2):
        assert api.run(on_table(long), out=tmp_path / "runs" / str(k)).certificate["budget"]["runs"] == k
    assert [*table.parent.iterdir()] == [long]


def test_what_two_users_spent_apart_is_found_and_joined(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a folder; one brings the account as it was to the other, and both go on."""
    api.run(on_table(table), out=tmp_path / "one" / "a")
    first, (path,) = default_folder(), account_files()
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "second user"))
    default_folder().mkdir(parents=True)
    (default_folder() / "from the first.jsonl").write_bytes(path.read_bytes())
    assert api.run(on_table(table), out=tmp_path / "two" / "a").certificate["budget"]["runs"] == 2
    theirs = account_files()
    monkeypatch.setenv("GOSSAMER_STATE", str(first.parent))
    with expect_refusal(key="all.csv", names="counted"):
        api.run(on_table(table), out=tmp_path / "one" / "b")
    for file in theirs:
        (first / f"theirs {file.name}").write_bytes(file.read_bytes())
    assert api.run(on_table(table), out=tmp_path / "one" / "b").certificate["budget"]["runs"] == 3


def test_an_owners_cap_goes_with_the_records(table: Path, tmp_path: Path) -> None:
    default_folder().mkdir(parents=True)
    (default_folder() / "mine.jsonl").write_text('{"version": 1, "kind": "budget", "cap": 1.2}\n')
    api.run(on_table(table), {"privacy.account": "mine"}, out=tmp_path / "a")
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "all.csv"
    copy.write_bytes(table.read_bytes())
    for change in ({}, {"privacy.account": "another"}):
        with expect_refusal(key="mine.jsonl", names="1.2"):
            api.run(on_table(copy), change, out=tmp_path / "b")


def test_a_folder_of_accounts_is_the_users_alone_and_needs_a_place(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.run(on_table(table), out=tmp_path / "a")
    assert default_folder().stat().st_mode & 0o077 == 0
    table.with_name("all.csv.account").unlink()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "file"))
    with expect_refusal(key="accounts", names="data.accounts GOSSAMER_STATE", remedy=True):
        api.run(on_table(table), out=tmp_path / "new" / "b")
    assert not (tmp_path / "new" / "b").exists()


def test_a_damaged_account_stops_a_run_before_it_begins(table: Path, tmp_path: Path) -> None:
    for name in "ab":
        api.run(on_table(table), out=tmp_path / name)
    (path,) = account_files()
    path.write_bytes(path.read_bytes().replace(b'"releases":[[2,', b'"releases":[[1,', 1))
    with expect_refusal(path.name, names="3 2"):
        api.run(on_table(table), out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_public_records_have_no_account(tmp_path: Path) -> None:
    assert places(api.configure("quickstart"), None, range(8)) == []
    with expect_refusal(key="privacy.cap", value="3.0"):
        api.plan("quickstart", {"privacy.cap": 3.0})


def test_the_central_baseline_charges_the_pooled_node(table: Path) -> None:
    o = api.plan(on_table(table), {"baseline": "central"})
    found = preview([(o, 1)], None)
    assert found is not None
    assert found["epsilon"] == pytest.approx(o.privacy.worst.proven.epsilon, rel=1e-9)


def test_an_audit_pays_for_every_training(table: Path) -> None:
    o = api.plan(on_table(table))
    once, hundred = charge(o, 1, None), charge(o, 99, None)
    assert once is not None
    assert hundred is not None
    assert hundred["runs"] == 100
    assert hundred["epsilon"] > 10 * once["epsilon"]


def test_nothing_is_left_of_a_run_whose_ledgers_cannot_be_made(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.accounting.ledger import LedgerBook

    def broken(*_: Any, **__: Any) -> Any:
        raise UserError("no room")

    monkeypatch.setattr(LedgerBook, "create", broken)
    parts = assemble(api.plan(on_table(table)))
    with expect_refusal(key="room"):
        Run.begin(parts, tmp_path / "run", Alone(3))
    (left,) = account(table).spendings
    assert left.settled
    assert left.histories[0].releases == ()


def test_each_account_has_its_owners_cap(tmp_path: Path) -> None:
    """Not only that of the records on which most was spent."""
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i)
    asked = on_table(tmp_path / "{node}" / "clinic.csv")
    api.run({**asked, "nodes": 1}, out=tmp_path / "a")  # node 0 has spent most
    (default_folder() / "patients of 2.jsonl").write_text('{"version": 1, "kind": "budget", "cap": 0.5}\n')
    asked["privacy"]["account"] = "patients of {node}"
    for refused in (
        lambda: refuse_above_cap([(api.plan(asked), 1)], None),
        lambda: api.run(asked, {"privacy.cap": 5.0}, out=tmp_path / "b"),
    ):
        with expect_refusal(names="2.jsonl 0.5"):
            refused()
    assert not (tmp_path / "b").exists()
    spent = [preview([(api.plan({**asked, "nodes": n}), 0)], None) for n in (1, 2)]
    assert spent[0] == spent[1]  # what nodes 0 and 1 had reserved meanwhile was given back


@pytest.mark.slow
def test_ranks_keep_the_accounts_of_their_nodes_and_share_the_totals_only(two_ranks: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "accounts"  # the ranks have another user folder than the test
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i)
    asked = on_table(tmp_path / "{node}" / "clinic.csv", accounts=str(folder))
    api.run({**asked, "nodes": 1, "name": "secret"}, {"privacy.noise.source": "seeded"}, out=tmp_path / "a")
    config = resolve(asked, {"runtime.kind": "processes"}).model_dump(exclude_none=True)
    answers = two_ranks.call("gossamer_run", sizes=[1, 2], settings=config, out=tmp_path / "b")
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    files = [tmp_path / str(i) / "clinic.csv" for i in range(3)]
    assert [[s.settled for s in account(file, accounts=str(folder)).spendings] for file in files] == [
        [True, True],
        [True],
        [True],
    ]
    stated = json.loads((tmp_path / "b" / "certificate.json").read_text())["budget"]
    assert (stated["runs"], stated["unprotected"]) == (1, 1)
    # One node's cap is everyone's refusal, and what the others had reserved is given back.
    (tmp_path / "3").mkdir()
    write_table(tmp_path / "3" / "clinic.csv", seed=3)
    (folder / "people of 3.jsonl").write_text('{"version": 1, "kind": "budget", "cap": 0.1}\n')
    four = {**config, "nodes": 4, "privacy": {**config["privacy"], "account": "people of {node}"}}
    answers = two_ranks.call("gossamer_run", sizes=[2, 2], settings=four, out=tmp_path / "c")
    assert all("has the cap 0.1" in str(answer) for answer in answers)
    assert not (tmp_path / "c").exists()
    assert all(s.settled for file in files for s in account(file, accounts=str(folder)).spendings)
    assert [len(s.histories[0].releases) for s in account(files[1], accounts=str(folder)).spendings] == [1, 0]
