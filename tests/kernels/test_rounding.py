"""Floats of a clipped sum: records do not see each other, and the sum is within what `rounding` says of the real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.support.per_sample import WEIGHS
from torch import Tensor, nn

from gossamer.kernels import clipped_sum, layers, products, rounding
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.persons import RECORDS, Persons
from gossamer.kernels.rounding import EXCESS, even, excess, fits, most, room
from gossamer.kernels.stack import ParameterStack


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(20, 12), nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        return self.out(self.norm(h + torch.softmax(h @ h.mT / 12**0.5, -1) @ h).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.GRU(5, 7, batch_first=True), nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x)[0][:, -1])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "softmax": (lambda: nn.Linear(33, 4), (33,), 0),
    "relu": (lambda: nn.Sequential(nn.Linear(33, 17), nn.ReLU(), nn.Linear(17, 4)), (33,), 0),
    "gelu": (lambda: nn.Sequential(nn.Linear(33, 17), nn.GELU(), nn.Linear(17, 4)), (33,), 0),
    "tanh": (lambda: nn.Sequential(nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 4)), (33,), 0),
    "dropout": (lambda: nn.Sequential(nn.Linear(33, 17), nn.Dropout(0.3), nn.Linear(17, 4)), (33,), 0),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 4)),
        (1, 12, 12),
        0,
    ),
    "channels": (
        lambda: nn.Sequential(
            nn.Conv2d(8, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 4)
        ),
        (8, 4, 4),
        0,
    ),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Flatten(), nn.Linear(120, 4)),
        (3, 6),
        0,
    ),
    "attention": (Attention, (9,), 20),
    "recurrent": (Recurrent, (4, 5), 0),
}


def records(network: str, number: int, seed: int = 0) -> tuple[ClippedSum, Tensor, Tensor, Tensor]:
    make, shape, tokens = NETWORKS[network]
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = make()
    x = (
        torch.randint(tokens, (number, *shape), generator=generator)
        if tokens
        else torch.randn(number, *shape, generator=generator)
    )
    y = torch.randint(4, (number,), generator=generator)
    return (
        ClippedSum(module, nn.CrossEntropyLoss(reduction="none")),
        ParameterStack(module).flatten(module),
        x,
        y,
    )


def norms_of_lot(kernel: ClippedSum, point: Tensor, x: Tensor, y: Tensor, rows: list[int], nodes: int) -> Tensor:
    given = x[rows].expand(nodes, -1, *x.shape[1:]), y[rows].expand(nodes, -1)
    everyone = torch.ones(nodes, len(rows), dtype=torch.bool)
    return kernel(point.expand(nodes, -1).contiguous(), *given, everyone, torch.ones_like)[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "dropout"])
def test_what_a_person_adds_does_not_depend_on_the_lot(network: str, mean: bool) -> None:
    """Its norm, to the last bit, with one record and with five, among persons of one, of many, on one node and two."""
    kernel, point, x, y = records(network, 60)
    kernel.expect(9, varies=True)

    def norms_of(*groups: list[int]) -> Tensor:
        counts = torch.tensor([[len(group) for group in groups]] * 2)
        rows, nodes = [b for group in groups for b in group], 2
        of = torch.repeat_interleave(torch.arange(len(groups)), counts[0]).expand(nodes, -1)
        given = x[rows].expand(nodes, -1, *x.shape[1:]), y[rows].expand(nodes, -1)
        everyone = torch.ones(nodes, len(rows), dtype=torch.bool)
        persons = Persons(of, counts, mean)
        return kernel(point.expand(nodes, -1).contiguous(), *given, everyone, torch.ones_like, persons=persons)[1]

    one, five = [0], [1, 2, 3, 4, 5]
    alone, single = norms_of(five)[0, 0], norms_of(one)[0, 0]
    others = [[b] for b in range(6, 20)]
    for groups in (
        [one, five],
        [*others, five, one],
        [[20, 21], five, list(range(22, 40)), one, *others],
        [list(range(40 + k, 46 + k)) for k in range(8)] + [five, one],
    ):
        norms = norms_of(*groups)
        for person, expected in ((groups.index(five), alone), (groups.index(one), single)):
            assert norms[:, person].tolist() == [float(expected)] * 2


def to_norm_one(norms: Tensor) -> Tensor:
    return (1 / norms.clamp_min(1e-30)).clamp_max(1e30)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "dropout"])
def test_what_a_record_adds_does_not_depend_on_the_lot(network: str) -> None:
    """Its norm, to the last bit: alone, among others, in another place, in a lot that needs another piece."""
    kernel, point, x, y = records(network, 40)
    kernel.expect(9, varies=True)
    alone = norms_of_lot(kernel, point, x, y, [0], 2)[0, 0]
    for rows, place in (
        ([0, 1, 2], 0),
        ([*range(1, 12), 0], 11),
        ([*range(5, 25), 0, 30], 20),
        ([*range(40)], 0),
    ):
        among = norms_of_lot(kernel, point, x, y, rows, 2)[:, place]
        assert among.tolist() == [float(alone)] * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e4])
def test_sums_of_neighbouring_lots_differ_by_the_clip_and_the_excess(network: str, size: float) -> None:
    """A record more, at any place, among records of the same clip: 64 of them, so that rounding could add up."""
    kernel, point, x, y = records(network, 64)
    if network == "dropout":
        kernel.module.eval()
    x = x if not x.is_floating_point() else x * size
    kernel.expect(48, varies=True)

    def lot(rows: list[int]) -> Tensor:
        everyone = torch.ones(1, len(rows), dtype=torch.bool)
        return kernel(point[None], x[rows][None], y[rows][None], everyone, to_norm_one)[0].double()

    everybody = list(range(64))
    for extra in (0, 31, 63):
        moved = lot(everybody) - lot([b for b in everybody if b != extra])
        assert float(moved.norm()) <= 1 + EXCESS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("of_persons", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_on_one_node_moves_no_other_nodes_sum(network: str, of_persons: bool) -> None:
    """To the last bit: a record or person more, an unusable one, and so many that the node needs another call."""
    kernel, point, x, y = records(network, 60)
    kernel.module.eval()
    kernel.expect(9, varies=True)

    def sums(others: list[list[int]], bad: int | None = None) -> Tensor:
        nodes = [[[0], [1], [2, 3], [4, 5, 6]], others]
        nodes = nodes if of_persons else [[[b] for group in own for b in group] for own in nodes]
        flat = [[b for group in own for b in group] for own in nodes]
        persons, places = max(map(len, nodes)), max(map(len, flat))
        counts, of = torch.zeros(2, persons, dtype=torch.int64), torch.zeros(2, places, dtype=torch.int64)
        rows, there = torch.zeros(2, places, dtype=torch.int64), torch.zeros(2, places, dtype=torch.bool)
        for i, own in enumerate(nodes):
            size = len(flat[i])
            rows[i, :size], there[i, :size] = torch.tensor(flat[i]), True
            counts[i, : len(own)] = torch.tensor([len(group) for group in own])
            of[i, :size] = torch.repeat_interleave(torch.arange(len(own)), counts[i, : len(own)])
        given = x[rows].clone()
        if bad is not None and x.is_floating_point():
            given[1, bad] = float("nan")
        elif bad is not None:
            given[1, bad] = 10**9
        whose = Persons(of, counts) if of_persons else None
        return kernel(point.expand(2, -1).contiguous(), given, y[rows], there, to_norm_one, persons=whose)[0]

    expected = sums([[7], [8, 9]])[0]
    for others in ([[7], [8, 9], [10]], [[10, 11, 12, 13, 14]], [[b] for b in range(10, 55)]):
        assert torch.equal(sums(others)[0], expected)
        assert torch.equal(sums(others, bad=1)[0], expected)


def test_an_unusable_record_leaves_the_others_as_they_were() -> None:
    kernel, point, x, y = records("tanh", 12)
    kernel.expect(9, varies=True)
    good = norms_of_lot(kernel, point, x, y, list(range(12)), 1)
    for value in (float("nan"), float("inf"), 1e30):
        bad = x.clone()
        bad[4] = value
        norms = norms_of_lot(kernel, point, bad, y, list(range(12)), 1)
        assert norms[0, 4] == 0
        norms[0, 4] = good[0, 4]
        assert torch.equal(norms, good)


@pytest.mark.parametrize("terms", [7, 60, 700])
def test_weighted_sums_are_as_near_as_is_said(terms: int) -> None:
    """Of unit vectors nearly all in one direction, so that partial sums, and what rounds off, are large."""
    generator = torch.Generator().manual_seed(terms)
    rows = torch.nn.functional.normalize(torch.randn(terms, 300, generator=generator).abs() + 1, dim=1)
    weights = torch.rand(1, terms, generator=generator)
    exact = (weights.double() @ rows.double())[0]
    off = (layers.weighted_rows(weights, rows, terms)[0].double() - exact).norm()
    assert 2 * float(off) <= excess(terms)
    out = torch.empty(1, 300)
    products.combined_in_double(weights.T.numpy(), rows.numpy(), out.numpy())
    assert torch.equal(out[0], exact.float())


def wide_convolution(count: int, seed: int) -> tuple[layers.ConvolutionRule, layers.Parameters, Tensor, Tensor]:
    """A layer whose norms come from Gram matrices; inputs and output gradients that add up in one direction."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    rule, parameters = layers.ConvolutionRule(layer), {"weight": layer.weight.detach()[None]}
    a = rule.prepare(torch.rand(count, 64, 4, 4, generator=generator) + 1)
    return rule, parameters, a, torch.rand(count, 64, 4, 4, generator=generator) + 1


@pytest.mark.parametrize("count", [30, 4000])
def test_sums_of_wide_convolutions_are_as_near_as_is_said(count: int) -> None:
    """Of as many records as a lot may have; the norms are the kernel's own."""
    rule, parameters, a, g = wide_convolution(count, 1)
    kept = rule.measure(parameters, a, g, rule.forward(parameters, a)[1], RECORDS, count)
    square = kept.square_norms if kept.least is None else torch.maximum(kept.square_norms, kept.least)
    weights = to_norm_one(square.sqrt())[None]
    total = {"weight": torch.empty(1, 64, 64, 3, 3)}
    kept.put(weights, total, count)
    exact = torch.einsum(
        "not,ntc->oc", (g * weights.view(-1, 1, 1, 1)).flatten(2).double(), rule._windows(a)[:, 0].double()
    )
    off = rule._weight_layout(exact[None], total["weight"]) - total["weight"].double()
    assert float(off.norm()) <= EXCESS / 2


def test_terms_that_cancel_count_as_much_as_float32_may_lose_of_them() -> None:
    """Of two records with the same sum, the one whose terms are larger gets the smaller weight: w S is bounded."""
    lot, positions = 16, 16
    share = rounding.share(lot * positions, most(room(lot, varies=False)))
    assert 0 < share <= rounding.MOST_SHARE
    rule, parameters, a, g = wide_convolution(lot, 2)
    a[1], g[1] = a[0], g[0] - g[0].mean((1, 2), keepdim=True) + 1e-4  # nearly nothing is left of their sum
    a[1] = 1.0
    kept = rule.measure(parameters, a, g, None, RECORDS, most(room(lot, varies=False)))
    assert kept.least is not None
    sizes = g.flatten(2).norm(dim=1) * rule._windows(a)[:, 0].norm(dim=2)
    assert bool((kept.least.sqrt() >= share * sizes.sum(1)).all())
    assert kept.least[0] < kept.square_norms[0]


def test_where_float32_is_enough() -> None:
    assert fits(9 + 320 // 8, 320)  # lots of 256, by eights
    assert not fits(304, 304)
    assert rounding.records_at_a_time(64, 20) == 6  # of a ResNet-18's third stage
    assert rounding.records_at_a_time(16, 40) == 12
    assert rounding.records_at_a_time(16, 4000) == 0
    assert [even(30, nodes) for nodes in (1, 4, 20, 32)] == [32, 32, 32, 30]
    assert [room(1, varies=True), room(16, varies=True), room(16, varies=False)] == [4, 32, 16]
    assert excess(256) == EXCESS
    assert excess(60_000) == pytest.approx(4 * 2**-24 * 1.25 * 60_736)


def test_a_module_whose_records_see_their_places_is_computed_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clipped_sum, "steady", lambda *_: False)
    kernel, point, x, y = records("tanh", 12)
    kernel.expect(9, varies=True)
    steady, *_ = records("tanh", 12)
    one = norms_of_lot(kernel, point, x, y, list(range(12)), 2)
    assert torch.allclose(one, norms_of_lot(steady, point, x, y, list(range(12)), 2), rtol=1e-4)
    assert torch.equal(one[:, 3], norms_of_lot(kernel, point, x, y, [3], 2)[:, 0])
    assert rounding.room(9, varies=True) > 1


@pytest.mark.parametrize("allowed", ["autocast", "products", "everything"])
def test_faster_products_of_the_caller_change_no_bit(allowed: str) -> None:
    """In bfloat16 a record moved a sum by up to 1% more than its clip, which no release pays for."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 3))
    points = ParameterStack(module).flatten(module).detach().repeat(2, 1)
    x, y = torch.randn(2, 32, 8), torch.randint(3, (2, 32))
    everyone, backends = torch.ones(2, 32, dtype=torch.bool), torch.backends.mkldnn

    def total() -> Tensor:
        kernel = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
        kernel.expect(32, varies=False)
        kernel.try_on(x, y)
        return kernel(points, x, y, everyone, WEIGHS["constant"])[0]

    plain = total()
    if allowed == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(total(), plain)
        return
    kinds = [backends.matmul, backends.conv][: 1 if allowed == "products" else 2]  # type: ignore[attr-defined]
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "bf16"
        assert torch.equal(total(), plain)
        assert [kind.fp32_precision for kind in kinds] == ["bf16"] * len(kinds)
    finally:
        for kind, own in zip(kinds, before, strict=True):
            kind.fp32_precision = own
