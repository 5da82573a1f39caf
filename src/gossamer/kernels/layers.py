"""What book-keeping knows of each layer: its forward pass for stacked weights, its per-sample gradient norms.

Activations of m nodes with B records each travel as one batch of N = m·B records, nodes first; parameters are
stacked (m, *shape). A rule never forms a per-sample gradient where a closed form of its norm is cheaper:

    ‖Σ_t g_t a_tᵀ‖² = Σ_{t,t'} (g_t·g_t')(a_t·a_t')     (Gram; for one position simply ‖g‖²‖a‖²)

Where records are clipped together, as those of one person are (`units`), t runs over the positions of all of them.

One file, although long: every layer that can be book-kept, side by side, so that one sees what they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import direct
from gossamer.kernels.persons import Units
from gossamer.kernels.products import combined_in_double, combined_rows
from gossamer.kernels.rounding import MOST_SHARE, fits, records_at_a_time, share, square_norms
from gossamer.kernels.threads import runs_compiled

Parameters = dict[str, Tensor]
"""A layer's own parameters, stacked over nodes: {"weight": (m, *shape), "bias": (m, *shape)}."""

Sum = Callable[[Tensor, Parameters, int], None]
"""(weights (m, n), where to put Σ_b w_b g_b, records of the whole lot)."""

MEMORY_PASSES = 20  # cost of writing and reading one float of a per-sample gradient, in multiply-adds
SMALL_WINDOWS = 1 << 18  # bytes of one record's windows up to which a convolution is done as a matrix product
CANCELLED = 2.0**-12  # see `gram_sum`
EXACT_RECORDS = 4  # of a convolution, multiplied in double precision at a time
CACHE_BYTES = 1 << 20  # what fits comfortably into one core's L2 cache


@dataclass
class Measured:
    """The squared norms (N,) of a layer's per-sample gradients, or of persons, and their sum once the weights (m, n) of
    all records, or persons, are known.

    `least` (N,) are what squared norms of whole gradients must be, so that float32 may add up terms that cancel: see
    `rounding`.
    """

    square_norms: Tensor
    put: Sum
    least: Tensor | None = None


class Rule(ABC):
    """How one kind of layer computes for stacked weights, and what its per-sample gradients are."""

    # Are gradients of persons written out until the weights are known?
    writes_persons: ClassVar[bool] = False

    def prepare(self, a: Tensor) -> Tensor:
        """What comes before the parameters; autograd differentiates it as usual."""
        return a

    def finish(self, out: Tensor, a: Tensor) -> Tensor:
        """What comes after them; `a` is what `prepare` gave."""
        return out

    @abstractmethod
    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, Any]:
        """Outputs of N records, and a `cache` for the backward pass."""

    @abstractmethod
    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any) -> Tensor: ...

    @abstractmethod
    def measure(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any, units: Units, most: float) -> Measured:
        """`units`: whose gradients are added before they are measured; `most`: B of `rounding`, if terms cancel."""

    @abstractmethod
    def footprint(self, a: Tensor, out: Tensor) -> int:
        """Bytes that one call holds until the weights are known, roughly."""

    def positions(self, a: Tensor, g: Tensor, cache: Any) -> tuple[Tensor, Tensor, Any]:
        """With one axis of positions behind the records'."""
        raise NotImplementedError


Use = tuple[Rule, Tensor, Tensor, Any]


def joined(uses: Sequence[Use], rows: int) -> Use:
    """What several layers with the same parameters, or several calls of one, read and give: positions of one layer.

    The gradient of a parameter is the sum over all its uses, as it is over positions: what bounds the one bounds the
    other. A table that is a linear layer's weight as well is read by one-hot rows e: Σ_t e_t g_tᵀ is of the same form.
    """
    paddings = {getattr(use[0], "padding", None) for use in uses}  # each table of several has its own
    linear = len(paddings) > 1 or any(isinstance(use[0], LinearRule) for use in uses)
    rule, parts = LinearRule() if linear else uses[0][0], [use[0].positions(*use[1:]) for use in uses]
    if linear:
        pairs = zip(uses, parts, strict=True)
        parts = [use[0].one_hot(*part[:2], rows) if isinstance(use[0], EmbeddingRule) else part for use, part in pairs]
    a, g, caches = ([part[k] for part in parts] for k in range(3))
    return rule, torch.cat(a, 1), torch.cat(g, 1), None if caches[0] is None else torch.cat(caches, 1).flatten()


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule of a layer, or None if there is none: then per-sample gradients come from vmap."""
    make = RULES.get(type(layer))  # exactly this type: a subclass may compute something else
    own = {name for name, value in layer._parameters.items() if value is not None}
    if make is not RecurrentRule and ("weight" not in own or own - {"weight", "bias"}):
        return None
    return None if make is None else make(layer)


def gram_sum(outputs: Tensor, inputs: Tensor, lengths: int) -> tuple[Tensor, Tensor]:
    """Σ_st G_st A_st over the last two axes, the squared norm of Σ_t g_t a_tᵀ, and S = Σ_t ‖g_t‖ ‖a_t‖; never less.

    `lengths` is what G and A were added up over, together. Let u be the unit roundoff, γ_n = n u / (1 − n u) and S =
    Σ_t ‖g_t‖ ‖a_t‖. Each G_st is off by at most γ ‖g_s‖ ‖g_t‖, each A_st likewise, and a row of T of their products by
    γ_T of their sizes (rows are added in double precision), so that the sum is off by at most γ_(lengths + T + 4) S².
    Where the terms cancel, that is more than the sum itself, and left alone it would be a record that is not clipped.
    It is added, twice, which pays for the rounding of the sizes.

    What underflows in G_st, at most e = lengths · tiny, is not small once it meets an A_st of 10³⁶: it hides up to
    e Σ_st |A_st| ≤ e (Σ_t ‖a_t‖)², and likewise in A_st. Both are added, twice; where both underflow, e² is nothing.

    Cancelling terms also make a record's part in the *weighted* sum inexact: w g_t is rounded. With c S² added here,
    w ≤ C / √(‖Σ‖² + c S²), so that by Cauchy and Schwarz it stays within C √(1 + u² / c).
    """
    positions, info = outputs.shape[-1], torch.finfo(outputs.dtype)
    grams = outputs, inputs
    of_outputs, of_inputs = (gram.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt() for gram in grams)
    sizes = of_outputs * of_inputs
    small = (2 * lengths * info.tiny) ** 0.5
    hidden = of_outputs.sum(-1).mul_(small).square_() + of_inputs.sum(-1).mul_(small).square_()
    added = (lengths + positions + 4) * info.eps + CANCELLED
    whole = outputs.mul_(inputs).sum(-1).double().sum(-1).to(sizes.dtype)
    together = sizes.sum(-1)
    bound = whole.add_(added * together.square()).clamp_min_(0).add_(hidden)
    return bound + 4 * positions**2 * info.tiny, together.mul_(1 + lengths * info.eps).add_(hidden.sqrt())


def not_below(square: Tensor, sizes: Tensor, terms: int) -> Tensor:
    """Squared norms of sums that were added up from `terms` terms and are added up again, weighted, with others.

    `square` bounds the norm of what was added up; it is off by γ S at most, S = `sizes` the sum of the terms' norms. In
    the weighted sum the terms are rounded another way, which c S² pays for as in `gram_sum`.
    """
    u = torch.finfo(square.dtype).eps / 2
    exact = square.sqrt() * (1 + 4 * u) + 2 * (terms + 4) * u * sizes
    return exact.square() * (1 + 8 * u) + CANCELLED * sizes.square()


def gram_is_cheaper(positions: int, rows: int, columns: int) -> bool:
    """Gram: T²(O+I) more than the plain weight gradient; instantiating: memory traffic for O·I floats."""
    return positions**2 * (rows + columns) < MEMORY_PASSES * rows * columns


def weighted_rows(weights: Tensor, rows: Tensor, lot: int) -> Tensor:
    """Σ_b w_b r_b of each node: (m, B) and (m·B, ...) -> (m, numel); `lot` as of `Sum`."""
    nodes, count = weights.shape
    rows = rows.reshape(nodes, count, -1)
    if not runs_compiled(rows) or rows.dtype != torch.float32:
        exact = weights.unsqueeze(1), rows
        if not fits(count, lot):
            exact = exact[0].double(), rows.double()
        return torch.bmm(*exact).squeeze(1).to(rows.dtype)
    add_up = combined_rows if fits(9 + count // 8, lot) else combined_in_double
    total = rows.new_empty(nodes, 1, rows.shape[2])
    shares, vectors, out = (part.detach().contiguous().numpy() for part in (weights, rows, total))
    for i in range(nodes):
        add_up(shares[i][:, None], vectors[i], out[i])
    return total.squeeze(1)


def by_node(tensor: Tensor, nodes: int) -> Tensor:
    """(m·B, ...) -> (m, B, ...), a view whatever the strides."""
    return tensor.view(nodes, -1, *tensor.shape[1:])


def product(rows: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """out = rows @ matrix + bias for every node: (m, R, I), (m, I, O), (m, O)."""
    if bias is None:
        torch.bmm(rows, matrix, out=out)
    else:
        torch.baddbmm(bias.unsqueeze(1), rows, matrix, out=out)


def written_out(gradients: Parameters, layout: Callable[[Tensor, Tensor], Tensor] = Tensor.view_as) -> Measured:
    """Measure gradients that are written out, a row for each record or person.

    `layout` brings a node's weighted sum (m, numel) of the weight's gradients into the form of the target.
    """
    first, *others = (square_norms(rows) for rows in gradients.values())

    def put(weights: Tensor, target: Parameters, lot: int) -> None:
        for name, rows in gradients.items():
            arranged = layout if name == "weight" else Tensor.view_as
            target[name].copy_(arranged(weighted_rows(weights, rows, lot), target[name]))

    return Measured(sum(others, first), put)


class LinearRule(Rule):
    """y = W a + b on (N, in) or on sequences (N, ..., in)."""

    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, None]:
        weight, bias = parameters["weight"], parameters.get("bias")
        rows = a.reshape(len(weight), -1, a.shape[-1])
        out = a.new_empty(*a.shape[:-1], weight.shape[1])
        product(rows, weight.mT, bias, out.view(*rows.shape[:2], weight.shape[1]))
        return out, None

    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: None) -> Tensor:
        weight = parameters["weight"]
        gradient: Tensor = torch.bmm(g.reshape(len(weight), -1, g.shape[-1]), weight).view(a.shape)
        return gradient

    def measure(self, parameters: Parameters, a: Tensor, g: Tensor, cache: None, units: Units, most: float) -> Measured:
        count, has_bias = len(a) // units.each, "bias" in parameters
        a, g = a.reshape(count, -1, a.shape[-1]), g.reshape(count, -1, g.shape[-1])
        positions, columns, rows = a.shape[1], a.shape[2], g.shape[2]
        least, terms = None, count // len(parameters["weight"]) * positions
        if positions == 1:
            square = square_norms(g) * (square_norms(a) + int(has_bias))
        elif gram_is_cheaper(positions, rows, columns):
            inputs = torch.bmm(a, a.mT).add_(int(has_bias))
            square, sizes = gram_sum(torch.bmm(g, g.mT), inputs, g.shape[2] + a.shape[2] + 1)
            if share(terms, most) <= MOST_SHARE:
                least = (share(terms, most) * sizes).square_()
        else:
            biases = {"bias": g.sum(1)} if has_bias else {}
            return written_out({"weight": torch.bmm(g.mT, a), **biases})

        def put(weights: Tensor, target: Parameters, lot: int) -> None:
            nodes = len(weights)
            weighted = (g * weights.reshape(-1, 1, 1)).reshape(nodes, -1, rows)
            inputs = a.reshape(nodes, -1, columns)
            single = fits(terms, lot) if positions == 1 else least is not None and lot <= most
            if single:
                torch.baddbmm(target["weight"], weighted.mT, inputs, beta=0, out=target["weight"])
            else:
                target["weight"].copy_(torch.bmm(weighted.mT.double(), inputs.double()))
            if has_bias:
                target["bias"].copy_(weighted.sum(1, dtype=torch.float64))

        return Measured(square, put, least)

    def positions(self, a: Tensor, g: Tensor, cache: None) -> tuple[Tensor, Tensor, None]:
        return a.reshape(len(a), -1, a.shape[-1]), g.reshape(len(a), -1, g.shape[-1]), None

    def footprint(self, a: Tensor, out: Tensor) -> int:
        positions = out.numel() // max(1, len(a) * out.shape[-1])
        rows, columns = out.shape[-1], a.shape[-1]
        squares = 0 if positions == 1 else len(a) * min(2 * positions**2, rows * columns)
        return a.element_size() * (a.numel() + 3 * out.numel() + squares)


class ConvolutionRule(Rule):
    """Convolution over one or two dimensions; the first is treated as two with a height of one.

    Few channels are done by loops over the kernel's taps (`direct`). Otherwise windows are the inputs each output
    position sees, (N, groups, T, I): with them a convolution is a product, which takes all nodes at once. Where they
    are large, the library's convolution runs node by node and the windows are made a few records at a time, only for
    the norms.
    """

    writes_persons: ClassVar[bool] = True

    def __init__(self, layer: nn.Conv1d | nn.Conv2d) -> None:
        self.flat = isinstance(layer, nn.Conv1d)
        one = (1,) if self.flat else ()
        self.kernel, self.stride = one + tuple(layer.kernel_size), one + tuple(layer.stride)
        self.dilation, self.groups = one + tuple(layer.dilation), layer.groups
        self.outputs = layer.out_channels
        self.pool = False  # whether a plain 2 × 2 max pool follows, which is then done here
        self.plain = {*self.stride, *self.dilation, self.groups} == {1}
        self.own_padding: tuple[list[int], str] | None = None
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            self.own_padding = list(layer._reversed_padding_repeated_twice), mode
            self.padding: tuple[int, ...] = (0, 0)
        else:
            self.padding = ((0,) if self.flat else ()) + tuple(layer.padding)

    def prepare(self, a: Tensor) -> Tensor:
        if self.own_padding is not None:
            a = F.pad(a, self.own_padding[0], mode=self.own_padding[1])
        a = a.unsqueeze(-2) if self.flat else a
        return a.contiguous(memory_format=torch.contiguous_format if self._direct(a) else torch.channels_last)

    def finish(self, out: Tensor, a: Tensor) -> Tensor:
        if self.pool and not self._direct(a):
            out = F.max_pool2d(out, 2)
        return out.squeeze(-2) if self.flat else out

    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """The cache: places of maxima (direct), or windows if they are small."""
        weight, bias = self._kernel(parameters["weight"]), parameters.get("bias")
        nodes, outputs = weight.shape[:2]
        height, width = self._output_size(a)
        if self._direct(a):
            return direct.forward(a, weight, bias, self.padding, pool=self.pool)
        if self._window_bytes(a, height * width) > SMALL_WINDOWS:
            own = zip(by_node(a, nodes), weight, [None] * nodes if bias is None else bias, strict=True)
            settings = self.stride, self.padding, self.dilation, self.groups
            outs = [F.conv2d(inputs, w, b, *settings) for inputs, w, b in own]
            return outs[0] if nodes == 1 else torch.cat(outs), None
        windows = self._windows(a)
        # (m, groups, I, O/groups), I in the windows' order: kernel rows, kernel columns, channels
        kernels = weight.permute(0, 1, 3, 4, 2).reshape(nodes, self.groups, outputs // self.groups, -1).mT
        out = a.new_empty(len(a), height, width, outputs).permute(0, 3, 1, 2)
        out = torch.empty_like(out)  # the same layout, but no view: modules may change it in place
        flat = out.permute(0, 2, 3, 1).view(nodes, -1, outputs)
        if self.groups == 1 and windows.is_contiguous():
            product(windows.view(nodes, -1, windows.shape[-1]), kernels.squeeze(1), bias, flat)
        else:
            result = torch.matmul(by_node(windows, nodes), kernels.unsqueeze(1))
            result = result.transpose(2, 3).reshape_as(flat)
            _ = flat.copy_(result) if bias is None else torch.add(result, bias.unsqueeze(1), out=flat)
        return out, windows

    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any) -> Tensor:
        if self._direct(a):
            return direct.input_gradient(g, cache, self._kernel(parameters["weight"]), a, self.padding)
        weight = self._kernel(parameters["weight"])
        settings = self.stride, self.padding, self.dilation, False, [0, 0], self.groups, [True, False, False]
        backward = torch.ops.aten.convolution_backward
        gradients = [
            backward(own, inputs, w, None, *settings)[0]
            for own, inputs, w in zip(by_node(g, len(weight)), by_node(a, len(weight)), weight, strict=True)
        ]
        return gradients[0] if len(gradients) == 1 else torch.cat(gradients)

    def measure(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any, units: Units, most: float) -> Measured:
        biases = {"bias": units.sums(g.sum((2, 3)))} if "bias" in parameters else {}
        if self._direct(a):
            gradients = direct.weight_gradients(a, g, cache, self.kernel, self.padding)
            return written_out({"weight": units.sums(gradients), **biases})
        count, positions = len(a) // units.each, g.shape[2] * g.shape[3]
        rows, columns = g.shape[1] // self.groups, a.shape[1] // self.groups * self.kernel[0] * self.kernel[1]
        grouped = g.reshape(len(a), self.groups, rows, positions).mT
        pieces = self._some_windows(a, positions, cache, units)
        if gram_is_cheaper(units.each * positions, rows, columns):
            square, sizes = a.new_empty(count), a.new_empty(count)
            for some, records, windows in pieces:
                own = units.joined(grouped[records])
                grams = torch.matmul(own, own.mT), torch.matmul(windows, windows.mT)
                bounds, terms = gram_sum(*grams, rows + columns)
                square[some], sizes[some] = bounds.sum(1), terms.square_().sum(1)
            for summed in biases.values():
                square += square_norms(summed)
            step = min(records_at_a_time(positions, most), len(a) // len(parameters["weight"]))

            def put(weights: Tensor, target: Parameters, lot: int) -> None:
                own = units.records_of(weights)
                total = self._add_up(own, a, g, cache, step if lot <= most else 0)
                target["weight"].copy_(self._weight_layout(total, target["weight"]))
                for name, summed in biases.items():
                    target[name].copy_(weighted_rows(weights, summed, lot))

            least = sizes.mul_(share(step * positions, most) ** 2) if step else None
            return Measured(square, put, least)
        gradients = a.new_empty(count, self.groups, rows, columns)
        for some, records, windows in pieces:
            torch.matmul(units.joined(grouped[records]).mT, windows, out=gradients[some])
        return written_out({"weight": gradients, **biases}, self._weight_layout)

    def _add_up(self, weights: Tensor, a: Tensor, g: Tensor, cache: Tensor | None, step: int) -> Tensor:
        """Σ_b w_b g_b aᵀ_b of every node, in the windows' order: of so many records in float32, or all in double."""
        (nodes, count), kernel = weights.shape, self.kernel[0] * self.kernel[1]
        outputs, columns = g.shape[1] // self.groups, a.shape[1] // self.groups * kernel
        rows = (g * weights.reshape(-1, 1, 1, 1)).permute(0, 2, 3, 1)
        total = torch.zeros(nodes, self.groups, outputs, columns, dtype=torch.float64, device=a.device)
        at_a_time = step or EXACT_RECORDS
        for i in range(nodes):
            for first in range(i * count, (i + 1) * count, at_a_time):
                some = slice(first, min(first + at_a_time, (i + 1) * count))
                windows = self._windows(a[some]) if cache is None else cache[some]
                left = rows[some].reshape(-1, self.groups, outputs).permute(1, 2, 0)
                right = windows.transpose(0, 1).flatten(1, 2)
                total[i] += left @ right if step else left.double() @ right.double()
        return total

    def _weight_layout(self, total: Tensor, target: Tensor) -> Tensor:
        """From the windows' order of columns: kernel rows, kernel columns, channels."""
        by_tap = total.view(*target.shape[:2], *self.kernel, target.shape[2])
        return by_tap.permute(0, 1, 4, 2, 3).view_as(target)

    def _some_windows(
        self, a: Tensor, positions: int, cache: Tensor | None, units: Units
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Units, their records and windows, so many at a time that they stay in the cache."""
        step = max(1, CACHE_BYTES // (units.each * self._window_bytes(a, positions)))
        if cache is not None:
            step = len(a)
        for first in range(0, len(a) // units.each, step):
            some = slice(first, first + step)
            records = slice(first * units.each, (first + step) * units.each)
            yield some, records, units.joined(self._windows(a[records]) if cache is None else cache[records])

    def _direct(self, a: Tensor) -> bool:
        return self.plain and direct.suits(a, self.kernel, self.padding, self.outputs)

    def footprint(self, a: Tensor, out: Tensor) -> int:
        positions, outputs = out.shape[2] * out.shape[3], out.shape[1]
        columns = a.shape[1] // self.groups * self.kernel[0] * self.kernel[1]
        window_bytes = self._window_bytes(a, positions)
        instantiated = 0 if gram_is_cheaper(positions, outputs // self.groups, columns) else outputs * columns
        floats = a.numel() + 3 * out.numel() + len(a) * instantiated
        windows = len(a) * window_bytes if window_bytes <= SMALL_WINDOWS else CACHE_BYTES
        return a.element_size() * floats + windows

    def _kernel(self, weight: Tensor) -> Tensor:
        return weight.unsqueeze(-2) if self.flat else weight

    def _output_size(self, a: Tensor) -> list[int]:
        sides = zip(a.shape[2:], self.padding, self.dilation, self.kernel, self.stride, strict=True)
        return [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n, pad, dilation, kernel, stride in sides]

    def _window_bytes(self, a: Tensor, positions: int) -> int:
        return a.element_size() * positions * a.shape[1] * self.kernel[0] * self.kernel[1]

    def _windows(self, a: Tensor) -> Tensor:
        """(N, groups, T, I): a strided view of the padded input, copied with its longest run innermost."""
        height, width = self._output_size(a)
        if any(self.padding):
            a = F.pad(a, (self.padding[1], self.padding[1], self.padding[0], self.padding[0]))
        a = a.contiguous(memory_format=torch.channels_last)
        records, channels = a.shape[:2]
        per_group = channels // self.groups
        n, c, h, w = a.stride()
        strides = h * self.stride[0], w * self.stride[1], h * self.dilation[0], w * self.dilation[1]
        view = a.as_strided(
            (records, self.groups, height, width, *self.kernel, per_group),
            (n, c * per_group, *strides, c),
            a.storage_offset(),
        )
        columns = self.kernel[0] * self.kernel[1] * per_group
        if self.stride[1] == 1 and channels == 1 and width > self.kernel[1]:
            by_tap = view.permute(0, 1, 4, 5, 6, 2, 3)
            return by_tap.reshape(records, self.groups, columns, height * width).mT
        return view.reshape(records, self.groups, height * width, columns)


class EmbeddingRule(Rule):
    """Rows of a table; a row that one record reads several times gets the sum of its output gradients.

    All nodes' tables lie below each other, so a place outside of a table would be in another node's. A record with such
    a place has no gradient: its norm is not a number, and it is left out as one that overflows is.
    """

    def __init__(self, layer: nn.Embedding) -> None:
        self.padding = layer.padding_idx

    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, Tensor]:
        nodes, rows, width = parameters["weight"].shape
        shift = torch.arange(nodes, device=a.device) * rows
        places = by_node(a, nodes).flatten(1).clamp(0, rows - 1) + shift.unsqueeze(1)
        table = parameters["weight"].reshape(nodes * rows, width)
        return F.embedding(places.view(a.shape), table), places.flatten()

    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Tensor) -> Tensor:
        raise AssertionError("indices have no gradient")

    def measure(
        self, parameters: Parameters, a: Tensor, g: Tensor, cache: Tensor, units: Units, most: float
    ) -> Measured:
        count = len(a) // units.each
        g, read = g.reshape(count, -1, g.shape[-1]), a.reshape(count, -1)
        if self.padding is not None:
            g = g.masked_fill((read == self.padding).unsqueeze(-1), 0)
        outside = ((read < 0) | (read >= parameters["weight"].shape[1])).any(1)
        if units.each == 1 or read.shape[1] <= g.shape[2]:
            same = read.unsqueeze(1) == read.unsqueeze(2)
            square, _ = gram_sum(torch.bmm(g, g.mT), same.to(g), g.shape[-1])
        else:
            square = self._row_by_row(g, cache.view_as(read))
        square = square.masked_fill_(outside, torch.nan)

        def put(weights: Tensor, target: Parameters, lot: int) -> None:
            weighted = (g * weights.reshape(-1, 1, 1)).flatten(0, 1).double()
            total = torch.zeros(target["weight"].shape, dtype=torch.float64, device=g.device)
            total.view(-1, g.shape[-1]).index_add_(0, cache, weighted)
            target["weight"].copy_(total)

        return Measured(square, put)

    def positions(self, a: Tensor, g: Tensor, cache: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return a.reshape(len(a), -1), g.reshape(len(a), -1, g.shape[-1]), cache.view(len(a), -1)

    def one_hot(self, a: Tensor, g: Tensor, rows: int) -> tuple[Tensor, Tensor, None]:
        """Inputs and output gradients of a linear layer whose weight is the table."""
        read = F.one_hot(a.clamp(0, rows - 1), rows).to(g)
        if self.padding is not None:
            read = read.masked_fill((a == self.padding).unsqueeze(-1), 0)
        return g.masked_fill(((a < 0) | (a >= rows)).unsqueeze(-1), torch.nan), read, None

    @staticmethod
    def _row_by_row(g: Tensor, places: Tensor) -> Tensor:
        """(N,): the gradients of every row that is read, added up; a Gram matrix of long texts would be larger."""
        squares = list[Tensor]()
        for own, read in zip(g.double(), places, strict=True):
            rows, where = torch.unique(read, return_inverse=True)
            squares.append(own.new_zeros(len(rows), own.shape[1]).index_add_(0, where, own).square_().sum())
        sizes = torch.linalg.vector_norm(g, dim=2).sum(1) * 1.001
        return not_below(torch.stack(squares).to(g) * (1 + 1e-6), sizes, g.shape[1])

    def footprint(self, a: Tensor, out: Tensor) -> int:
        positions = a.numel() // max(1, len(a))
        return out.element_size() * (3 * out.numel() + 2 * len(a) * positions**2)


class AffineRule(Rule):
    """γ·x̂ + β after a normalisation without parameters, which autograd differentiates."""

    writes_persons: ClassVar[bool] = True

    def __init__(self, layer: nn.GroupNorm | nn.LayerNorm | nn.RMSNorm) -> None:
        self.shape: tuple[int, ...] | None = None  # of the last axes; None: one parameter for each channel
        self._normalise: Callable[[Tensor], Tensor]
        if isinstance(layer, nn.GroupNorm):
            self._normalise = partial(F.group_norm, num_groups=layer.num_groups, eps=layer.eps)
        else:
            self.shape = tuple(layer.normalized_shape)
            norm: Any = F.layer_norm if isinstance(layer, nn.LayerNorm) else F.rms_norm
            self._normalise = partial(norm, normalized_shape=list(self.shape), eps=layer.eps)

    def prepare(self, a: Tensor) -> Tensor:
        return self._normalise(a)

    def _features(self, a: Tensor) -> tuple[int, ...]:
        """A parameter's shape against a record's features: 1 wherever they share its values."""
        if self.shape is None:
            return (a.shape[1], *[1] * (a.ndim - 2))
        return (*[1] * (a.ndim - 1 - len(self.shape)), *self.shape)

    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, None]:
        nodes, features = len(parameters["weight"]), self._features(a)
        out = torch.empty_like(a)
        into = by_node(out, nodes)
        torch.mul(by_node(a, nodes), parameters["weight"].view(nodes, 1, *features), out=into)
        if "bias" in parameters:
            into.add_(parameters["bias"].view(nodes, 1, *features))
        return out, None

    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: None) -> Tensor:
        nodes = len(parameters["weight"])
        return (by_node(g, nodes) * parameters["weight"].view(nodes, 1, *self._features(a))).flatten(0, 1)

    def positions(self, a: Tensor, g: Tensor, cache: None) -> tuple[Tensor, Tensor, None]:
        return a.reshape(len(a), -1, *(self.shape or ())), g.reshape(len(a), -1, *(self.shape or ())), None

    def measure(self, parameters: Parameters, a: Tensor, g: Tensor, cache: None, units: Units, most: float) -> Measured:
        values = {"weight": a * g} | ({"bias": g} if "bias" in parameters else {})
        size = len(a), *self._features(a)
        rows = {name: each.sum_to_size(size).flatten(1) for name, each in values.items()}
        return written_out({name: units.sums(own) for name, own in rows.items()})

    def footprint(self, a: Tensor, out: Tensor) -> int:
        return 5 * out.element_size() * out.numel()


class RecurrentRule(Rule):
    """LSTM, GRU and plain recurrent layers: the two products of a cell are linear layers over all positions.

    Autograd walks back through time, only to the gradients of what these products give.
    """

    def __init__(self, layer: nn.RNNBase) -> None:
        ends = ("", "_reverse") if layer.bidirectional else ("",)
        self.layers = [[f"_l{k}{end}" for end in ends] for k in range(layer.num_layers)]
        self.size, self.mode = layer.hidden_size, layer.mode
        self.states = 2 if self.mode == "LSTM" else 1

    def forward(self, parameters: Parameters, a: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Outputs and then the last states of all cells, in one row."""
        cells, lasts = dict[str, Any](), list[list[Tensor]]()
        with torch.enable_grad():
            x = source = a.detach().requires_grad_()
            for layer in self.layers:
                outs = []
                for cell in layer:
                    order = -1 if cell.endswith("reverse") else 1
                    inputs = x.flip(1) if order < 0 else x
                    states, gates, recurrent = self._run(parameters, cell, inputs)
                    cells[cell] = inputs.detach(), states, gates, recurrent
                    outs.append(torch.stack([state[0] for state in states[::order]], 1))
                    lasts.append(states[-1])
                x = torch.cat(outs, 2)
            whole = torch.cat([x.flatten(1), *(last for kind in zip(*lasts, strict=True) for last in kind)], 1)
        return whole.detach(), {"whole": whole, "source": source, "cells": cells}

    def _run(self, parameters: Parameters, cell: str, inputs: Tensor) -> tuple[Any, Tensor, list[Tensor]]:
        """The states after every step, and the two products."""

        def product_of(x: Tensor, way: str) -> Tensor:
            weight, bias = parameters[f"weight_{way}{cell}"], parameters.get(f"bias_{way}{cell}")
            rows = x.reshape(len(weight), -1, x.shape[-1])
            turned = weight.mT
            out = torch.bmm(rows, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, turned)
            return out.view(*x.shape[:-1], weight.shape[1])

        gates, states, recurrent = product_of(inputs, "ih"), list[list[Tensor]](), list[Tensor]()
        state = [inputs.new_zeros(len(inputs), self.size).requires_grad_() for _ in range(self.states)]
        for own in gates.unbind(1):
            recurrent.append(product_of(state[0], "hh"))
            state = self._step(own, recurrent[-1], *state)
            states.append(state)
        return states, gates, recurrent

    def _step(self, own: Tensor, recurrent: Tensor, hidden: Tensor, *inner: Tensor) -> list[Tensor]:
        if self.mode == "LSTM":
            i, f, g, o = (own + recurrent).chunk(4, 1)
            cell = torch.addcmul(i.sigmoid() * g.tanh(), f.sigmoid(), *inner)
            return [o.sigmoid() * cell.tanh(), cell]
        if self.mode == "GRU":
            (r, z, n), (of_r, of_z, of_n) = own.chunk(3, 1), recurrent.chunk(3, 1)
            new = torch.addcmul(n, (r + of_r).sigmoid(), of_n).tanh()
            return [torch.addcmul(new, (z + of_z).sigmoid(), hidden - new)]
        return [(own + recurrent).tanh() if self.mode == "RNN_TANH" else (own + recurrent).relu()]

    def finish(self, out: Tensor, a: Tensor) -> Any:
        """What `states_by_layer` gives."""
        width = self.size * len(self.layers[0])
        outputs, rest = torch.split(out, [a.shape[1] * width, out.shape[1] - a.shape[1] * width], 1)
        states = torch.split(rest, self.size, 1)
        kinds = tuple(
            states[k * len(states) // self.states :][: len(states) // self.states] for k in range(self.states)
        )
        return outputs.view(len(a), -1, width), kinds if self.mode == "LSTM" else kinds[0]

    def _gradients(self, g: Tensor, cache: dict[str, Any]) -> Any:
        """Of the inputs, and of the two products of every cell: they are the same but for a GRU."""
        if "gradients" not in cache:
            of = [cache["source"], *(cell[2] for cell in cache["cells"].values())]
            steps = [cell[3] for cell in cache["cells"].values()] if self.mode == "GRU" else []
            inputs = [*of, *(step for cell in steps for step in cell)]
            found = torch.autograd.grad(cache.pop("whole"), inputs, g, materialize_grads=True)
            length = len(inputs[0][0])
            later = found[len(of) :]
            stacked = [torch.stack(later[k : k + length], 1) for k in range(0, len(later), length)]
            cache["gradients"] = (
                found[0],
                [*zip(found[1 : len(of)], stacked or found[1 : len(of)], strict=True)],
            )
        return cache["gradients"]

    def input_gradient(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any) -> Tensor:
        gradient: Tensor = self._gradients(g, cache)[0]
        return gradient

    def measure(self, parameters: Parameters, a: Tensor, g: Tensor, cache: Any, units: Units, most: float) -> Measured:
        parts = list[tuple[dict[str, str], Measured]]()
        for (cell, (inputs, states, *_)), own in zip(cache["cells"].items(), self._gradients(g, cache)[1], strict=True):
            hidden = [torch.zeros_like(states[0][0]), *(state[0] for state in states[:-1])]
            for way, x, slope in zip(("ih", "hh"), (inputs, torch.stack(hidden, 1).detach()), own, strict=True):
                ends = f"_{way}{cell}"
                names = {one.removesuffix(ends): one for one in parameters if one.endswith(ends)}
                given = {one: parameters[name] for one, name in names.items()}
                parts.append((names, LinearRule().measure(given, x, slope, None, units, most)))

        def put(weights: Tensor, target: Parameters, lot: int) -> None:
            for names, part in parts:
                part.put(weights, {one: target[name] for one, name in names.items()}, lot)

        squares = torch.stack([part.square_norms for _, part in parts]).sum(0)
        least = [part.least for _, part in parts if part.least is not None]
        return Measured(squares * (1 + len(parts) * 2.0**-23), put, torch.stack(least).sum(0) if least else None)

    def footprint(self, a: Tensor, out: Tensor) -> int:
        return 16 * LinearRule().footprint(a, out) * sum(map(len, self.layers))


def _embedding_rule(layer: nn.Embedding) -> Rule | None:
    """Not for tables that change when read (max_norm) or scale their gradient by what a whole batch reads."""
    plain = layer.max_norm is None and not layer.scale_grad_by_freq
    return EmbeddingRule(layer) if plain else None


RULES: dict[type[nn.Module], Callable[[Any], Rule | None]] = {
    nn.Linear: lambda _: LinearRule(),
    nn.Conv1d: ConvolutionRule,
    nn.Conv2d: ConvolutionRule,
    nn.Embedding: _embedding_rule,
    nn.GroupNorm: AffineRule,
    nn.LayerNorm: AffineRule,
    nn.RMSNorm: AffineRule,
    nn.LSTM: RecurrentRule,
    nn.GRU: RecurrentRule,
    nn.RNN: RecurrentRule,
}
