"""Sites export their tables in different orders: the model that comes of it is the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from gossamer.training.api import run
from gossamer.training.run import Outcome

NODES, NAMES = 4, ["age", "dose", "pressure", "pulse"]
Order = Callable[[int], Sequence[int]]


def by_turns(node: int) -> list[int]:
    return [(column + node) % len(NAMES) for column in range(len(NAMES))]


def trained(folder: Path, names: Order, values: Order) -> Outcome:
    """Files of which node i names its columns in one order and fills them in another."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for node in range(-1, NODES):  # node −1 is the hold-out, in order
        x = rng.standard_normal((300, len(NAMES)))
        labels = (x @ [3.0, -2.0, 1.0, 0.0] > 0).astype(int)
        named, filled = (names(node), values(node)) if node >= 0 else (range(4), range(4))
        lines = [",".join([*(f"{row[c]:.6f}" for c in filled), str(y)]) for row, y in zip(x, labels, strict=True)]
        head = ",".join([*(NAMES[c] for c in named), "ill"])
        (folder / f"site-{'test' if node < 0 else node}.csv").write_text("\n".join([head, *lines, ""]))
    data = {
        "kind": "csv", "path": str(folder / "site-{node}.csv"), "test": str(folder / "site-test.csv"),
        "label": "ill", "classes": 2, "records": 300,
    }  # fmt: skip
    privacy = {
        "epsilon": 8.0, "delta": 1e-5, "sampling": {"kind": "full"}, "clip": {"kind": "constant", "bound": 1.0},
        "noise": {"source": "seeded", "schedule": {"kind": "constant"}},
    }  # fmt: skip
    config = {
        "nodes": NODES, "rounds": 30, "data": data, "model": {"kind": "softmax"}, "topology": {"kind": "complete"},
        "algorithm": {"kind": "dp-dsgd", "lr": 1.0}, "privacy": privacy,
    }  # fmt: skip
    return run(config, out=folder / "run")


def test_columns_in_another_order_make_the_same_model_to_the_last_bit(tmp_path: Path) -> None:
    ordered = trained(tmp_path / "ordered", lambda _: range(4), lambda _: range(4))
    turned = trained(tmp_path / "turned", by_turns, by_turns)
    assert torch.equal(turned.points, ordered.points)
    assert turned.result["accuracy_mean"] == ordered.result["accuracy_mean"] > 0.9
    # What was learned when columns were matched by place: each site's numbers under the other sites' names.
    by_place = trained(tmp_path / "by-place", lambda _: range(4), by_turns)
    assert by_place.result["accuracy_mean"] < ordered.result["accuracy_mean"] - 0.1
