"""Objects of the caller's own pass through the door that names pass through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import Tensor, nn

import gossamer
from gossamer.algorithms.base import Exponential
from gossamer.config.layers import stored
from gossamer.mechanism.clipping import ConstantClip
from gossamer.results.rundir import read_manifest
from gossamer.training.api import Objects, configure
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
DATA = gossamer.Data((X[:48], Y[:48]), test=(X[48:], Y[48:]), classes=2, count=12)
SMALL = {
    "name": "small",
    "nodes": 4,
    "rounds": 4,
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
    "privacy": {
        "epsilon": 4.0,
        "sampling": {"kind": "full"},
        "noise": {"source": "seeded", "schedule": {"kind": "constant"}},
    },
}


class State(NamedTuple):
    x: Tensor


@dataclass(frozen=True, kw_only=True)
class HalfStep:
    """x ← W (x − β η g)"""

    lr: Any
    beta: float = 0.5
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def step(self, s: State, grad: Any, mix: Any, t: int) -> State:
        return State(mix(s.x - self.beta * self.lr(t) * grad(s.x)))

    def model(self, s: State) -> Tensor:
        return s.x


def trained(tmp_path: Path, name: str = "run", changes: dict[str, Any] | None = None, **objects: Any) -> Any:
    return gossamer.run(SMALL, changes, data=DATA, out=str(tmp_path / name), **objects)


def test_an_algorithm_is_a_class_or_an_object_and_is_written_down_by_name_and_options(tmp_path: Path) -> None:
    as_class = configure(SMALL, algorithm=HalfStep, data=DATA)
    assert (as_class.algorithm.kind, as_class.algorithm.beta, as_class.algorithm.lr) == (
        "half-step",
        0.5,
        0.5,
    )
    made = HalfStep(lr=Exponential(1.0, 0.5), beta=1.0)
    config = configure(SMALL, algorithm=made, data=DATA)
    step = config.algorithm.step_sizes(4)
    assert (step.start, step.decay, config.algorithm.beta) == (1.0, 0.5, 1.0)
    # Half the step is the step of half the size: with seeded noise the very same model.
    halved = trained(tmp_path, "a", algorithm=HalfStep(lr=0.5, beta=0.5))
    plain = trained(tmp_path, "b", algorithm=HalfStep(lr=0.25, beta=1.0))
    torch.testing.assert_close(halved.points, plain.points)
    assert halved.result["epsilon_claimed"] is None  # no paper speaks of it
    assert 'kind = "half-step"' in (tmp_path / "a" / "config.toml").read_text()


def test_a_class_that_is_defined_anew_takes_its_own_place_and_no_other() -> None:
    @dataclass(frozen=True, kw_only=True)
    class HalfStepAgain(HalfStep):
        gamma: float = 1.0

    def again() -> Any:
        @dataclass(frozen=True, kw_only=True)
        class HalfStepAgain(HalfStep):
            delta: float = 2.0

        HalfStepAgain.__qualname__ = first.__qualname__
        return HalfStepAgain

    first = HalfStepAgain
    assert configure(SMALL, algorithm=first, data=DATA).algorithm.gamma == 1.0
    assert configure(SMALL, algorithm=again(), data=DATA).algorithm.delta == 2.0

    @dataclass(frozen=True, kw_only=True)
    class Dsgd(HalfStep): ...

    with expect_refusal(key="algorithm", value="dsgd", remedy=True):
        configure(SMALL, algorithm=Dsgd, data=DATA)
    with expect_refusal(key="algorithm", value="plain"):
        configure(SMALL, algorithm=type("Plain", (), {}), data=DATA)
    with expect_refusal(key="algorithm.lr", names="function"):
        configure(SMALL, algorithm=HalfStep(lr=lambda t: 1.0), data=DATA)


def test_a_clip_noise_and_topology_are_names_tables_or_objects() -> None:
    from gossamer.mechanism.noise.pairwise import Pairwise

    for clip in (ConstantClip(bound=0.3), {"kind": "constant", "bound": 0.3}):
        assert configure(SMALL, clip=clip, data=DATA).privacy.clip == ConstantClip(bound=0.3)
    found = configure(SMALL, noise=Pairwise(colluders=2), topology="ring", data=DATA)
    assert found.privacy.noise.kind == Pairwise(colluders=2)
    assert found.topology.kind == "ring"
    assert configure(SMALL, noise="pairwise", data=DATA).privacy.noise.kind == Pairwise()
    won = configure(SMALL, {"privacy.clip.bound": 0.1}, clip=ConstantClip(bound=0.3), data=DATA)
    assert won.privacy.clip.bound == 0.1


def test_a_loss_is_any_function_of_one_record(tmp_path: Path) -> None:
    def doubled(outputs: Tensor, y: Tensor) -> Tensor:
        return 2 * nn.functional.cross_entropy(outputs, y, reduction="none")

    wide = {"privacy.clip": {"kind": "constant", "bound": 100.0}, "privacy.noise.schedule.kind": "none"}
    ours = trained(tmp_path, "a", {**wide, "algorithm.lr": 0.25}, loss=doubled)
    plain = trained(tmp_path, "b", {**wide, "algorithm.lr": 0.5})
    torch.testing.assert_close(ours.points, plain.points)
    module = trained(tmp_path, "c", {**wide, "algorithm.lr": 0.5}, loss=nn.CrossEntropyLoss(reduction="none"))
    torch.testing.assert_close(module.points, plain.points)
    with expect_refusal(key="loss.kind", names="reduction", remedy=True):
        trained(tmp_path, "d", loss=nn.CrossEntropyLoss())
    assert not (tmp_path / "d").exists()


def test_records_in_memory_are_as_private_as_those_in_a_file(tmp_path: Path) -> None:
    with expect_refusal(key="data.classes", names="private"):
        gossamer.run(SMALL, data=(X, Y))
    with expect_refusal(key="data.records", names="private"):
        gossamer.run(SMALL, data=gossamer.Data((X, Y), classes=2))
    with expect_refusal(key="data.test", names="records"):
        gossamer.run(SMALL, data=gossamer.Data((X, Y), classes=2, count=15, test=(X[:3], Y[:3])))
    with expect_refusal(key="privacy.cap", value="9.0", names="records"):
        gossamer.plan(SMALL, {"privacy.cap": 9.0}, data=DATA)
    done = trained(tmp_path)
    manifest = (tmp_path / "run" / "manifest.json").read_text()
    assert "sha256" not in manifest
    assert any("handed over in memory" in note for note in done.certificate["notes"])
    read_off = trained(tmp_path, "off", {"data.read_off": ["records"]})
    assert any("number of records of each node was read off" in note for note in read_off.certificate["notes"])


def test_a_list_by_node_says_how_many_nodes_there_are() -> None:
    parts = [(X[i::3], Y[i::3]) for i in range(3)]
    unsaid = {key: value for key, value in SMALL.items() if key != "nodes"}
    found = gossamer.plan(unsaid, data=gossamer.Data(parts, classes=2, count=20))
    assert len(found.privacy.nodes) == 3


def test_callbacks_hear_rounds_and_evaluations(tmp_path: Path) -> None:
    rounds: list[int] = []

    class Listener:
        def on_round(self, done: int) -> None:
            rounds.append(done)

    figures: list[dict[str, Any]] = []
    trained(tmp_path, callbacks=[Listener(), figures.append])
    assert rounds == [1, 2, 3, 4]
    assert [row["round"] for row in figures] == [1, 2, 3, 4]
    assert {"accuracy_mean", "epsilon_proven"} <= figures[-1].keys()
    with expect_refusal(key="callbacks", names="3", remedy=True):
        trained(tmp_path, "again", callbacks=[3])
    with expect_refusal(key="callbacks", remedy=True):
        trained(tmp_path, "again", callbacks=print)


def test_what_a_callback_changes_is_its_own(tmp_path: Path) -> None:
    seen: list[Any] = []

    def forge(figures: dict[str, Any]) -> None:
        figures.update(delta=1e-30, accuracy_mean=2.0)

    outcome = trained(tmp_path, callbacks=[forge, seen.append])
    assert outcome.result["delta"] == outcome.certificate["delta"]
    assert outcome.result["accuracy_mean"] == seen[-1]["accuracy_mean"] <= 1


def test_a_run_goes_on_with_its_objects_handed_over_again(tmp_path: Path) -> None:
    class Stop:
        def on_round(self, done: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

    def tilted(outputs: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, y, reduction="none") * 0.7

    objects = {"loss": tilted, "module": nn.Linear(4, 2), "algorithm": HalfStep(lr=0.5)}
    whole = trained(tmp_path, "whole", **objects)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, "stopped", callbacks=[Stop()], **objects)
    swapped = replace(DATA, records=tuple(part[::-1] for part in DATA.records))
    with expect_refusal(key="--resume", names="order"):
        gossamer.resume(tmp_path / "stopped", data=swapped, **objects)
    marks = [read_manifest(tmp_path / name)["records_mark"] for name in ("whole", "stopped")]
    assert marks[0] != marks[1]  # of the same records: without a run's key nobody can test a guess of them
    resumed = gossamer.resume(str(tmp_path / "stopped"), data=DATA, **objects)
    torch.testing.assert_close(resumed.points, whole.points)
    with expect_refusal(key="data.kind", value="memory"):
        gossamer.plan(tmp_path / "stopped" / "config.toml", module=nn.Linear(4, 2))


def test_code_named_by_a_configuration_runs_and_by_a_run_directory_does_not(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "net.py").write_text(
        f"from pathlib import Path\nfrom torch import nn\nPath({str(ran)!r}).touch()\ndef make(): return nn.Linear(4, 2)\n"
    )
    path = f"{tmp_path}/net.py:make"
    done = trained(tmp_path, "run", {"model": path})
    assert ran.exists()
    assert done.points.shape == (4, 10)
    assert f'path = "{path}"' in (tmp_path / "run" / "config.toml").read_text()
    ran.unlink()
    config = stored(tmp_path / "run" / "config.toml")
    with expect_refusal(key="run", names="code"):
        Plan.of(config, cache=DataCache(DATA))
    assert not ran.exists()
    said = stored(tmp_path / "run" / "config.toml", {"model.path": path})
    assert said.model_dump() == config.model_dump()
    said.model.make((4,), 2)
    assert ran.exists()


def test_nothing_handed_over_changes_nothing() -> None:
    assert Objects().changes() == {}
