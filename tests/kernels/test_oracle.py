"""Per-sample gradients: one autograd call per record, and a closed form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.support import mixing
from tests.support.per_sample import WEIGHS, cross_entropy, problem
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import oracle
from gossamer.kernels.oracle import Vmap, one_output
from gossamer.kernels.persons import Part
from gossamer.kernels.rounding import NotFiniteError
from gossamer.kernels.stack import ParameterStack


@pytest.mark.parametrize("case", ["mlp", "conv", "embedding", "residual"])
def test_every_record_by_itself(case: str) -> None:
    module, points, x, y = problem(case, 2, 3, 1)
    found = Vmap(module, cross_entropy, x, y).gradients(points, x, y)
    stack = ParameterStack(module)
    for node in range(2):
        stack.load(module, points[node])
        for record in range(3):
            loss = cross_entropy(module(x[node, record][None]), y[node, record][None]).sum()
            alone = torch.autograd.grad(loss, list(module.parameters()))
            flat = torch.cat([part.flatten() for part in alone])
            torch.testing.assert_close(found[node, record], flat, rtol=1e-4, atol=1e-6)


def test_a_softmax_in_closed_form() -> None:
    """(p − e_y) ⊗ x for the weights, p − e_y for the bias."""
    module, points, x, y = problem("linear", 3, 4, 2)
    found = Vmap(module, cross_entropy, x, y).gradients(points, x, y)
    weight, bias = points[:, :18].view(3, 3, 6), points[:, 18:]
    outputs = torch.einsum("mci,mbi->mbc", weight, x) + bias[:, None]
    excess = outputs.softmax(2) - nn.functional.one_hot(y, 3)
    expected = torch.cat([torch.einsum("mbc,mbi->mbci", excess, x).flatten(2), excess], 2)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_empty_lots_have_no_gradients() -> None:
    module, points, x, y = problem("linear", 3, 0, 2)
    assert Vmap(module, cross_entropy, x, y).gradients(points, x, y).shape == (3, 0, points.shape[1])


def test_infinite_norms_are_raised_before_sums_are_put() -> None:
    module, points, x, y = problem("linear", 2, 3, 3)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    kernel, target = Vmap(module, cross_entropy, x, y), torch.full_like(points, 7.0)
    norms = kernel.weighted(Part(points, x, y, mask), WEIGHS["none"], target)
    once = target.clone()
    assert norms[0, 1] == 0
    x[1, 0] = 3e38
    with pytest.raises(NotFiniteError) as caught:
        kernel.weighted(Part(points, x, y, mask), WEIGHS["none"], target)
    assert caught.value.records.nonzero().tolist() == [[1, 0]]
    assert torch.equal(target, once)  # nothing was written


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (mixing.LooksAtTheLot, "Python"),
        (mixing.RemembersTheLot, "call"),
        (mixing.RemembersInABuffer, "buffer"),
        (mixing.RemembersElsewhere, "call"),
        (mixing.PythonsRandomNumbers, "call"),
        (mixing.OwnBatchNorm, "time"),
    ],
)
def test_what_cannot_be_computed_for_one_record_is_refused(make: type[nn.Module], words: str) -> None:
    x, y = torch.randn(1, 2, mixing.FEATURES), torch.zeros(1, 2, dtype=torch.long)
    with expect_refusal(key="model", names=words) as caught:
        Vmap(make(), cross_entropy, x, y)
    assert make.__name__ in str(caught.value)


def test_the_refusal_names_the_layer() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Sequential(mixing.LooksAtTheLot()))
    x, y = torch.randn(1, 2, mixing.FEATURES), torch.zeros(1, 2, dtype=torch.long)
    with expect_refusal(key="model", names="1.0 LooksAtTheLot"):
        Vmap(net, cross_entropy, x, y)


@pytest.mark.parametrize("make", [mixing.CentredInTraining, mixing.Mixup, mixing.SlightlyCentred, mixing.TakesTurns])
def test_what_mixes_a_lot_is_computed_as_a_lot_of_one(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    x, y = torch.randn(2, 3, mixing.FEATURES), torch.zeros(2, 3, dtype=torch.long)
    points = torch.randn(2, ParameterStack(module).dim)
    method = Vmap(module, cross_entropy, x, y)
    random = [torch.rand(2, 3, *shape) for shape in method.random]
    together = method.gradients(points, x, y, random)
    alone = [
        method.gradients(points, *(part[:, b : b + 1] for part in (x, y)), [u[:, b : b + 1] for u in random])
        for b in range(3)
    ]
    torch.testing.assert_close(together, torch.cat(alone, 1))


def test_recurrent_layers_and_attention_work_record_by_record() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.recurrent, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.recurrent(self.layer(x))[0][:, -1])

    torch.manual_seed(0)
    module, x, y = Attention(), torch.randn(1, 2, 3, 8), torch.tensor([[0, 2]])
    stack = ParameterStack(module)
    found = Vmap(module, cross_entropy, x, y).gradients(stack.flatten(module)[None], x, y)
    for b in range(2):
        loss = cross_entropy(module(x[0, b : b + 1]), y[0, b : b + 1]).sum()
        parts = torch.autograd.grad(loss, list(module.parameters()))
        torch.testing.assert_close(found[0, b], torch.cat([p.flatten() for p in parts]), rtol=1e-4, atol=1e-6)


def test_an_operation_of_ones_own_is_refused() -> None:
    seen = []

    @torch.library.custom_op("gossamer_test::remember", mutates_args=())
    def remember(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x.clone()

    remember.register_fake(torch.empty_like)
    remember.register_autograd(lambda ctx, g: g)

    class Remembers(mixing.Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(remember(x))

    x, y = torch.randn(1, 2, mixing.FEATURES), torch.zeros(1, 2, dtype=torch.long)
    with expect_refusal(key="model", names="torch"):
        Vmap(Remembers(), cross_entropy, x, y)


def test_a_module_that_copies_as_itself_is_refused() -> None:
    class Single(mixing.Base):
        def __deepcopy__(self, memo: object) -> Single:
            return self

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    x, y = torch.randn(1, 2, mixing.FEATURES), torch.zeros(1, 2, dtype=torch.long)
    with expect_refusal(key="model", names="copied"):
        Vmap(Single(), cross_entropy, x, y)


@pytest.mark.parametrize(
    "empty",
    [
        torch.empty_like,
        lambda x: torch.empty(6),
        lambda x: x.new_empty(6),
        lambda x: torch.empty_strided((6,), (1,)),
    ],
)
def test_memory_to_which_nothing_was_written_is_not_read(empty: Callable[[Tensor], Tensor]) -> None:
    class Reads(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + empty(x))

    graph = oracle.one_record(Reads(6, 3), cross_entropy, torch.Size([6]), torch.float32, torch.Size([]), torch.int64)
    record, target = torch.randn(6), torch.tensor(1)
    parameters = {"weight": torch.randn(3, 6), "bias": torch.zeros(3)}
    for _ in range(3):
        _ = torch.full((6,), 1e9)  # what is freed here lies ready for whoever asks for six numbers
        torch.testing.assert_close(graph(parameters, record, target), _plain_gradient(parameters, record, target))


def _plain_gradient(parameters: dict[str, Tensor], record: Tensor, target: Tensor) -> dict[str, Tensor]:
    own = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss = cross_entropy(F.linear(record[None], own["weight"], own["bias"]), target[None]).sum()
    return dict(zip(own, torch.autograd.grad(loss, list(own.values())), strict=True))


def test_index_fill_is_refused_for_it_reaches_into_the_next_record() -> None:
    class Fills(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.index_fill(1, x[0, :1].long(), 2.0))

    with expect_refusal(key="model", names="aten.index_fill.int_Scalar"):
        oracle.one_record(Fills(6, 3), cross_entropy, torch.Size([6]), torch.float32, torch.Size([]), torch.int64)


def test_outputs_of_one_record_are_those_of_a_network_that_predicts() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Tanh(), nn.Linear(5, 2))
    alone = one_output(network, torch.Size([3]), torch.float32)
    parameters = dict(network.named_parameters())
    x = torch.randn(7, 3)
    found = torch.func.vmap(alone, in_dims=(None, 0))(parameters, x)
    assert torch.allclose(found, network.eval()(x), atol=1e-6)


class Remembers(nn.Module):
    """Adds what it saw in the call before: a record would move its neighbour's output."""

    kept: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        before, type(self).kept = type(self).kept, x
        return self.layer(x if before is None or before.shape != x.shape else x + before)


def test_outputs_are_refused_to_what_remembers() -> None:
    with expect_refusal(key="model", names="Remembers"):
        one_output(Remembers(), torch.Size([3]), torch.float32)
