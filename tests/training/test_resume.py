"""A run that was stopped, however, goes on: nothing lost, nothing drawn twice."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support.ledgers import histories
from tests.support.methods import METHODS
from tests.support.refusals import assert_names, expect_refusal
from tests.support.registries import rules

from gossamer.accounting import ledger
from gossamer.accounting.recompute import recompute
from gossamer.config import recipes
from gossamer.config.layers import resolve, stored
from gossamer.config.methods import PRESETS
from gossamer.results.verify import verify_run
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

ROUNDS = 12
SEEDED = {"privacy.noise.source": "seeded", "privacy.claim": "none"}  # claims only cost time here
BASE = {"rounds": ROUNDS, "evaluation.every": 4, "checkpoints.every": 5, "nodes": 5}


class CrashError(Exception):
    """As sudden as it gets within one process: nothing is put in order."""


def parts_of(changes: dict[str, Any]) -> Any:
    return assemble(Plan.of(resolve(recipes.read("quickstart"), {**BASE, **changes})))


def again(run: Path) -> Any:
    return assemble(Plan.of(stored(run / "config.toml")))


def stopping(at: int, how: type[BaseException]) -> Callable[[int], None]:
    def stop(done: int) -> None:
        if done == at:
            raise how

    return stop


def final(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"round-{ROUNDS:06d}.safetensors")


def evaluations(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def steps(run: Path) -> list[list[int]]:
    return [[e.draw for e in events] for _, events in ledger.read_all(run).values()]


def test_every_algorithm_is_stopped_and_continued() -> None:
    ours = {name for name, rule in rules().items() if rule.__module__.startswith("gossamer.")}
    tried = {PRESETS[changes["algorithm.kind"]]["rule"] for changes in METHODS.values()}
    assert tried == ours - {"without-replacement"}


LONG = {
    "push-sum, quantile clip", "noise that cancels, few secrets", "km, a resolvent that starts where its last ended",
    "exact means by a filter", "dinno",
}  # fmt: skip


@pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.slow) if m in LONG else m for m in METHODS])
def test_a_seeded_run_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    goes_on_bit_for_bit(parts_of({**METHODS[method], **SEEDED}), tmp_path)


def goes_on_bit_for_bit(parts: Any, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    execute(parts, out=whole)
    for at, how in ((3, CrashError), (7, KeyboardInterrupt), (11, CrashError)):
        start = {"resume": cut} if cut.exists() else {"out": cut}
        with pytest.raises(how):
            execute(parts, **start, on_round=stopping(at, how))
    outcome = execute(parts, resume=cut)
    one, two = final(whole), final(cut)
    assert set(one) == set(two)
    for key, value in one.items():
        assert torch.equal(value, two[key]), key
    assert evaluations(whole) == evaluations(cut)
    assert histories(whole) == histories(cut)
    verify_run(cut)
    assert outcome.result["bytes_sent"] == evaluations(whole)[-1]["bytes_sent"]


TOKEN: dict[str, Any] = {
    "nodes": 5,
    "rounds": ROUNDS,
    "data": {"kind": "digits", "scale": "unit-sphere"},
    "model": {"kind": "one-vs-all"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "without-replacement", "lr": 0.4},
    "privacy": {
        "epsilon": 4.0, "delta": 1e-6, "sampling": {"kind": "one-pass", "lot": 60}, "noise": {"source": "seeded"}
    },
    "evaluation": {"every": 4},
    "checkpoints": {"every": 5},
}  # fmt: skip


@pytest.mark.parametrize("source", ["system", "seeded"])
def test_a_shared_model_cannot_be_taken_up_in_the_middle_of_a_pass(source: str, tmp_path: Path) -> None:
    parts = assemble(Plan.of(resolve(TOKEN, {"privacy.noise.source": source})))
    with pytest.raises(CrashError):
        execute(parts, out=tmp_path / "r", on_round=stopping(7, CrashError))
    saved = load_file(tmp_path / "r" / "checkpoints" / "round-000005.safetensors")
    assert not [key for key in saved if key.startswith(("private.", "controller."))]
    with expect_refusal(key="--resume", names="lots"):
        execute(parts, resume=tmp_path / "r")


def test_secret_noise_is_never_drawn_twice_and_what_was_logged_is_spent(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with pytest.raises(CrashError):
        execute(parts_of({"checkpoints.every": 4}), out=run, on_round=stopping(7, CrashError))
    assert steps(run) == [list(range(7))] * 5
    outcome = execute(again(run), resume=run)
    # Rounds 5 to 7 are done again with the draws 8 to 10, and the budget's 12 draws end before the rounds do.
    assert steps(run) == [list(range(12))] * 5
    assert int(final(run)["gradient.draws"]) == 15
    assert outcome.result["epsilon_proven"] <= 8.0
    assert any("3 draws of its nodes were spent and not used" in note for note in outcome.certificate["notes"])
    by_round = {row["round"]: row["epsilon_proven"] for row in evaluations(run)}
    assert by_round[8] > recompute_after(run, 8)  # the figure on the way counts what was lost, too
    assert by_round[12] == pytest.approx(outcome.result["epsilon_proven"], rel=1e-3)


def recompute_after(run: Path, draws: int) -> float:
    from gossamer.accounting.proven import proven

    header, events = ledger.read_all(run)[0]
    return proven(events[:draws], header["delta"], header["adjacency"]).epsilon


def test_every_start_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Two continuations of the same stop share their state but not a single noise value."""
    import shutil

    run = tmp_path / "r"
    with pytest.raises(CrashError):
        execute(parts_of({"checkpoints.every": 4}), out=run, on_round=stopping(6, CrashError))
    shutil.copytree(run, tmp_path / "twin")
    for path in (run, tmp_path / "twin"):
        execute(again(path), resume=path)
    assert not torch.isclose(final(run)["x"], final(tmp_path / "twin")["x"]).all()


def test_a_stop_before_the_first_checkpoint_starts_over_with_the_draws_that_are_left(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with pytest.raises(CrashError):
        execute(parts_of({}), out=run, on_round=stopping(3, CrashError))
    execute(again(run), resume=run)
    assert steps(run) == [list(range(12))] * 5


def test_control_c_keeps_the_last_complete_round(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        execute(parts_of({}), out=run, on_round=stopping(9, KeyboardInterrupt))
    assert (run / "checkpoints" / "round-000008.safetensors").is_file()
    execute(again(run), resume=run)
    assert steps(run) == [list(range(12))] * 5


def test_only_the_newest_checkpoint_is_kept_unless_asked(tmp_path: Path) -> None:
    few = {key: value for key, value in BASE.items() if key != "checkpoints.every"}
    execute(assemble(Plan.of(resolve(recipes.read("quickstart"), few))), out=tmp_path / "few")
    assert [p.name for p in (tmp_path / "few" / "checkpoints").iterdir()] == ["round-000012.safetensors"]
    execute(parts_of({}), out=tmp_path / "all")
    assert sorted(p.name[:12] for p in (tmp_path / "all" / "checkpoints").iterdir()) == [
        "round-000005", "round-000010", "round-000012",
    ]  # fmt: skip


def stopped(tmp_path: Path) -> Path:
    run = tmp_path / "r"
    with pytest.raises(CrashError):
        execute(parts_of({}), out=run, on_round=stopping(7, CrashError))
    return run


def test_a_ledger_cut_or_changed_since_the_checkpoint_is_refused(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    path = run / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged, what in (
        (lines[:4], "5"),
        ([*lines[:2], *lines[3:]], "3"),
        ([lines[0].replace(b"0.0001", b"0.1"), *lines[1:]], "2"),
    ):
        path.write_bytes(b"".join(damaged))
        with expect_refusal(key="ledger.jsonl", names=what):
            execute(again(run), resume=run)
    path.unlink()
    with expect_refusal(key="ledger.jsonl", names="missing"):
        execute(again(run), resume=run)


def test_a_damaged_or_foreign_checkpoint_is_named(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    saved = run / "checkpoints" / "round-000005.safetensors"
    content = saved.read_bytes()
    saved.write_bytes(content[: len(content) // 2])
    with expect_refusal(key="round-000005.safetensors", names="damaged"):
        execute(again(run), resume=run)
    saved.write_bytes(content)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "run": "00" * 8}))
    with expect_refusal(key="ledger.jsonl", names="run"):
        execute(again(run), resume=run)


def test_a_changed_configuration_is_refused(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("epsilon = 8.0", "epsilon = 80.0"))
    with expect_refusal(key="config.toml", names="begun"):
        execute(again(run), resume=run)


def test_a_run_is_not_continued_twice_at_once(tmp_path: Path) -> None:
    run = stopped(tmp_path)

    def intrude(done: int) -> None:
        if done == 9:
            with expect_refusal(key="r", names="written"):
                execute(again(run), resume=run)

    execute(again(run), resume=run, on_round=intrude)
    with expect_refusal(key="--resume", names="finished"):
        execute(again(run), resume=run)


def test_a_run_is_not_continued_twice_at_once_below_a_file_limit(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = []

    def intrude(done: int) -> None:
        if done == 9:
            with expect_refusal(key="r", names="being"):
                execute(again(run), resume=run)
            refused.append(done)

    used = max(map(int, os.listdir("/proc/self/fd"))) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        execute(again(run), resume=run, on_round=intrude)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused == [9]
    assert all(len(taken) == len(set(taken)) for taken in steps(run))


def test_a_run_is_resumed_only_with_its_own_key(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    key = (run / "run.key").read_bytes()
    (run / "run.key").unlink()
    with expect_refusal(key="run.key", names="missing"):
        execute(again(run), resume=run)
    (run / "run.key").write_bytes(key)
    (run / "run.key").write_text("00" * 32)
    with expect_refusal(key="run.key", names="manifest.json"):
        execute(again(run), resume=run)
    (run / "run.key").write_bytes(key)
    execute(again(run), resume=run)
    assert not (run / "run.key").exists()
    assert verify_run(run).signed


def run_limited(size: int, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, no file of which may grow beyond `size` bytes: a disk that is full."""
    code = "from gossamer.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_a_sentence_and_it_goes_on_with_room(tmp_path: Path) -> None:
    run = tmp_path / "r"
    done = run_limited(26_000, "run", "--out", str(run), "--set", "rounds=150", "--set", "checkpoints.every=10")
    assert done.returncode == 2, done.stderr
    sentence = done.stderr.strip().splitlines()[-1]
    assert_names(sentence, names=f"gossamer run --resume {run}", remedy=True)
    assert "Traceback" not in done.stderr
    assert 60 < len(ledger.read_ledger(run / "ledger.jsonl", lenient=True).lines) < 150
    outcome = execute(again(run), resume=run)
    assert outcome.result["epsilon_proven"] <= 8.0
    assert (run / "ledger.jsonl.torn").is_file()  # the line that did not fit, and was not spent
    assert all(len(taken) == len(set(taken)) for taken in steps(run))
    verify_run(run)
    assert max(proof.proven.epsilon for proof in recompute(run)) <= 8.0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--resume", "nowhere"], ["--resume nowhere", "directory"]),
        (["--resume", "empty"], ["--resume empty", "config.toml"]),
        (["quickstart", "--resume", "r"], ["--resume r", "recipe"]),
        (["--resume", "r", "--out", "new"], ["--out"]),
        (["--resume", "r", "--set", "rounds=99"], ["--set rounds", "runtime"]),
        (["--runtime", "cloud"], ["runtime.kind", "cloud", "processes"]),
        (["--set", "runtime.blocks=[0]"], ["runtime.blocks"]),
    ],
)
def test_a_mistake_in_continuing_is_one_sentence(
    words: list[str], named: list[str], tmp_path: Path, command: Any
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "r").mkdir()
    code, _, err = command("run", *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in named), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "r"]


def test_the_command_and_the_library_continue(tmp_path: Path, command: Any) -> None:
    import gossamer

    for name in ("one", "two"):
        with pytest.raises(CrashError):
            execute(parts_of(SEEDED), out=tmp_path / name, on_round=stopping(7, CrashError))
    code, out, _ = command("run", "--resume", str(tmp_path / "one"), "--json")
    assert code == 0
    printed = json.loads(out.splitlines()[-1])
    outcome = gossamer.resume(tmp_path / "two")
    assert printed["accuracy_by_node"] == outcome.result["accuracy_by_node"]
    assert printed["rounds"] == ROUNDS


def test_an_interrupt_while_a_checkpoint_is_written_loses_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.results import checkpoint

    save, interrupted = checkpoint.save, list[int]()

    def interrupted_once(*arguments: Any, **facts: Any) -> Path:
        if facts["round"] == 10 and not interrupted:
            interrupted.append(10)
            raise KeyboardInterrupt
        return save(*arguments, **facts)

    monkeypatch.setattr(checkpoint, "save", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        execute(parts_of({}), out=tmp_path / "r")
    assert [path.name for path in (tmp_path / "r" / "checkpoints").glob("round-*10.*")]
    outcome = execute(again(tmp_path / "r"), resume=tmp_path / "r")
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert [stop["lost_draws"] for stop in manifest["resumed"]] == [0]
    assert outcome.certificate["rounds"] == ROUNDS


@pytest.mark.slow
def test_control_c_at_the_command_says_how_to_go_on(tmp_path: Path, start: Any) -> None:
    """A real interrupt of a real process, past its first checkpoint."""
    import os
    import signal
    import time

    run = tmp_path / "r"
    words = ["run", "--out", str(run), "--set", "rounds=3000", "--set", "checkpoints.every=5"]
    fixed = [
        "--set",
        "privacy.noise.multiplier=90",
        "--set",
        "privacy.claim=none",
        "--set",
        "privacy.epsilon=1000",
    ]
    process = start(
        [sys.executable, "-P", "-m", "gossamer", *words, *fixed],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not list((run / "checkpoints").glob("*.safetensors")):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.strip() == f"gossamer: stopped; continue with `gossamer run --resume {run}`."
    last = max(int(path.name[6:12]) for path in (run / "checkpoints").iterdir())
    assert last >= len(ledger.read_ledger(run / "ledger.jsonl").lines) - 1  # all but the round under way
