"""Runs on the same records of one's own share an account: what each spends is on file, and all of it is composed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.own_records import on_table, write_table
from tests.support.pool import Pool

from gossamer.accounting import budget
from gossamer.accounting.ledger import read_all
from gossamer.accounting.recompute import worst_epsilon
from gossamer.config.layers import resolve
from gossamer.data.own import BUDGET
from gossamer.errors import UserError
from gossamer.runtime.group import Alone
from gossamer.training import api
from gossamer.training.assemble import assemble
from gossamer.training.budget import charge, places, preview, refuse_above_cap
from gossamer.training.plan import Plan
from gossamer.training.run import Run, execute


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "records").mkdir()
    return write_table(tmp_path / "records" / "all.csv")


def account(table: Path) -> budget.Budget:
    return budget.read(table.parent / BUDGET)


def test_the_total_is_the_composition_of_all_ledgers(table: Path, tmp_path: Path) -> None:
    """Against the ledgers themselves, priced together."""
    runs = [api.run(on_table(table), {"rounds": rounds}, out=tmp_path / str(rounds)) for rounds in (2, 5)]
    together = worst_epsilon([run.directory for run in runs])
    stated = runs[1].certificate["budget"]
    assert stated["epsilon"] == pytest.approx(together, rel=1e-9)
    assert together > 1.3 > runs[1].certificate["epsilon_proven"]
    assert runs[0].certificate["budget"]["epsilon"] == pytest.approx(
        runs[0].certificate["epsilon_proven"], rel=1e-9
    )
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
    assert outcome.certificate["budget"]["epsilon"] == pytest.approx(
        outcome.certificate["epsilon_proven"], rel=1e-9
    )


def test_a_run_that_cannot_begin_spends_nothing(table: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("")
    with pytest.raises(UserError, match="not an empty directory"):
        api.run(on_table(table), out=tmp_path / "taken")
    assert preview([(api.plan(on_table(table)), 0)], None)["epsilon"] == 0.0  # type: ignore[index]


def test_a_cap_refuses_the_run_before_anything_is_written(table: Path, tmp_path: Path) -> None:
    api.run(on_table(table), out=tmp_path / "a")
    before = (table.parent / BUDGET).read_bytes()
    with pytest.raises(UserError, match=r"privacy\.cap = 1\.2: .* after 1 so far"):
        api.run(on_table(table), {"privacy.cap": 1.2}, out=tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert (table.parent / BUDGET).read_bytes() == before
    api.run(on_table(table), {"privacy.cap": 2.0}, out=tmp_path / "b")
    with pytest.raises(UserError, match=r"privacy\.cap"):
        refuse_above_cap([(api.plan(on_table(table), {"privacy.cap": 2.0}), 3)], None)


def test_what_was_drawn_is_settled_not_what_was_planned(table: Path, tmp_path: Path) -> None:
    """Nobody writes the shared model with controller = pass-end but at a pass's end: fewer releases than turns."""
    asked = on_table(table) | {
        "algorithm": {"kind": "without-replacement", "lr": 0.1, "controller": "pass-end"}
    }
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


def test_noise_that_protects_nobody_counts_as_no_privacy(table: Path, tmp_path: Path) -> None:
    good = api.run(on_table(table), out=tmp_path / "a").certificate["budget"]["epsilon"]
    seeded = api.run(on_table(table), {"privacy.noise.source": "seeded"}, out=tmp_path / "b")
    assert seeded.certificate["budget"]["epsilon"] is None  # as in JSON: not finite
    assert seeded.certificate["budget"]["provable"] == pytest.approx(good, rel=1e-9)
    plain = api.run(on_table(table), {"baseline": "non-private"}, out=tmp_path / "c")
    assert (
        "without noise" in plain.certificate["budget"]["because"]
        or "seeded" in plain.certificate["budget"]["because"]
    )
    assert json.loads((tmp_path / "c" / "certificate.json").read_text())["budget"]["epsilon"] is None
    with pytest.raises(UserError, match="seeded noise"):
        api.run(on_table(table), {"privacy.cap": 50.0}, out=tmp_path / "d")


def test_every_node_with_a_file_of_its_own_has_its_own_account(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i)
    asked = on_table(tmp_path / "{node}" / "clinic.csv")
    api.run(asked, out=tmp_path / "a")
    # A second study with two of the clinics only: theirs is what grows.
    asked["nodes"] = 2
    second = api.run(asked, out=tmp_path / "b")
    counts = [len(budget.read(tmp_path / str(i) / BUDGET).spendings) for i in range(3)]
    assert counts == [2, 2, 1]
    assert second.certificate["budget"]["runs"] == 2
    # Files in one folder share the file but not the account.
    for i in range(2):
        write_table(tmp_path / f"site-{i}.csv", seed=10 + i)
    third = api.run(
        {**asked, "data": {**asked["data"], "path": str(tmp_path / "site-{node}.csv")}}, out=tmp_path / "c"
    )
    assert third.certificate["budget"]["runs"] == 1
    assert len(budget.read(tmp_path / BUDGET).spendings) == 2


def test_a_process_keeps_the_accounts_of_its_own_nodes_only(tmp_path: Path) -> None:
    for i in range(3):
        write_table(tmp_path / f"site-{i}.csv", seed=i)
    config = resolve(on_table(tmp_path / "site-{node}.csv"), {})
    assert [p.records for p in places(config, None, range(1, 2))] == ["site-1.csv"]
    shared = resolve(on_table(tmp_path / "site-0.csv"), {})
    assert places(shared, None, range(1, 2), shared=False) == []
    assert places(shared, None, range(1, 2))[0].nodes == (0, 1, 2)


def test_a_digest_of_records_stays_beside_them(table: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "study" / "spent.jsonl"
    run = api.run(on_table(table, budget=str(elsewhere)), out=tmp_path / "run")
    assert not (table.parent / BUDGET).exists()
    (away,) = budget.read(elsewhere).spendings
    assert away.digest is None
    assert away.records == str(table)
    beside = api.run(on_table(table), out=tmp_path / "again")
    *_, kept = account(table).spendings  # behind that of the first run
    assert kept.digest is not None
    for outcome in (run, beside):
        for file in outcome.directory.rglob("*"):
            assert not file.is_file() or kept.digest.encode() not in file.read_bytes()


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


@pytest.mark.parametrize("what", ["copied", "moved", "account deleted", "older account", "account elsewhere"])
def test_an_account_does_not_start_again(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    api.run(on_table(table), out=tmp_path / "runs" / "a")
    older = (table.parent / BUDGET).read_bytes()
    api.run(on_table(table), out=tmp_path / "runs" / "b")
    spent = _spent(table)
    assert spent[0] == 2
    asked, elsewhere = on_table(table), tmp_path / "elsewhere" / "renamed.csv"
    elsewhere.parent.mkdir()
    match what:
        case "copied":
            elsewhere.write_bytes(table.read_bytes())
        case "moved":
            table.rename(elsewhere)
            (table.parent / BUDGET).unlink()
        case "account deleted":
            (table.parent / BUDGET).unlink()
        case "older account":
            (table.parent / BUDGET).write_bytes(older)
        case _:
            asked["data"]["budget"] = str(elsewhere.parent / "mine.jsonl")
    if elsewhere.exists():
        asked = on_table(elsewhere)
    assert preview([(api.plan(asked), 0)], None)["epsilon"] == spent[1]  # type: ignore[index]
    with pytest.raises(UserError, match=r"privacy\.cap"):
        api.run(asked, {"privacy.cap": spent[1] * 1.05}, out=tmp_path / "new" / "c")
    third = api.run(asked, out=tmp_path / "new" / "c")
    assert third.certificate["budget"]["runs"] == 3
    # The account has its lines again, also for those who have no register.
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "another user"))
    if what != "account elsewhere":
        assert preview([(api.plan(asked), 0)], None)["runs"] == 3  # type: ignore[index]


def test_an_owners_cap_goes_with_the_records(table: Path, tmp_path: Path) -> None:
    (table.parent / BUDGET).write_text('{"version": 1, "kind": "budget", "cap": 1.2}\n')
    api.run(on_table(table), out=tmp_path / "a")
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "all.csv"
    copy.write_bytes(table.read_bytes())
    with pytest.raises(UserError, match=r"has the cap 1\.2 in its first line"):
        api.run(on_table(copy), out=tmp_path / "b")


@pytest.mark.parametrize("how", ["run", "resume"])
def test_a_run_directory_that_no_account_lists_is_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another user, or a container without the first one's register, and the account is gone."""

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(assemble(Plan.of(resolve(on_table(table)))), out=tmp_path / "runs" / "a", on_round=stop)
    kept = (table.parent / BUDGET).read_bytes()
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "another user"))
    (table.parent / BUDGET).unlink()

    def go_on() -> Any:
        if how == "resume":
            return api.resume(tmp_path / "runs" / "a")
        return api.run(on_table(table), out=tmp_path / "runs" / "b")

    with pytest.raises(
        UserError, match=r"runs/a is a run on .*all\.csv, and .*budget\.jsonl does not list it"
    ):
        go_on()
    assert not (table.parent / BUDGET).exists()
    (table.parent / BUDGET).write_bytes(kept)
    assert go_on().certificate["budget"]["runs"] == (1 if how == "resume" else 2)


def test_the_register_is_the_users_alone_and_needs_a_place(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "state"))
    api.run(on_table(table), out=tmp_path / "a")
    (listed,) = (tmp_path / "state" / "accounts").glob("*.jsonl")
    assert listed.stat().st_mode & 0o077 == listed.parent.stat().st_mode & 0o077 == 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOSSAMER_STATE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="environment variable GOSSAMER_STATE"):
        api.run(on_table(table), out=tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_damaged_account_stops_a_run_before_it_begins(table: Path, tmp_path: Path) -> None:
    for name in "ab":
        api.run(on_table(table), out=tmp_path / name)
    path = table.parent / BUDGET
    path.write_bytes(path.read_bytes().replace(b'"releases":[[2,', b'"releases":[[1,', 1))
    with pytest.raises(UserError, match=r"budget\.jsonl line 3 does not follow line 2"):
        api.run(on_table(table), out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_public_records_have_no_account(tmp_path: Path) -> None:
    assert places(api.configure("quickstart"), None, range(8)) == []
    with pytest.raises(UserError, match=r"privacy\.cap = 3\.0 is kept next to the records of your own"):
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
    with pytest.raises(UserError, match="no room"):
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
    (tmp_path / "2" / BUDGET).write_text('{"version": 1, "kind": "budget", "cap": 0.5}\n')
    for refused in (
        lambda: refuse_above_cap([(api.plan(asked), 1)], None),
        lambda: api.run(asked, {"privacy.cap": 5.0}, out=tmp_path / "b"),
    ):
        with pytest.raises(UserError, match=r"2/budget\.jsonl has the cap 0\.5 in its first line"):
            refused()
    assert not (tmp_path / "b").exists()
    spent = [preview([(api.plan({**asked, "nodes": n}), 0)], None) for n in (1, 2)]
    assert spent[0] == spent[1]  # what nodes 0 and 1 had reserved meanwhile was given back


@pytest.mark.slow
def test_ranks_keep_the_accounts_of_their_nodes_and_share_the_totals_only(
    two_ranks: Pool, tmp_path: Path
) -> None:
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        write_table(tmp_path / str(i) / "clinic.csv", seed=i)
    asked = on_table(tmp_path / "{node}" / "clinic.csv")
    api.run({**asked, "nodes": 1, "name": "secret"}, {"privacy.noise.source": "seeded"}, out=tmp_path / "a")
    config = resolve(asked, {"runtime.kind": "processes"}).model_dump(exclude_none=True)
    answers = two_ranks.call("gossamer_run", sizes=[1, 2], settings=config, out=tmp_path / "b")
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    counts = [[s.settled for s in budget.read(tmp_path / str(i) / BUDGET).spendings] for i in range(3)]
    assert counts == [[True, True], [True], [True]]
    stated = json.loads((tmp_path / "b" / "certificate.json").read_text())["budget"]
    assert (stated["epsilon"], stated["runs"]) == (None, 2)
    assert "secret" not in stated["because"]
    # One node's cap is everyone's refusal, and what the others had reserved is given back.
    (tmp_path / "3").mkdir()
    own = write_table(tmp_path / "3" / "clinic.csv", seed=3)
    (own.parent / BUDGET).write_text('{"version": 1, "kind": "budget", "cap": 0.1}\n')
    four = {**config, "nodes": 4}
    answers = two_ranks.call("gossamer_run", sizes=[2, 2], settings=four, out=tmp_path / "c")
    assert all("has the cap 0.1" in str(answer) for answer in answers)
    assert not (tmp_path / "c").exists()
    assert all(s.settled for i in range(3) for s in budget.read(tmp_path / str(i) / BUDGET).spendings)
    assert [len(s.histories[0].releases) for s in budget.read(tmp_path / "1" / BUDGET).spendings] == [1, 0]
