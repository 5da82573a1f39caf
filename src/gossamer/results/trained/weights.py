"""The numbers of a run's released models on disk, and in memory.

    models.safetensors                 every parameter under its name, first axis the nodes (a part per process:
                                       models.nodes-000-003.safetensors); one row where all nodes hold the same
    average.safetensors                the mean over all nodes, every parameter under its name; a site of a study,
                                       which knows its own model alone, has none

They are what the method releases: where its state is another (push-sum's x and w), it has been divided already. The
certificate of a run names these files: one that it does not name is not read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.results.files import read_bytes
from gossamer.results.rundir import write_atomically
from gossamer.results.signatures import read_certificate
from gossamer.results.trained.description import Description, parse

DESCRIPTION, AVERAGE, FIXED = "model.json", "average.safetensors", "frozen.safetensors"
VERSION = 1
_PART = re.compile(r"models(\.nodes-\d+-\d+)?\.safetensors")
READING = (
    "Every tensor is a parameter of the network under its name, as the method releases it; in models*.safetensors the "
    "first axis is the nodes named here."
)

Point = dict[str, Tensor]  # parameter → its values


class Weights(Protocol):
    @property
    def nodes(self) -> range | list[int]:
        """Whose models are at hand."""
        ...

    @property
    def has_average(self) -> bool:
        """Not so of a site of a study."""
        ...

    def of(self, node: int) -> Point: ...

    def average(self) -> Point: ...

    def fixed(self) -> Point:
        """What was not trained, the same at all nodes: frozen parameters and buffers."""
        ...


class HeldWeights:
    """In memory, of the nodes hosted here."""

    has_average = True

    def __init__(
        self, stack: ParameterStack, nodes: range, points: Tensor, average: Tensor, fixed: Point | None = None
    ):
        self._stack, self.nodes = stack, nodes
        self._fixed = {name: value.detach().cpu().clone() for name, value in (fixed or {}).items()}
        self._points, self._average = points.detach().cpu(), average.detach().cpu()

    def of(self, node: int) -> Point:
        return _row(self._stack, self._points[node - self.nodes.start])

    def average(self) -> Point:
        return _row(self._stack, self._average)

    def fixed(self) -> Point:
        return self._fixed

    def write(self, folder: Path, run: str, of: int, *, average: bool) -> None:
        """Write the file of these nodes, and that of the average, if asked for."""
        first, last = self.nodes.start, self.nodes.stop
        same = all(torch.equal(point, self._points[0]) for point in self._points)  # the second tells, mostly
        said = {"what": "the nodes' models", "nodes": [first, last], "of": of, "all_the_same": same}
        rows = self._stack.views(self._points[:1] if same else self._points)
        name = (
            "models.safetensors"
            if last - first == of
            else f"models.nodes-{first:03d}-{last - 1:03d}.safetensors"
        )
        _save(folder / name, rows, {"run": run, **said})
        if average:
            mean = {"run": run, "what": "the mean of all nodes' models", "of": of}
            _save(folder / AVERAGE, self.average(), mean)

    def write_fixed(self, folder: Path, run: str) -> None:
        """Write the file of what was not trained, if there is something."""
        said = {"run": run, "what": "frozen parameters and buffers, the same at all nodes"}
        if self._fixed:
            _save(folder / FIXED, self._fixed, said, kind=None)


class StoredWeights:
    """In a run directory; read, and checked against the certificate, when first needed."""

    def __init__(self, run: Path):
        self._run = run
        self._signed = signed_files(run)
        self.description: Description = parse(self._read(DESCRIPTION), run / DESCRIPTION)
        self._parts: dict[str, tuple[dict[str, Any], Point]] = {}
        names = [name for name in sorted(self._signed) if _PART.fullmatch(name)]
        self._where = {node: name for name in names for node in self._nodes_of(name)}

    @property
    def nodes(self) -> list[int]:
        return sorted(self._where)

    @property
    def has_average(self) -> bool:
        return AVERAGE in self._signed

    def of(self, node: int) -> Point:
        said, tensors = self._part(self._where[node])
        row = 0 if said.get("all_the_same") else node - said["nodes"][0]
        return {name: value[row] for name, value in tensors.items()}

    def average(self) -> Point:
        return self._part(AVERAGE)[1]

    def fixed(self) -> Point:
        return self._part(FIXED)[1] if FIXED in self._signed else {}

    def _nodes_of(self, name: str) -> range:
        """From its name, which the seal has, so that no large file is read for it."""
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        named = range(numbers[0], numbers[1] + 1) if numbers else range(self.description.nodes)
        if not 0 <= named.start < named.stop <= self.description.nodes:
            raise UserError(f"{self._run / name} is named after nodes that the run does not have; remove it.")
        return named

    def _part(self, name: str) -> tuple[dict[str, Any], Point]:
        if name not in self._parts:
            self._parts[name] = self._checked(name)
        return self._parts[name]

    def _checked(self, name: str) -> tuple[dict[str, Any], Point]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        path, content = self._run / name, self._read(name)
        try:
            length = int.from_bytes(content[:8], "little")
            said = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["gossamer"])
            tensors = load(content)
            rows = (
                ()
                if name in (AVERAGE, FIXED)
                else (1 if said["all_the_same"] else said["nodes"][1] - said["nodes"][0],)
            )
            wanted = {p.name: (*rows, *p.shape) for p in self.description.parameters}
            whole = said["run"] == self.description.run and said["version"] == VERSION
            whole = whole and (name in (AVERAGE, FIXED) or range(*said["nodes"]) == self._nodes_of(name))
        except (SafetensorError, LookupError, TypeError, ValueError, RecursionError):
            raise UserError(f"{path} is damaged; put it back.") from None
        shapes = {key: tuple(value.shape) for key, value in tensors.items()}
        if not whole or (name != FIXED and shapes != wanted):
            raise UserError(
                f"{path} does not hold what {self._run / DESCRIPTION} says; put them back together."
            )
        return said, tensors

    def _read(self, name: str) -> bytes:
        path = self._run / name
        if not path.exists() and not path.is_symlink():
            raise UserError(f"{path} is missing, and the run had written it; put it back.")
        content = read_bytes(path)
        if self._signed.get(name) != hashlib.sha256(content).hexdigest():
            raise UserError(f"{path} is not what the run signed at its end; put it back.")
        return content


def signed_files(run: Path) -> dict[str, str]:
    """Return name → digest of the files that the run's certificate covers."""
    path = run / "certificate.json"
    if not path.exists():
        raise UserError(
            f"{run} has not ended: models are written at a run's end; `gossamer run --resume {run}` continues it."
        )
    digests = read_certificate(path).get("digests")
    files = digests.get("files") if isinstance(digests, dict) else None
    if not isinstance(files, dict):
        raise UserError(f"{path} is damaged: it does not name the run's files.")
    return files


def _row(stack: ParameterStack, point: Tensor) -> Point:
    return {name: value[0] for name, value in stack.views(point[None]).items()}


def _save(
    path: Path,
    tensors: Mapping[str, Tensor],
    said: Mapping[str, Any],
    kind: torch.dtype | None = torch.float32,
) -> None:
    from safetensors.torch import save

    content = {
        name: value.to(kind or value.dtype).clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    header = {"version": VERSION, **said, "reading": READING}
    write_atomically(path, save(content, metadata={"gossamer": json.dumps(header)}))
