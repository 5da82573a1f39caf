"""Modules of every kind through `gossamer.run`: each is trained, or refused by a sentence that names its layer."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations

import gossamer
from gossamer.kernels.clipped_sum import ClippedSum

FEATURES, CLASSES = 8, 3
SETTINGS: dict[str, Any] = {
    "nodes": 2,
    "rounds": 2,
    "seed": 1,
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dyn-d2p", "lr": 0.1},
    "privacy": {"epsilon": 4.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.5}},
}


class Behind(nn.Module):
    """A linear head behind a function of the records."""

    def __init__(self, prepare: Callable[[Tensor], Tensor], outputs: int = FEATURES, **parts: Any) -> None:
        super().__init__()
        self.prepare, self.head = prepare, nn.Linear(outputs, CLASSES)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.prepare(x))
        return out


class Reads(nn.Module):
    """Rows of a table, by the signs of a record's values."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.head = table, nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found = self.table((x > 0).long())
        return self.head(found.mean(1) if found.ndim == 3 else found)


class Sequences(nn.Module):
    """A layer on two positions of four numbers each."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x.unflatten(1, (2, 4)))
        return self.head((found[0] if isinstance(found, tuple) else found).mean(1))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.scale = nn.Linear(FEATURES, CLASSES), nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * self.scale


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, CLASSES, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64) @ self.weight).abs()


class Attention(nn.Module):
    """Post-norm attention, spelled out."""

    def __init__(self) -> None:
        super().__init__()
        self.joined, self.norm = nn.Linear(4, 12), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.joined(x).chunk(3, -1)
        return self.norm(x + F.scaled_dot_product_attention(q, k, v))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).detach()


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def records(rows: int = 40) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.rand(rows, FEATURES, generator=draw), torch.randint(0, CLASSES, (rows,), generator=draw)


def trained(
    module: nn.Module, folder: Path, x: Tensor, y: Tensor, changes: Any = None, **more: Any
) -> gossamer.Outcome:
    data = gossamer.Data((x, y), classes=CLASSES, count=len(x) // 2, **more)
    return gossamer.run(SETTINGS, changes, module=module, data=data, out=folder / "run")


TRAINED: dict[str, Callable[[], nn.Module]] = {
    "transformer layer": lambda: Sequences(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
    "attention by hand": lambda: Sequences(Attention()),
    "lstm": lambda: Sequences(nn.LSTM(4, 4, batch_first=True)),
    "sparse embedding": lambda: Reads(nn.Embedding(2, 4, sparse=True)),
    "sparse bag": lambda: Reads(nn.EmbeddingBag(2, 4, sparse=True)),
    "a parameter that is a number": Scaled,
    "weight norm": lambda: parametrizations.weight_norm(linear()),  # type: ignore[no-untyped-call]
    "data parallel": lambda: nn.DataParallel(linear()),
}


@pytest.mark.parametrize("kind", TRAINED)
def test_is_trained(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    outcome = trained(TRAINED[kind](), tmp_path, *records())
    assert outcome.result["epsilon_proven"] <= 4.0
    assert all(bool(value.isfinite().all()) for value in outcome.module().parameters())


def square(x: Tensor) -> Tensor:
    return x[:, :4].unflatten(1, (2, 2))


def written_by_value(x: Tensor) -> Tensor:
    """What comes back through a pool, to places that are a record's values."""
    planes, places = x.view(-1, 2, 2, 2), x[:, :2].long().view(-1, 2, 1, 1)
    back = torch.ops.aten.max_pool2d_with_indices_backward
    return back(planes[:, :, :1, :1], planes, [2, 2], [2, 2], [0, 0], [1, 1], False, places).flatten(1)


# The layer that the sentence names, and the module.
REFUSED: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "scripted child": ("layer '0'", lambda: nn.Sequential(torch.jit.script(nn.ReLU()), linear())),
    "traced": ("TopLevelTracedModule", lambda: torch.jit.trace(linear(), torch.zeros(1, FEATURES))),
    "compiled": ("OptimizedModule", lambda: torch.compile(linear())),
    "float64": ("Linear", lambda: linear().double()),
    "float64 inside": ("layer '0'", lambda: nn.Sequential(nn.Linear(FEATURES, 4).double(), nn.Linear(4, CLASSES))),
    "half": ("float16", lambda: linear().half()),
    "complex": ("complex64", Complex),
    "lazy": ("layer '0'", lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, CLASSES))),
    "without values": ("meta", lambda: nn.Linear(FEATURES, CLASSES, device="meta")),
    "without parameters": ("Flatten", nn.Flatten),
    "loss of no parameter": ("Detached", Detached),
    "too few outputs": ("3 classes", lambda: nn.Linear(FEATURES, CLASSES - 1)),
    "as_strided": ("as_strided", lambda: Behind(lambda x: x.as_strided((x.shape[0], FEATURES), (FEATURES, 1)))),
    "places of no pool": ("max_pool2d", lambda: Behind(written_by_value)),
    "pivots by value": (
        "ldl_solve", lambda: Behind(lambda x: torch.linalg.ldl_solve(square(x), x[:, :2].int(), square(x)).repeat(1, 2, 1).flatten(1))
    ),
    "results by value": ("nonzero", lambda: Behind(lambda x: x * x.nonzero().shape[0])),
    "random inverse": (
        "predicts", lambda: Behind(lambda x: torch.linalg.inv(x.unflatten(1, (2, 2, 2))).flatten(1) * torch.rand_like(x))
    ),
    "spectral norm": ("_SpectralNorm", lambda: parametrizations.spectral_norm(linear())),  # type: ignore[no-untyped-call]
}  # fmt: skip


SLOW = ("compiled",)  # half of torch is imported


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in REFUSED]
)
def test_is_refused(kind: str, tmp_path: Path) -> None:
    named, make = REFUSED[kind]
    with expect_refusal(remedy=False) as refused:
        trained(make(), tmp_path, *records())
    assert refused.value.key in ("model", "module")
    assert named in str(refused.value)
    assert not (tmp_path / "run").exists()


# What fails on a record of sevens: a place outside of the record, or a matrix that is singular.
FAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "gather": lambda x: x.gather(1, 2 * x.long()),
    "take": lambda x: x.take(2 * x.long()),
    "inverse": lambda x: torch.linalg.inv(x.unflatten(1, (2, 2, 2))).flatten(1),
    "cholesky": lambda x: torch.linalg.cholesky(torch.eye(8) - torch.diag_embed(x.floor())).sum(2),
    "classes": lambda x: x + F.one_hot(2 * x[:, 0].long(), FEATURES),
    "chances": lambda x: F.binary_cross_entropy(x, x.clamp(0, 1), reduction="none"),
}


@pytest.mark.parametrize("kind", FAILS)
def test_no_record_ends_a_run(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing that is printed says that one fails."""
    x, y = records(45)
    x[[3, 25]] = 7.0
    outcome = trained(Behind(FAILS[kind]), tmp_path, x[:40], y[:40], test=(x[40:], y[40:]))
    assert 0 <= outcome.result["accuracy_mean"] <= 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("private", [False, True])
def test_nor_does_one_that_is_held_out(private: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x, y = records(45)
    x[slice(0, 40, 3) if private else 43] = 7.0
    held_out = {} if private else {"test": (x[40:], y[40:])}
    changes = {"evaluation.private": 0.3} if private else None
    trained(Behind(FAILS["gather"]), tmp_path, x[:40], y[:40], changes, **held_out)
    assert (tmp_path / "run" / "certificate.html").exists()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["transformer layer", "attention by hand", "lstm"])
def test_is_book_kept(kind: str) -> None:
    x, y = records(4)
    ClippedSum(TRAINED[kind](), nn.CrossEntropyLoss(reduction="none"), method="book-keeping").try_on(x[None], y[None])


def test_that_it_is_slower_is_said_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.WARNING, "gossamer"):
        trained(Behind(lambda x: torch.einsum("ni,ni->ni", x, x)), tmp_path, *records())
    assert [record.name for record in caplog.records if "slower" in record.getMessage()] == ["gossamer"]


@pytest.mark.slow
def test_torch_prints_nothing_of_its_own() -> None:
    code = (
        "import torch; from torch import nn\n"
        "from tests.training.test_own_modules import Behind, records\n"
        "from gossamer.kernels.clipped_sum import ClippedSum\n"
        "x, y = records(4)\n"
        "net = Behind(lambda x: torch.einsum('ni,ni->ni', x, x))\n"
        "kernel = ClippedSum(net, nn.CrossEntropyLoss(reduction='none'))\n"
        "kernel.try_on(x[None], y[None])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert [line for line in said.splitlines() if "come from vmap" not in line] == []
