import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.clipped_sum import clipped_sum
from gossamer.kernels.stack import ParameterStack


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def test_oracle_against_one_record_at_a_time() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    stack = ParameterStack(model)
    points = torch.randn(3, stack.dim)
    x, y = torch.randn(3, 4, 5), torch.randint(0, 3, (3, 4))
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    total, norms = clipped_sum(model, cross_entropy, method="vmap")(
        points, x, y, mask, lambda n: (0.7 / n).clamp(max=1.0)
    )
    for i in range(3):
        stack.load(model, points[i])
        expected = torch.zeros(stack.dim)
        for b in range(4):
            if not mask[i, b]:
                assert norms[i, b] == 0
                continue
            loss = F.cross_entropy(model(x[i, b : b + 1]), y[i, b : b + 1])
            g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, list(model.parameters()))])
            assert torch.allclose(norms[i, b], g.norm(), rtol=1e-5)
            expected += g * min(1.0, 0.7 / float(g.norm()))
        assert torch.allclose(total[i], expected, rtol=1e-5, atol=1e-7)
