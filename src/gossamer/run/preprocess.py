"""What is done to the records before the first round and reads them: private, paid for, in every node's ledger.

So far principal components (`data.pca_from = "private"`). A further step is another release of `plan.before`, made here
in the same place: after the ledgers are open, before a reader or a model sees a record.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from safetensors.torch import load_file, save_file

from gossamer.data.source import components_of
from gossamer.errors import UserError
from gossamer.mechanism.reader import Book
from gossamer.mechanism.second_moment import components, private_moments, unpacked
from gossamer.results.rundir import RunDirectory
from gossamer.run.assemble import Parts, records_of
from gossamer.runtime.group import Group

FILE = "components.safetensors"  # released, like a model


def preprocessed(parts: Parts, group: Group, book: Book, directory: RunDirectory) -> Parts:
    """The parts with records as the models take them; these very parts where there is nothing to do."""
    data = parts.outline.config.data
    if not data.private_components:
        return parts
    assert data.pca is not None
    path = directory.path / FILE
    if path.exists():  # a run that goes on: what was released once is not released again
        basis = load_file(path)["components"]
    else:
        basis = _released(parts, group, book, data.pca)
        if group.first_here:
            save_file({"components": basis}, path)
    width = parts.dataset.x_train[0].size
    if basis.shape != (data.pca, width):
        raise UserError(f"{path} holds components of shape {tuple(basis.shape)}; put the run's own back.")
    dataset = components_of(data, parts.dataset, basis.numpy())
    return records_of(replace(parts, dataset=dataset))


def bytes_of_preprocessing(parts: Parts) -> int:
    """What the hosted nodes' releases take on their way to all others."""
    basis = parts.dataset.components
    if basis is None:
        return 0
    width = int(basis.shape[1])
    return len(parts.nodes) * (parts.outline.config.nodes - 1) * 4 * (width * (width + 1) // 2)


def _released(parts: Parts, group: Group, book: Book, count: int) -> torch.Tensor:
    """Every node's noised moment goes to all others; of their mean, everyone computes the same components."""
    plan = parts.outline.plan
    moments = private_moments(
        parts.records,
        parts.nodes,
        multiplier=plan.before[0].release.noise_multiplier,
        adjacency=plan.adjacency,
        stream=parts.stream(),
        book=book,
    )
    width = parts.dataset.x_train[0].size
    return components(unpacked(group.mean(moments), width), count).contiguous()
