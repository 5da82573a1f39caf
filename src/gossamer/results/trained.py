"""The trained models of a run: their description, their weights on disk and in memory, and their use on new rows.

    model.json                         the description: inputs, outputs, how to build the network, the order of the
                                       parameters. It holds public things only; the file may be anyone's: it is
                                       checked, and no code is named in it
    models.safetensors                 every parameter under its name, first axis the nodes (a part per process:
                                       models.nodes-000-003.safetensors); one row where all nodes hold the same
    average.safetensors                the mean over all nodes, every parameter under its name; a site of a study,
                                       which knows its own model alone, has none
    frozen.safetensors                 frozen parameters and buffers, the same at all nodes

They are what the method releases: where its state is another (push-sum's x and w), it has been divided already. The
certificate of a run names these files: one that it does not name is not read.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from gossamer.data.inputs import Inputs
from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.models.layers import Centred, split_records
from gossamer.models.lora import LoRA
from gossamer.models.losses import MultiLabel, Name, Regression, Task, task_of
from gossamer.models.networks import models
from gossamer.options.registry import Table
from gossamer.results.checkpoint import MALFORMED, tensors_header, write_tensors
from gossamer.results.rundir import read_bytes, read_object
from gossamer.results.signatures import read_certificate

FORMAT = 1
BATCH = 2000  # records at a time; evaluations take as many, so that every output is the same to the last bit
BROUGHT = ("own", "python")  # kinds of networks that are the user's code, which no run directory holds
_MOST_BYTES, _MOST = 64 << 20, 1_000_000  # of the file, and of nodes or numbers along an axis
_MOST_OPTIONS = 10_000  # characters: a network of thousands of layers takes minutes to build

Label = bool | int | float | str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    run: str  # its name for itself
    nodes: int
    task: Name
    classes: int | None
    labels: tuple[Label, ...]  # names of the classes, or labels, in the outputs' order; empty: 0, 1, …
    inputs: Inputs
    input_shape: tuple[int, ...]  # of a record after its steps: what the network takes
    outputs: int
    probabilities: Literal["softmax", "sigmoid"] | None  # what makes them of the outputs
    model: dict[str, Any]  # kind and options
    own_module: bool  # the user's own code, which is not kept
    centre: bool  # is a mean, the first parameter, subtracted from every record?
    parameters: tuple[Parameter, ...]
    mean: Literal["exp"] | None = None  # what makes a regression's prediction of the output; None: it is
    lora: Annotated[LoRA, Table()] | None = None  # adapters on the network, where asked for
    level: float | None = None  # of the quantile that a regression predicts
    format: int = FORMAT

    @property
    def several(self) -> int | None:
        """The number of labels of yes or no of a record, where it has several."""
        return self.outputs if self.task == MultiLabel.name else None

    @property
    def prediction(self) -> Task:
        """The meaning of the outputs."""
        return task_of(self.classes, self.several, self.probabilities or self.mean, self.level)

    @property
    def names(self) -> list[Label]:
        """The classes, or labels, as predictions name them."""
        numbers = self.classes or self.several or 0
        named: list[Label] = list(self.labels or range(numbers))
        # A module of one's own may have outputs that no record is labelled by.
        return named + [f"output {i}" for i in range(len(named), self.outputs if self.classes else 0)]

    def text(self) -> str:
        return json.dumps(_FORM.dump_python(self, mode="json"), indent=2, ensure_ascii=False) + "\n"

    def network(self, own: nn.Module | None = None) -> nn.Module:
        """With any weights; `own`: the user's module, where the run was of one."""
        kind = self.model["kind"]
        if own is None and (self.own_module or kind in BROUGHT):
            remedy = "hand it over: gossamer.load(RUN, module=net), or --module FILE:NAME"
            raise UserError(f"the run trained a module of the user's own, and holds no code; {remedy}.")
        if own is not None:
            network = own if isinstance(own, Centred) else self._centred(self._adapted(own))
            self.check_fits(network, "the module")
            return network
        with torch.random.fork_rng(devices=[]):
            try:
                with torch.device("meta"):  # takes no memory for any size that a file names
                    self.check_fits(self._built(), f"model.kind = {kind!r}")
                return self._built()
            except (RuntimeError, TypeError, OverflowError) as error:
                reason = type(error).__name__
                raise UserError(f"model.kind = {kind!r} cannot be built as described ({reason}).") from None

    def _built(self) -> nn.Module:
        network = models.parse(self.model).make(self.input_shape, self.classes or self.several or 1)
        return self._centred(self._adapted(network))

    def _adapted(self, network: nn.Module) -> nn.Module:
        network = network if self.lora is None else self.lora.adapt(network, seed=0)
        return split_records(network, self.inputs.parts)

    def _centred(self, network: nn.Module) -> nn.Module:
        return Centred(network, math.prod(self.input_shape)) if self.centre else network

    def check_fits(self, module: nn.Module, what: str) -> None:
        """Names and shapes of the trained parameters, one by one."""
        there = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        for parameter in self.parameters:
            name, shape = parameter.name, there.get(parameter.name)
            if shape is None:
                others = ", ".join([*there][:6]) + f" and {len(there) - 6} more" * (len(there) > 6)
                raise UserError(f"{what} has no {name!r}, which the run trained; it has {others}.")
            if shape != parameter.shape:
                trained = f"the run trained one of shape {parameter.shape}"
                raise UserError(f"{what} has a parameter {name!r} of shape {shape}; {trained}.")
        known = {parameter.name for parameter in self.parameters}
        strange = [name for name in ParameterStack(module).names if name not in known]
        if strange:
            remedy = "if the run kept it frozen, set requires_grad = False on it"
            raise UserError(f"{what} has a parameter {strange[0]!r}, which the run did not train; {remedy}.")


_FORM = TypeAdapter(Description)


def parse_description(text: bytes, path: Path) -> Description:
    """Parse what `Description.text` wrote; the file may be anyone's."""
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path} is damaged: it has {len(text)} bytes, and a description has far fewer; put it back.")
    try:
        d: Description = _FORM.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"] if str(step).isprintable())[:80]
        raise UserError(f"{path} is damaged: it describes no model (at {where or 'its start'}); put it back.") from None
    fit = (
        d.format == FORMAT,
        not d.labels or len(d.labels) == (d.classes or d.several),
        d.outputs >= (d.classes or 1) or (d.classes, d.outputs) == (2, 1),
        all(0 < size <= _MOST for size in (d.nodes, d.outputs, *d.input_shape, *d.inputs.shape)),
        isinstance(d.model.get("kind"), str) and len(json.dumps(d.model)) <= _MOST_OPTIONS,
    )
    if not all(fit):
        raise UserError(f"{path} is damaged, or of another version of gossamer: its figures do not fit; put it back.")
    return d


def read_description(path: Path) -> Description:
    return parse_description(read_bytes(path), path)


# --- weights ------------------------------------------------------------------------------------------------

MODELS, DESCRIPTION = "models.safetensors", "model.json"
AVERAGE, FIXED = "average.safetensors", "frozen.safetensors"
VERSION = 1
_PART = re.compile(r"models(\.nodes-(\d+)-(\d+))?\.safetensors")
READING = (
    "Every tensor is a parameter of the network under its name, as the method releases it; in models*.safetensors the "
    "first axis is the nodes named here."
)

Point = dict[str, Tensor]  # parameter → its values


class HeldWeights:
    """The models of the nodes hosted here, in memory."""

    has_average = True  # not so at a site of a study

    def __init__(
        self, stack: ParameterStack, nodes: range, points: Tensor, average: Tensor, fixed: Point | None = None
    ):
        self._stack, self.nodes = stack, nodes
        self._fixed = {name: value.detach().cpu().clone() for name, value in (fixed or {}).items()}
        self._points, self._average = points.detach().cpu(), average.detach().cpu()

    def of(self, node: int) -> Point:
        return self._row(self._points[node - self.nodes.start])

    def average(self) -> Point:
        return self._row(self._average)

    def fixed(self) -> Point:
        """Return what was not trained, the same at all nodes: frozen parameters and buffers."""
        return self._fixed

    def _row(self, point: Tensor) -> Point:
        return {name: value[0] for name, value in self._stack.views(point[None]).items()}

    def write(self, folder: Path, run: str, of: int, *, average: bool) -> None:
        """Write the file of these nodes, of `of` in all, and with `average` that of the mean."""
        first, stop = self.nodes.start, self.nodes.stop
        same = all(torch.equal(point, self._points[0]) for point in self._points)  # the second tells, mostly
        rows = self._stack.views((self._points[:1] if same else self._points).float())
        name = MODELS if stop - first == of else f"models.nodes-{first:03d}-{stop - 1:03d}.safetensors"
        what = {"what": "the nodes' models", "nodes": [first, stop]}
        _write(folder / name, run, rows, **what, of=of, all_the_same=same)
        if average:
            mean = {key: value.float() for key, value in self.average().items()}
            _write(folder / AVERAGE, run, mean, what="the mean of all nodes' models", of=of)

    def write_fixed(self, folder: Path, run: str) -> None:
        """Write the file of what was not trained, if there is something."""
        if self._fixed:
            what = "frozen parameters and buffers, the same at all nodes"
            _write(folder / FIXED, run, self._fixed, what=what)


def _write(path: Path, run: str, tensors: Point, **header: Any) -> None:
    content = {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    write_tensors(path, content, {"version": VERSION, "run": run, **header, "reading": READING})


class StoredWeights:
    """The models in a run directory; read, and checked against the certificate, when first needed."""

    def __init__(self, run: Path):
        self._run = run
        self._signed = signed_files(run)
        self.description: Description = parse_description(self._read(DESCRIPTION), run / DESCRIPTION)
        self._part = cache(self._read_part)
        self._file_of = {node: name for name in sorted(self._signed) for node in self._nodes_of(name)}

    @property
    def nodes(self) -> list[int]:
        return sorted(self._file_of)

    @property
    def has_average(self) -> bool:
        return AVERAGE in self._signed

    def of(self, node: int) -> Point:
        header, tensors = self._part(self._file_of[node])
        row = 0 if header["all_the_same"] else node - header["nodes"][0]
        return {name: value[row] for name, value in tensors.items()}

    def average(self) -> Point:
        return self._part(AVERAGE)[1]

    def fixed(self) -> Point:
        return self._part(FIXED)[1] if FIXED in self._signed else {}

    def _nodes_of(self, name: str) -> range:
        return nodes_in(self._run / name, self.description.nodes)

    def _read_part(self, name: str) -> tuple[dict[str, Any], Point]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        path, content, nodes = self._run / name, self._read(name), self._nodes_of(name)
        try:
            header, tensors = tensors_header(content), load(content)
            fits = header["run"] == self.description.run and header["version"] == VERSION
            rows: tuple[int, ...] = ()
            if nodes:
                fits = fits and range(*header["nodes"]) == nodes
                rows = (1 if header["all_the_same"] else len(nodes),)
        except (SafetensorError, *MALFORMED):
            raise UserError(f"{path} is damaged; put it back.") from None
        shapes = {key: tuple(value.shape) for key, value in tensors.items()}
        due = {p.name: (*rows, *p.shape) for p in self.description.parameters}
        if not fits or (name != FIXED and shapes != due):
            raise UserError(f"{path} does not fit {self._run / DESCRIPTION}; put them back together.")
        return header, tensors

    def _read(self, name: str) -> bytes:
        path = self._run / name
        if not path.exists() and not path.is_symlink():
            raise UserError(f"{path} is missing, and the run had written it; put it back.")
        content = read_bytes(path)
        if self._signed.get(name) != hashlib.sha256(content).hexdigest():
            raise UserError(f"{path} is not what the run signed at its end; put it back.")
        return content


Weights = HeldWeights | StoredWeights


def signed_files(run: Path) -> dict[str, str]:
    """Return name → digest of the files that the run's certificate covers."""
    path = run / "certificate.json"
    if not path.exists():
        raise UserError(f"{run} has not ended, so it has no models; `gossamer run --resume {run}` continues.")
    digests = read_certificate(path).get("digests")
    files = digests.get("files") if isinstance(digests, dict) else None
    if not isinstance(files, dict):
        raise UserError(f"{path} is damaged: it does not name the run's files; put it back.")
    return files


def nodes_in(path: Path, nodes: int) -> range:
    """Return the nodes whose models are in this file, by its name; none where it is no file of models."""
    name = _PART.fullmatch(path.name)
    if name is None:
        return range(0)
    part = range(int(name[2]), int(name[3]) + 1) if name[1] else range(nodes)
    if not 0 <= part.start < part.stop <= nodes:
        raise UserError(f"{path} is named after nodes that the run does not have; remove it.")
    return part


def model_digests(models: Tensor) -> list[str]:
    """Return sha256 of each row of an (n, d) tensor: float32, little-endian, all parameters in their order."""
    return [_digest_of_row([row]) for row in models.detach().cpu()]


def _digest_of_row(parts: Sequence[Tensor]) -> str:
    """Of parts one behind the other, which are not copied."""
    content = hashlib.sha256()
    for part in parts:
        content.update(part.float().contiguous().numpy().astype("<f4", copy=False).data)
    return content.hexdigest()


def digests_of_models(run: Path, nodes: int) -> dict[int, str]:
    """Return the digest of every node's model in this directory; `nodes`: how many the run has."""
    if not (run / DESCRIPTION).exists():  # the order of the parameters is not known
        return {}
    return dict(pair for path in sorted(run.glob("models*.safetensors")) for pair in _digests_in(path, nodes))


def _digests_in(path: Path, nodes: int) -> Iterator[tuple[int, str]]:
    from safetensors.torch import load

    part, content = nodes_in(path, nodes), read_bytes(path)
    try:
        tensors = load(content)
        del content
        order = [one["name"] for one in read_object(path.with_name(DESCRIPTION), "parameters")["parameters"]]
        rows = [tensors.pop(name) for name in order]
        (count,) = {len(tensor) for tensor in rows}
    except UserError:
        raise
    except Exception as error:  # safetensors and torch have their own for what is no such file
        raise UserError(f"{path} is damaged: it holds no run's models ({type(error).__name__}); put it back.") from None
    if tensors:
        raise UserError(f"{path} is damaged: {DESCRIPTION} does not know {sorted(tensors)[0]!r:.60}; put it back.")
    if count not in (1, len(part)):
        raise UserError(f"{path} has the models of {count} nodes, and its name says {len(part)}; put it back.")
    digests = [_digest_of_row([tensor[k] for tensor in rows]) for k in range(count)]
    return zip(part, digests * len(part) if count == 1 else digests, strict=True)


# --- use ----------------------------------------------------------------------------------------------------

Node = int | Literal["average"]


class Models:
    """The models of a run; `network` builds the architecture, `data_dir`: where public sets are looked for."""

    def __init__(
        self,
        description: Description,
        weights: Weights,
        network: Callable[[], nn.Module],
        data_dir: Path | None = None,
    ):
        self.description, self._weights = description, weights
        self._network, self._data_dir = network, data_dir

    @classmethod
    def stored(cls, run: Path, module: nn.Module | None = None, data_dir: Path | None = None) -> Models:
        """Read a run directory, of which nothing is executed; `module`: the user's own, if the run was of one."""
        weights = StoredWeights(run)
        description = weights.description
        return cls(description, weights, lambda: description.network(copy.deepcopy(module)), data_dir)

    @property
    def nodes(self) -> list[int]:
        """The nodes whose models are at hand; of a run over several machines, those of this one."""
        return list(self._weights.nodes)

    def whose(self, node: Node | None = None) -> Node:
        """Return the node that is meant; None: the mean of all nodes' models, or at a site of a study its own."""
        if node is None:
            return "average" if self._weights.has_average else self.nodes[0]
        if node == "average" and not self._weights.has_average:
            remedy = f"leave it out, or name {_nodes(self.nodes)}"
            raise UserError(f"node = 'average': a site has its own model alone; {remedy}.")
        return node

    def weights(self, node: Node | None = None) -> dict[str, Tensor]:
        """Return parameter → values, of one node or of the mean of all nodes' models; None: see `whose`."""
        node = self.whose(node)
        if node == "average":
            return self._weights.average()
        if type(node) is not int or not 0 <= node < self.description.nodes:
            last = self.description.nodes - 1
            raise UserError(f"node = {node!r} is not a node of this run; name 0 to {last}, or 'average'.")
        if node not in self._weights.nodes:
            here = _nodes(self.nodes) + ", and the average" * self._weights.has_average
            raise UserError(f"the model of node {node} is where it was hosted; here are those of {here}.")
        return self._weights.of(node)

    def state(self, node: Node | None = None) -> dict[str, Tensor]:
        """Return the weights with the frozen parameters and the buffers, which all nodes share."""
        return self._weights.fixed() | self.weights(node)

    def module(self, node: Node | None = None) -> nn.Module:
        """Return a network of its own with those weights, in evaluation mode."""
        values, network = self.state(node), self._network()
        self.description.check_fits(network, "the module")
        own = {name: v.detach() for name, v in [*network.named_parameters(), *network.named_buffers()]}
        for name, value in values.items():
            if name not in own or own[name].shape != value.shape:
                shape = tuple(value.shape)
                raise UserError(f"the module has no {name!r} of shape {shape}, which the run kept frozen.")
            own[name].copy_(value)
        return network.cpu().eval()

    def outputs(self, x: Any, node: Node | None = None) -> Tensor:
        """Return (rows, outputs) of the network for these rows, after the steps that training rows went through."""
        d = self.description
        rows = d.inputs.prepared(d.inputs.records(x), self._data_dir)
        if rows.shape[1:] != d.input_shape:
            raise UserError(f"records of shape {rows.shape[1:]}: the model takes {d.input_shape}.")
        inputs, network = torch.from_numpy(np.ascontiguousarray(rows)), self.module(node)
        with torch.no_grad():
            parts = [network(inputs[at : at + BATCH]) for at in range(0, len(inputs), BATCH)]
        return torch.cat(parts) if parts else torch.zeros(0, d.outputs)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """Return (rows,) classes by name, or the numbers of a regression; (rows, labels) 0 or 1 of several."""
        return self.decide(self.outputs(x, node))

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """Return (rows, classes or labels) in the order of `description.names`."""
        chances = self.chances(self.outputs(x, node))
        if chances is None:
            regression = isinstance(self.description.prediction, Regression)
            what = "a regression has no classes" if regression else "its loss gives it none"
            raise UserError(f"this model has no probabilities: {what}; use predict, or outputs.")
        return chances

    def decide(self, outputs: Tensor) -> NDArray[Any]:
        decisions: NDArray[Any] = self.description.prediction.decide(outputs).numpy()
        named = self.description.classes is not None
        return np.asarray(self.description.names)[decisions] if named else decisions

    def chances(self, outputs: Tensor) -> NDArray[np.float32] | None:
        """Return probabilities of the classes, or labels, where the loss gives the outputs such a meaning."""
        chances = self.description.prediction.chances(outputs)
        return None if chances is None else chances.numpy()


class UsesModels:
    """Predictions of an outcome, or of a run read from its directory; needs `models`, a field or a property."""

    models: Models

    def module(self, node: Node | None = None) -> nn.Module:
        """Return the trained network, in evaluation mode: of one node, or "average", the mean of all nodes' models.

        None is the average, and of a site's part in a study the site's own model: a site has no other.
        """
        return self.models.module(node)

    def predict(self, x: Any, node: Node | None = None) -> NDArray[Any]:
        """Predict classes by name, or numbers, for rows as they come: arrays, tensors, frames."""
        return self.models.predict(x, node)

    def predict_proba(self, x: Any, node: Node | None = None) -> NDArray[np.float32]:
        """Return (rows, classes) in the order of `models.description.names`."""
        return self.models.predict_proba(x, node)


def _nodes(nodes: list[int]) -> str:
    whole = nodes == list(range(nodes[0], nodes[-1] + 1)) and len(nodes) > 1
    return f"nodes {nodes[0]}–{nodes[-1]}" if whole else f"node {', '.join(map(str, nodes))}"
