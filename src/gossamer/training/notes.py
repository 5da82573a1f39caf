"""What a reader of a run's figures must know about its configuration."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms import rule
from gossamer.config.schema import PersonUnit, RunConfig
from gossamer.data.memory import Memory
from gossamer.data.own import OwnRecords
from gossamer.methods.base import Method

READ_OFF = {
    "records": "The number of records of each node was read off them, not declared: no ε covers it.",
    "classes": "Which labels there are was read off the records, not declared: no ε covers it.",
    "targets": "The range of the targets was read off the records, not declared: no ε covers it.",
}


def notes_of(config: RunConfig, method: Method) -> list[str]:
    notes = method.notes()
    if config.privacy.runs > 1:
        notes.append(
            f"One of {config.privacy.runs} runs that share the budget: this ε is of it alone, the one asked for of all."
        )
    if config.data.private_steps and config.privacy.noise.kind.adds:
        notes.append("A claimed ε is of the rounds alone: no paper counts what is released before them.")
    if config.data.partition.kind == "label-split":
        notes.append("Labels are split over nodes: a node's identity gives away labels.")
    if config.privacy.sampling.needs_true_sizes:
        notes.append("Fixed-size sampling uses the exact number of records of every node: it is public.")
    if isinstance(config.data, OwnRecords) and config.data.one_lot:
        notes.append("The rows were dealt out from one file: ε holds for the partition as it fell.")
    if isinstance(config.data, Memory):
        notes.append("The records were handed over in memory: what other runs spent on them is not added up.")
        notes += [READ_OFF[what] for what in config.data.read_off]
    notes += _of_unit(config)
    evaluation = config.evaluation
    if evaluation.private is not None:
        notes.append(
            f"About {evaluation.part:.0%} of each node's {config.privacy.protects.many} are kept out of training and "
            f"judge its final model once, with noise that {evaluation.private:.0%} of ε pays for. A claimed ε does not "
            "count it."
        )
    copies = config.data.partition.most_copies(config.nodes)
    if copies > 1:
        notes.append(
            f"A record may lie on up to {copies} nodes: the proven ε is of all their releases together, a claimed one "
            "of one node's."
        )
    if config.data.transform:  # torch comes along: not where there are none
        from gossamer.data.features.pipeline import statements

        notes += statements(config.data.transform)
    return [*notes, *_of_others(config)]


def _of_unit(config: RunConfig) -> list[str]:
    """What a reader must know where persons or nodes are protected."""
    unit, notes = config.privacy.unit, []
    if isinstance(unit, PersonUnit):
        notes.append(
            f"Persons are protected: declared numbers, rates and lots count persons, and of a person at most "
            f"{unit.max_records:,} records of a node are used."
        )
        if config.data.own:
            sites = "one node" if unit.max_sites == 1 else f"at most {unit.max_sites} nodes"
            notes.append(
                f"That a person's records are at {sites}, under one value of {unit.column!r}, is declared: where nodes "
                "do not see each other's records, nobody checks it."
            )
        if unit.max_sites > 1:
            notes.append(
                f"A person may be at up to {min(unit.max_sites, config.nodes)} nodes: the proven ε is of all their "
                "releases together, a claimed one of one node's."
            )
    elif unit == "node":
        notes.append("Nodes are protected as a whole: which nodes take part is public.")
    return notes


def _of_others(config: RunConfig) -> list[str]:
    """Parts that are not ours: the figures say no more than those parts do."""
    privacy, notes = config.privacy, []
    if (whose := _origin(rule(config.algorithm.rule))) is not None:
        notes.append(
            f"The method {config.algorithm.kind!r} comes from {whose}, not from this library: no paper's ε is claimed "
            "for it, and the proof does not rest on it."
        )
    for key, part, states in (
        ("clip", privacy.clip, "bound"),
        ("noise", privacy.noise.family, "noise"),
        ("sampling", privacy.sampling, "sampling"),
    ):
        if (whose := _origin(type(part))) is not None:
            notes.append(
                f"The {key} {part.kind!r} comes from {whose}, not from this library: the proof rests on the {states} "
                "that it states."
            )
    return notes


def _origin(part: type[Any]) -> str | None:
    """The package that a class is from; None if it is ours."""
    package = part.__module__.partition(".")[0]
    if package == "gossamer":
        return None
    return "the script itself" if package == "__main__" else f"the package {package}"
