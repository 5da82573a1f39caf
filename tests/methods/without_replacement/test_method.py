"""The shared model as a method: which parts it brings, and what of them may be public."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.mechanism import Book
from tests.support.without_replacement import DIGITS

from gossamer.methods import method_of
from gossamer.methods.without_replacement.local_models import (
    Blind,
    LocalModels,
    RawDecisions,
    RawView,
    ReleasedView,
)
from gossamer.training.assemble import assemble

FIXED: dict[str, Any] = {"privacy__epsilon": None, "privacy__noise__multiplier": 5.0, "data__train_rows": 80}


@pytest.mark.parametrize(
    ("changes", "view"),
    [
        ({"algorithm__controller": "global"}, Blind),
        ({"algorithm__controller": "loss-threshold"}, ReleasedView),
        ({"algorithm__controller": "deep-q"}, ReleasedView),
        ({"algorithm__controller": "deep-q", "algorithm__observes": "raw", "mode": "paper"}, RawView),
    ],
)
def test_a_controller_sees_what_it_may(changes: dict[str, Any], view: type[Any]) -> None:
    parts = assemble(outlined(DIGITS, **FIXED, **changes))
    reader = parts.reader(Book())
    assert isinstance(reader, LocalModels)
    assert isinstance(reader._view, view)
    raw = view is RawView
    assert isinstance(parts.plan.method.noise, RawDecisions) == raw


@pytest.mark.parametrize("source", ["system", "seeded"])
def test_what_is_kept_is_public(source: str) -> None:
    parts = assemble(outlined(DIGITS, **FIXED, privacy__noise__source=source))
    algorithm, method, reader = parts.plan.algorithm, parts.plan.method, parts.reader(Book())
    kept = method.checkpoint(algorithm.init(parts.x0), reader)
    assert set(kept) == {"public", "holder", "writes", "gradient.draws", "gradient.released_loss"}


def test_everyone_has_the_one_shared_model() -> None:
    parts = assemble(outlined(DIGITS, **FIXED, algorithm__controller="global", algorithm__scored="local", mode="paper"))
    algorithm, method, reader = parts.plan.algorithm, parts.plan.method, parts.reader(Book())
    state = algorithm.init(torch.randn(1, 640).expand(4, -1))
    assert torch.equal(method.released(algorithm, state, 4), state.public.expand(4, -1))
    assert torch.equal(method.scored(algorithm, state, reader, 4), reader.models())
    assert method.bytes_per_round(algorithm, parts.plan.topology, 640) == 4 * 640 * 4


def test_a_stop_loses_local_models() -> None:
    method = method_of(configured(DIGITS))
    assert method.keeps_local_models
    assert not method.resumable
