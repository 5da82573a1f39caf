"""What a reader of a run's figures must know about its configuration."""

from __future__ import annotations

from gossamer.config.schema import RunConfig
from gossamer.methods.base import Method


def notes_of(config: RunConfig, method: Method) -> list[str]:
    notes = method.notes()
    if config.privacy.runs > 1:
        notes.append(
            f"One of {config.privacy.runs} runs that share the budget: this ε is of it alone, the one asked for of all."
        )
    if config.privacy.clip.assumes:
        notes.append(method.believed_bound)
    if config.data.partition.kind == "label-split":
        notes.append("Labels are split over nodes: a node's identity gives away labels.")
    if config.privacy.sampling.needs_true_sizes:
        notes.append("Fixed-size sampling uses the exact number of records of every node: it is public.")
    if config.data.own and not config.data.file_per_node and getattr(config.data, "owner", None) is None:
        notes.append("The rows were dealt out from one file: ε holds for the partition as it fell.")
    if config.data.partition.kind == "sampled":
        notes.append(
            "A record may sit on several nodes; the ε of one node does not cover its copies on others."
        )
    return notes
