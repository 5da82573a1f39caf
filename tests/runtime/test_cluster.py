"""What a rank says about others that are dead, silent or slow, and how it ends. On a store in this process' memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist
from tests.support.refusals import expect_refusal

from gossamer.errors import UserError
from gossamer.runtime.cluster import RankError, Ranks, Watch, meet
from gossamer.runtime.launch import FAILURE

BLOCKS = [range(0, 3), range(3, 6), range(6, 9)]
BROKEN, TIMED_OUT = "Connection closed by peer\nframe #0", "Timed out waiting 200ms"


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    """watch(rank) on one store for all; a rank without one is dead."""
    store, made = dist.HashStore(), []  # type: ignore[attr-defined]

    def make(rank: int) -> Watch:
        made.append(Watch(store, rank, BLOCKS, timeout=1.0))
        return made[-1]

    yield make
    for one in made:
        one.close()


def sentence(watch: Watch, error: str) -> str:
    with pytest.raises(RankError) as caught, watch.waiting():
        raise RuntimeError(error)
    return str(caught.value)


def test_a_dead_rank_is_named_and_all_say_the_same(watch: Any) -> None:
    here, there = watch(0), watch(2)
    here.round = 7
    assert sentence(here, BROKEN) == "rank 1 (nodes 3–5) ended in round 7"
    assert sentence(there, TIMED_OUT) == "rank 1 (nodes 3–5) ended in round 7"
    assert str(there.claim("something else")) == "rank 1 (nodes 3–5) ended in round 7"


def test_a_rank_that_is_silent_until_the_time_out_is_named(watch: Any) -> None:
    here, _ = watch(0), watch(2)
    here.round = 7
    assert sentence(here, TIMED_OUT) == "rank 1 (nodes 3–5) has not answered for 1 s in round 7"


def test_of_ranks_that_live_the_one_that_computes_keeps_the_others_waiting(watch: Any) -> None:
    here, neighbour, slow = watch(0), watch(1), watch(2)
    here.round, neighbour.round, slow.round = 7, 7, 6
    with neighbour.waiting():
        assert sentence(here, TIMED_OUT) == ("rank 2 (nodes 6–8) has kept the others waiting for 1 s in round 6")


def test_a_rank_that_gave_up_is_heard_before_its_connection_is_blamed(watch: Any) -> None:
    here, other, _ = watch(0), watch(1), watch(2)
    other.claim("node 8 (rank 2) sent NaN")
    assert sentence(here, BROKEN) == "node 8 (rank 2) sent NaN"


def test_after_sigterm_a_dead_rank_is_named_and_without_one_nobody(watch: Any) -> None:
    here, other = watch(0), watch(1)
    last = watch(2)
    time.sleep(0.05)
    assert here.terminated() is None
    last.close()
    here.round = other.round = 7
    for one in (here, other):
        assert str(one.terminated()) == "rank 2 (nodes 6–8) ended in round 7"


# A child for each case: torch is imported once.
SIGTERM = """
import json, os, signal, subprocess, sys, time
import torch.distributed as dist
from gossamer.runtime.cluster import SigtermHandler, Watch

def rank(other, how):
    blocks, store = [range(0, 3), range(3, 6)], dist.HashStore()
    watch = Watch(store, 0, blocks, timeout=1.0)
    others = [Watch(store, 1, blocks, timeout=1.0)] if other == "alive" else []
    time.sleep(0.3)
    handler = SigtermHandler(watch, grace=0.3 if how == "busy" else 60.0)
    handler.check()
    os.kill(os.getpid(), signal.SIGTERM)
    if how == "busy":
        time.sleep(120)
    try:
        handler.check()
    except KeyboardInterrupt:
        return "stopped"
    except Exception as error:
        return str(error)

children = []
for case in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        os.write(2, rank(*case).encode())
        os._exit(1)
    os.close(writing)
    children.append((child, reading))
print(json.dumps([
    [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.fdopen(errors).read().strip()]
    for child, errors in children
]))
"""
ENDS = {
    ("dead", "between rounds"): [1, "rank 1 (nodes 3–5) ended in round 0"],
    ("dead", "busy"): [2, "gossamer: rank 1 (nodes 3–5) ended in round 0"],
    ("alive", "between rounds"): [1, "stopped"],
    ("alive", "busy"): [143, "gossamer: stopped by SIGTERM"],
}


def test_sigterm_ends_a_rank_soon_and_with_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGTERM, json.dumps([*ENDS])], capture_output=True, text=True, timeout=300,
        check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [*ENDS.values()]


@pytest.mark.parametrize(
    ("environment", "rank", "place"),
    [
        ({}, 0, (True, True, "of rank 0")),
        ({}, 2, (False, True, "of rank 2")),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}, 2, (True, True, "1")),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0"}, 1, (False, False, "0")),
    ],
)
def test_a_rank_knows_its_machine(
    environment: dict[str, str], rank: int, place: tuple[bool, bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    ranks = Ranks(BLOCKS, rank, dist.HashStore(), 0.1)  # type: ignore[attr-defined]
    assert (ranks.first_here, ranks.spread, ranks.machine) == place
    with pytest.raises(SystemExit) if not ranks.first_here else pytest.raises(UserError), ranks:
        raise UserError("the disk is full.")


@pytest.mark.parametrize(
    ("error", "claimed"),
    [
        (UserError("the disk is full."), "the disk is full."),
        (RuntimeError("odd\nand more"), "rank 1 (nodes 3–5) failed in round 4: odd"),
        (KeyboardInterrupt(), "rank 1 (nodes 3–5) was stopped in round 4"),
    ],
)
@pytest.mark.parametrize("launched", [True, False])
def test_a_failure_is_everybodys_and_one_process_prints_it(
    error: BaseException, claimed: str, launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_RANK", "0")
    if launched:
        monkeypatch.setenv("GOSSAMER_LAUNCHED", "1")
    store = dist.HashStore()  # type: ignore[attr-defined]
    silent = launched and not isinstance(error, RuntimeError)
    ranks = Ranks(BLOCKS, 1, store, 1.0)
    ranks.begin_round(4)
    with pytest.raises(SystemExit if silent else type(error)), ranks:
        raise error
    assert store.get(FAILURE).decode() == claimed


def test_between_machines_the_words_of_an_error_stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    store = dist.HashStore()  # type: ignore[attr-defined]
    with expect_refusal(key="row", value="7"), Ranks(BLOCKS, 1, store, 0.1):
        raise UserError("row 7 has the label 'Anna Schmidt'.")
    assert store.get(FAILURE).decode() == "rank 1 (nodes 3–5) failed in round 0: its own terminal says why"


def test_a_store_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with expect_refusal(key="rank", value="1", names="127.0.0.1", remedy=True):
        meet(1.0)
