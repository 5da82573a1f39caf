"""The manifest of a run, the headers of its ledgers, the description of its models, and what its processes share."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import gossamer
from gossamer.config.schema import RunConfig
from gossamer.data.inputs import inputs_of
from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.kernels.oracle import one_output, shape_of
from gossamer.kernels.stack import ParameterStack, fixed_digest
from gossamer.models.layers import Centred
from gossamer.models.networks import Own
from gossamer.models.networks import models as kinds
from gossamer.results.certificate import SEEDED
from gossamer.results.rundir import digest_of_object, read_manifest
from gossamer.results.signatures import RunKey
from gossamer.results.trained import Description, Parameter
from gossamer.results.verify import check_beginning
from gossamer.runtime.group import Group
from gossamer.topology.kinds import Matrix
from gossamer.training.assemble import Parts
from gossamer.training.budget import now
from gossamer.training.plan import Plan
from gossamer.training.privacy import why_copies


def ledger_headers(parts: Parts, run: str, manifest: str) -> dict[int, dict[str, Any]]:
    """Ledger headers by node, bound by its digest to the manifest, with its public key and its first files' digests."""
    o = parts.plan
    common = {
        "run": run,
        "manifest": manifest,
        "adjacency": o.privacy.adjacency,
        "unit": o.privacy.unit,
        **({"copies": o.privacy.copies} if o.privacy.copies > 1 else {}),
        "noise": SEEDED if o.seeded else "system",
        **o.privacy.noise.header,
    }
    by_constants: dict[tuple[Any, ...], dict[str, Any]] = {}  # equal nodes share one
    headers = {}
    for i in parts.nodes:
        node = o.privacy.nodes[i]
        public = {"records": node.records, "rate": node.rate, "lot": node.lot}
        header = {"delta": node.delta, "epsilon_asked": node.epsilon, **common, "public": public}
        headers[i] = by_constants.setdefault((node.delta, node.epsilon, *public.values()), header)
    return headers


def new_manifest(parts: Parts, identity: str, here: list[range]) -> dict[str, Any]:
    o = parts.plan
    own = o.config.data.own
    return {
        "name": o.config.name,
        "run": identity,
        "started": now(),
        "dimension": o.stack.dim,
        **({"frozen": fixed_digest(o.module)} if parts.fixed else {}),
        "records_by_node": [node.records for node in o.privacy.nodes],
        # A digest of private records would let anyone who has this file test guesses of them.
        "data": {k: v for k, v in parts.dataset.provenance.items() if k != "sha256" or not own},
        "noise": SEEDED if o.seeded else "system",
        "ledgers_here": [[nodes.start, nodes.stop - 1] for nodes in here],  # others are on their own machines
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    libraries = {name: version(name) for name in ("torch", "numpy", "scipy", "cryptography")}
    return {"gossamer": gossamer.__version__, "python": platform.python_version(), **libraries}


def read_own_manifest(path: Path, o: Plan) -> dict[str, Any]:
    """The manifest of the run in this directory; refused where the plan is not the one it was begun with."""
    manifest = read_manifest(path)
    if manifest.get("configuration") != digest(o.asked):
        raise UserError(f"{path / 'config.toml'} is not what this run was begun with; put it back as it was.")
    if "frozen" in manifest and manifest["frozen"] != fixed_digest(o.module):
        raise UserError(
            f"{path} was begun with other frozen parameters or buffers than the module has now; resume it with the "
            "same module."
        )
    check_beginning(path, manifest)
    return manifest


def records_mark(parts: Parts, key: RunKey) -> str | None:
    """Keyed digest of private records, to recognise them on resuming; None if they are public, or not all are here.

    With other records, the hold-out may contain what was trained on before, and no ε covers figures on it.
    """
    o, digest_of_records = parts.plan, parts.dataset.provenance.get("sha256")
    if not o.config.data.own or digest_of_records is None or len(parts.nodes) != o.config.nodes:
        return None
    return key.mark(digest_of_records)


def describe(parts: Parts, run: str) -> Description:
    o, dataset = parts.plan, parts.dataset
    shape = dataset.x_train.shape[1:]
    model = {"kind": o.config.model.kind, **kinds.options(o.config.model)}
    return Description(
        run=run,
        nodes=o.config.nodes,
        task=o.task.name,
        classes=o.classes,
        labels=dataset.labels,
        inputs=inputs_of(o.config.data, dataset),
        input_shape=shape,
        outputs=count_outputs(o.module, shape),
        probabilities=None if o.task.link == "exp" else o.task.link,
        mean="exp" if o.task.link == "exp" else None,
        level=getattr(o.task, "level", None),
        model={"kind": "own"} if o.own_module else model,
        own_module=o.own_module,
        lora=o.config.lora,
        centre=isinstance(o.module, Centred),
        parameters=tuple(
            Parameter(name=name, shape=size) for name, size in zip(o.stack.names, o.stack.shapes, strict=True)
        ),
    )


@torch.no_grad()
def count_outputs(module: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """Count the outputs for a record: tried on one of zeros, or traced where that has none, as with an inverse."""
    kind = torch.float32 if shape else torch.int64  # a record without a shape is a place in a table
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    try:
        with torch.random.fork_rng(devices=[]):
            return int(module(torch.zeros(1, *shape, dtype=kind, device=device)).numel())
    except Exception:  # the module's own operations
        return shape_of(one_output(module, torch.Size(shape), kind)).numel()


def layout_of(stack: ParameterStack, state: Any) -> dict[str, Any]:
    """Description of a checkpoint's tensors, for its header."""
    divided = "x / w" if hasattr(state, "w") else "what the method makes of these tensors"
    return {
        "parameters": [[name, list(shape)] for name, shape in zip(stack.names, stack.shapes, strict=True)],
        "rows": "A tensor of so many columns has a row per node: the parameters flattened, in this order.",
        "state": f"This is the method's own state; a node's model is {divided}. Finished runs keep models.safetensors.",
    }


def nodes_here(group: Group) -> list[int]:
    """The nodes whose ledgers are on this machine."""
    return [node for nodes in blocks_here(group) for node in nodes]


def blocks_here(group: Group) -> list[range]:
    """The nodes of each process of this machine."""
    machines = group.join([group.machine])
    return [nodes for nodes, one in zip(group.blocks, machines, strict=True) if one == group.machine]


def require_same_everywhere(parts: Parts, group: Group) -> None:
    """Processes with different settings would wait for each other's messages, or misread them.

    Only digests travel, and none of what is a host's own: its records, and where it keeps its files.
    """
    o = parts.plan
    if group.spread and o.privacy.copies > 1:
        raise UserError(
            f"{why_copies(o.config)}, whose releases are priced together, and their ledgers would lie on several "
            "machines; use one machine, or have each record or person on one node."
        )
    if group.size == 1:
        return
    own, config = o.config.data.own, _without_folders(o.asked)
    content = config.model_dump(mode="json", exclude={"runtime", "data"} if own else {"runtime"})
    facts = {
        **dict(_flat(content)),
        "model": [o.stack.dim, fixed_digest(o.module)],
        "version": gossamer.__version__,
        # Of records that are public; a digest of private ones would let everyone test guesses of them.
        "data set": None if own else parts.dataset.provenance.get("sha256"),
        # Names, order and declaration of the columns: weights that mean other columns elsewhere learn nothing.
        COLUMNS: [parts.dataset.columns, datasets.options(o.config.data).get("columns") if own else None],
    }
    here = {name: digest_of_object({name: fact}) for name, fact in facts.items()}
    first, *others = group.join([here])
    for rank, other in enumerate(others, start=1):
        names = sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
        if names:
            more = f" (and {len(names) - 3} more keys)" if len(names) > 3 else ""
            raise UserError(f"rank {rank} has another {', '.join(names[:3])}{more} than rank 0; give all the same.")


COLUMNS = "order or declaration of columns (see data.features and data.columns)"


def _without_folders(config: RunConfig) -> RunConfig:
    """Each host has folders of its own."""
    update: dict[str, Any] = {}
    if isinstance(config.model, Own) and config.model.path is not None:
        update["model"] = replace(config.model, path=Path(config.model.path).name)
    if isinstance(config.topology, Matrix) and isinstance(config.topology.matrix, str):
        update["topology"] = replace(config.topology, matrix=Path(config.topology.matrix).name)
    return config.model_copy(update=update)


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


MAY_CHANGE = ("runtime",)  # tables that a resumed run may have otherwise


def digest(config: RunConfig) -> str:
    """Digest of what a resumed run must have as it was."""
    return digest_of_object(config.model_dump(), without=MAY_CHANGE)
