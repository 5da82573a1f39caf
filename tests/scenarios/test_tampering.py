"""Every file of a run directory, damaged in every way: noticed in one sentence, or provably harmless.

The table of what is harmless, and why, is in docs/tampering.md.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal
from tests.support.tampering import WAYS, cut, files_of, finished, flip, noticed, same_content, stopped, swap

import gossamer
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

CHANGES: dict[str, Any] = {
    "nodes": 2, "rounds": 6, "evaluation.every": 2, "checkpoints.every": 2, "topology.kind": "complete",
    "privacy.claim": "none", "privacy.epsilon": None, "privacy.noise.multiplier": 9.0,
}  # fmt: skip
# Of a finished run nothing reads these: the lock's file locks nothing when nobody holds it.
HARMLESS_FINISHED = ("run.lock",)
# A run that goes on reads these, too, but nothing that it says of privacy comes from them: metrics are drawn and printed.
# An old checkpoint is not read while there is a newer one; when it is, or at the run's end, its damage is noticed.
HARMLESS_STOPPED = ("run.lock", "metrics.jsonl", "checkpoints/round-000002.safetensors")
# Where nothing can be taken for the file's content, its absence is no harm either: nothing reads a page, and a
# checkpoint that is not there is gone on without. Who wants a model says that it is missing; no figure is about it.
MAY_BE_GONE = ("certificate.html", "checkpoints/", "models.safetensors", "average.safetensors", "model.json")


class Runs:
    """Two finished runs and two that were stopped, of the same configuration, made once."""

    def __init__(self, base: Path):
        self.base, self.count = base, 0
        self.parts = assemble(Plan.of(resolve(recipes.read("quickstart"), CHANGES)))
        for name in ("finished", "other-finished"):
            execute(self.parts, out=base / name)
        for name in ("stopped", "other-stopped"):
            with pytest.raises(KeyboardInterrupt):
                execute(self.parts, out=base / name, on_round=self._stop)
        lines = (base / "stopped" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        self.known = b"".join(lines[:5])  # the header and what the last checkpoint, after round 4, saw

    @staticmethod
    def _stop(done: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    def look(self, run: Path, kind: str) -> None:
        finished(run) if kind == "finished" else stopped(run, self.parts)

    def case(self, kind: str, name: str, way: Any, seed: int) -> str | None:
        """What is said of a copy whose file `name` was damaged; the test fails where it should have been noticed."""
        self.count += 1
        place = self.base / f"copy-{self.count}"
        run = shutil.copytree(self.base / kind, place / "tampered-run")
        way(run / name, self.base / f"other-{kind}" / name, random.Random(seed))
        said = noticed(lambda: self.look(run, kind), run)
        harmless = name in (HARMLESS_FINISHED if kind == "finished" else HARMLESS_STOPPED)
        missing = not os.path.lexists(run / name) and name.startswith(MAY_BE_GONE)
        same = same_content(run / name, self.base / kind / name)
        if kind == "stopped" and name == "run.key" and not same and said is None:
            same = (run / name).read_text().strip().lower() == (self.base / kind / name).read_text().strip()
        if kind == "stopped" and name == "ledger.jsonl" and said is None and (run / name).is_file():
            # Behind the last checkpoint a tail that is gone looks as if the run had been killed before it.
            same = (run / name).read_bytes().startswith(self.known)
        assert said or harmless or missing or same, f"{kind}: {name}, {way.__name__}, seed {seed}: not noticed"
        shutil.rmtree(place)
        return said


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    base = Path(tempfile.mkdtemp())  # not under a folder that only its owner may enter
    base.chmod(0o755)
    yield Runs(base)
    shutil.rmtree(base)


@pytest.mark.parametrize("kind", ["finished", "stopped"])
def test_what_nobody_touched_is_in_order(runs: Runs, kind: str) -> None:
    run = shutil.copytree(runs.base / kind, runs.base / f"untouched-{kind}" / "run")
    assert noticed(lambda: runs.look(run, kind), run) is None


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_way_of_damage_on_some_files(runs: Runs, way: Any) -> None:
    for kind, seed in (("finished", 1), ("stopped", 2)):
        rng = random.Random(f"{way.__name__} {kind}")
        for name in rng.sample(files_of(runs.base / kind), 3):
            runs.case(kind, name, way, seed)


@pytest.mark.parametrize("name", ["models.safetensors", "average.safetensors", "model.json"])
def test_a_changed_model_is_noticed_by_those_who_verify_and_those_who_use_it(runs: Runs, name: str) -> None:
    for way in (flip, swap, cut):
        assert runs.case("finished", name, way, 3)
    run = shutil.copytree(runs.base / "finished", runs.base / f"spoilt-{name}")
    flip(run / name, run / name, random.Random(0))
    with expect_refusal(name, remedy=True):
        gossamer.load(run).models.weights(0 if name == "models.safetensors" else "average")
    (run / name).unlink()
    with expect_refusal(name, remedy=True):
        gossamer.load(run).models.weights(0 if name == "models.safetensors" else "average")


@pytest.mark.slow
def test_a_thousand_tampered_directories(runs: Runs) -> None:
    rng, said, problems = random.Random(5), 0, []
    cases = [
        (kind, name, way) for kind in ("finished", "stopped") for name in files_of(runs.base / kind) for way in WAYS
    ]
    for number in range(1000):
        kind, name, way = cases[number] if number < len(cases) else rng.choice(cases)
        try:
            said += runs.case(kind, name, way, number) is not None
        except Exception as error:  # anything but a sentence
            problems.append(f"{kind}: {name}, {way.__name__}, seed {number}: {error!r:.300}")
    assert not problems, "\n".join(problems)
    assert said > 750


READ_BY = {
    "plan": ("manifest.json", "certificate.json", "ledger.jsonl"),
    "report": ("config.toml", "manifest.json", "topology.json", "metrics.jsonl", "certificate.json"),
    "audit": ("config.toml", "certificate.json"),
    "run": ("config.toml", "manifest.json"),
}


def opened_by(command: Any, name: str, run: Path) -> tuple[int, str]:
    words = {
        "plan": ["plan", "--ledger", str(run)],
        "report": ["report", str(run)],
        "audit": ["audit", str(run), "--runs", "1"],
        "run": ["run", "--resume", str(run), "--json"],
    }[name]
    code, _, err = command(*words)
    return code, err


@pytest.mark.parametrize("name", READ_BY)
def test_the_commands_say_one_sentence_about_a_damaged_file(
    command: Any, tmp_path: Path, runs: Runs, name: str
) -> None:
    for number, file in enumerate(READ_BY[name]):
        for damage in (b"", b"[1]\n", b"\xff\n", None):
            run = tmp_path / f"{number}-{damage!r:.5}".replace("\\", "")
            shutil.copytree(runs.base / ("stopped" if name == "run" else "finished"), run)
            (run / file).unlink()
            if damage is None:
                os.mkfifo(run / file)
            else:
                (run / file).write_bytes(damage)
            code, err = opened_by(command, name, run)
            assert code == 2, (file, damage, err)
            assert err.startswith("gossamer: "), (file, damage, err)
            assert len(err.strip().splitlines()) == 1, (file, damage, err)
