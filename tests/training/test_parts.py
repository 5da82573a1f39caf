"""Records of several parts, and sequences of different lengths, through a module with several arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.errors import UserError
from gossamer.training.predict import export, predict_file

ROWS, LENGTH, NODES = 60, 6, 3


class Reader(nn.Module):
    """Tokens and a mask, by name or in order; attention of torch over what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.attention(x, x, x, key_padding_mask=~mask, need_weights=False)[0]
        there = mask.unsqueeze(2)
        out: Tensor = self.head((x * there).sum(1) / there.sum(1).clamp(min=1))
        return out


def reader() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Reader()


RNG = np.random.default_rng(5)
SEQUENCES = [RNG.integers(1, 20, RNG.integers(1, LENGTH + 1)) for _ in range(ROWS)]
LABELS = np.array([int((one > 10).mean() > 0.5) for one in SEQUENCES])
TOKENS = np.zeros((ROWS, LENGTH), np.int64)
for _row, _own in zip(TOKENS, SEQUENCES, strict=True):
    _row[: len(_own)] = _own
MASK = TOKENS > 0

CHANGES: dict[str, Any] = {
    "nodes": NODES, "rounds": 3, "topology.kind": "ring", "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
    "privacy.noise.source": "seeded", "privacy.epsilon": 8.0, "checkpoints.every": 1,
    "privacy.sampling": {"kind": "full"}, "lora": {"rank": 2, "targets": ["attention"], "train": ["head"]},
}  # fmt: skip


def data(records: Any, **options: Any) -> gossamer.Data:
    public = RNG.integers(1, 20, (30, LENGTH))
    by_name = {"tokens": public, "mask": np.ones_like(public, bool)}
    test = (by_name, np.arange(30) % 2) if isinstance(records, tuple) and isinstance(records[0], dict) else None
    return gossamer.Data(records, classes=2, count=ROWS // NODES, test=test, **options)


def by_node(records: Any) -> list[Any]:
    return [
        tuple([value for i, value in enumerate(part) if i % NODES == node] for part in records) for node in range(NODES)
    ]


def test_every_form_trains_the_same_model(tmp_path: Path) -> None:
    forms = [
        data(({"tokens": TOKENS, "mask": MASK}, LABELS), owners=np.arange(ROWS) % NODES),
        data(((torch.from_numpy(TOKENS), torch.from_numpy(MASK)), LABELS), owners=np.arange(ROWS) % NODES),
        data((SEQUENCES, LABELS), owners=np.arange(ROWS) % NODES, length=LENGTH),
        data(by_node((SEQUENCES, LABELS)), length=LENGTH),
    ]
    changes = CHANGES | {"algorithm": {"kind": "dp-dsgd", "lr": 0.5}}
    points = [gossamer.run("quickstart", changes, module=reader(), data=form).points for form in forms]
    for other in points[1:]:
        torch.testing.assert_close(other, points[0])


def test_such_a_run_is_resumed_loaded_used_and_exported(tmp_path: Path) -> None:
    given = data(({"tokens": TOKENS, "mask": MASK}, LABELS), owners=np.arange(ROWS) % NODES)
    outcome = gossamer.run("quickstart", CHANGES, module=reader(), data=given, out=tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(_: Any) -> None:
        raise StopError

    changes = {**CHANGES, "evaluation.every": 1}
    with pytest.raises(StopError):
        gossamer.run("quickstart", changes, module=reader(), data=given, out=tmp_path / "cut", callbacks=[stop])
    resumed = gossamer.resume(tmp_path / "cut", module=reader(), data=given)
    torch.testing.assert_close(resumed.points, outcome.points)

    module = outcome.module()
    due = module(torch.from_numpy(TOKENS), torch.from_numpy(MASK)).argmax(1).numpy()  # as its author calls it
    by_name = {"tokens": TOKENS, "mask": MASK}
    np.testing.assert_array_equal(outcome.predict(by_name), due)
    loaded = gossamer.load(tmp_path / "whole", module=reader())
    np.testing.assert_array_equal(loaded.predict(by_name), due)
    np.savez(tmp_path / "rows.npz", y=LABELS, **by_name)
    told = predict_file(tmp_path / "whole", tmp_path / "rows.npz", tmp_path / "out.csv", module=reader())
    assert told["accuracy"] == pytest.approx((due == LABELS).mean())
    assert loaded.verdict.broken is None

    export(tmp_path / "whole", tmp_path / "exported", module=reader())
    plain = reader()  # the file fits the network from before the adapters
    from safetensors.torch import load_file

    plain.load_state_dict(load_file(tmp_path / "exported" / "model.safetensors"))
    whole = plain.eval()(torch.from_numpy(TOKENS), torch.from_numpy(MASK))
    torch.testing.assert_close(whole, module(torch.from_numpy(TOKENS), torch.from_numpy(MASK)))


@pytest.mark.slow
def test_such_a_run_becomes_onnx(tmp_path: Path) -> None:
    given = data(({"tokens": TOKENS, "mask": MASK}, LABELS), owners=np.arange(ROWS) % NODES)
    gossamer.run("quickstart", CHANGES, module=reader(), data=given, out=tmp_path / "whole")
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    export(tmp_path / "whole", tmp_path / "other", kind="onnx", module=reader())  # compared with the network


def test_persons_have_parts_too() -> None:
    given = data(
        ({"tokens": TOKENS, "mask": MASK}, LABELS),
        owners=np.arange(ROWS) % NODES,
        persons=np.array([f"{i % NODES} {i % 7}" for i in range(ROWS)]),
    )
    changes = {**CHANGES, "privacy.unit": {"column": "whose"}}
    assert gossamer.run("quickstart", changes, module=reader(), data=given).result["epsilon_proven"] <= 8


def test_a_network_of_one_argument_is_refused_for_several_parts() -> None:
    given = data(({"tokens": TOKENS, "mask": MASK}, LABELS))
    changes = {key: value for key, value in CHANGES.items() if key != "lora"}
    with pytest.raises(UserError) as caught:
        gossamer.plan("quickstart", {**changes, "model.kind": "mlp"}, data=given)
    assert caught.value.key == "model.kind"
