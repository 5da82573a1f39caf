"""Released models of a run: their numbers on disk and in memory, and their digests.

    models.safetensors                 every parameter under its name, first axis the nodes (a part per process:
                                       models.nodes-000-003.safetensors); one row where all nodes hold the same
    average.safetensors                the mean over all nodes, every parameter under its name; a site of a study,
                                       which knows its own model alone, has none
    frozen.safetensors                 frozen parameters and buffers, the same at all nodes
    model.json                         the description, with the order of the parameters

They are what the method releases: where its state is another (push-sum's x and w), it has been divided already. The
certificate of a run names these files: one that it does not name is not read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.results.checkpoint import MALFORMED, tensors_header, write_tensors
from gossamer.results.rundir import read_bytes, read_object
from gossamer.results.signatures import read_certificate
from gossamer.results.trained.description import Description, parse

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
        header = {"what": "the nodes' models", "nodes": [first, stop], "of": of, "all_the_same": same}
        rows = self._stack.views(self._points[:1] if same else self._points)
        name = MODELS if stop - first == of else f"models.nodes-{first:03d}-{stop - 1:03d}.safetensors"
        _write(folder / name, run, rows, header)
        if average:
            _write(folder / AVERAGE, run, self.average(), {"what": "the mean of all nodes' models", "of": of})

    def write_fixed(self, folder: Path, run: str) -> None:
        """Write the file of what was not trained, if there is something."""
        if self._fixed:
            what = {"what": "frozen parameters and buffers, the same at all nodes"}
            _write(folder / FIXED, run, self._fixed, what, None)


def _write(
    path: Path, run: str, tensors: Point, header: Mapping[str, Any], dtype: torch.dtype | None = torch.float32
) -> None:
    content = {
        name: value.to(dtype or value.dtype).clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    write_tensors(path, content, {"version": VERSION, "run": run, **header, "reading": READING})


class StoredWeights:
    """The models in a run directory; read, and checked against the certificate, when first needed."""

    def __init__(self, run: Path):
        self._run = run
        self._signed = signed_files(run)
        self.description: Description = parse(self._read(DESCRIPTION), run / DESCRIPTION)
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

        path, content = self._run / name, self._read(name)
        try:
            header, tensors = tensors_header(content), load(content)
            fits = header["run"] == self.description.run and header["version"] == VERSION
            rows: tuple[int, ...] = ()
            if nodes := self._nodes_of(name):
                fits = fits and range(*header["nodes"]) == nodes
                rows = (1 if header["all_the_same"] else len(nodes),)
        except (SafetensorError, *MALFORMED) as error:
            if isinstance(error, UserError):
                raise
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
        raise UserError(f"{path} is damaged: it does not name the run's files.")
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
    rows = models.detach().cpu().float().contiguous().numpy().astype("<f4")
    return [hashlib.sha256(row.tobytes()).hexdigest() for row in rows]


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
        order = [one["name"] for one in read_object(path.with_name(DESCRIPTION), "parameters")["parameters"]]
        rows = [tensors.pop(name) for name in order]
        flat = torch.cat([tensor.reshape(tensor.shape[0], -1) for tensor in rows], dim=1)
    except UserError:
        raise
    except Exception as error:  # safetensors and torch have their own for what is no such file
        raise UserError(f"{path} is damaged: it holds no run's models ({type(error).__name__}).") from None
    if tensors:
        raise UserError(f"{path} is damaged: {DESCRIPTION} does not know {sorted(tensors)[0]!r:.60}.")
    if len(flat) not in (1, len(part)):
        raise UserError(f"{path} has the models of {len(flat)} nodes, and its name says {len(part)}.")
    digests = model_digests(flat)
    return zip(part, digests * len(part) if len(flat) == 1 else digests, strict=True)
