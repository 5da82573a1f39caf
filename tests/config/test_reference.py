"""The printed schema is complete, fits the terminal, and is what docs/configuration.md holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gossamer.config.methods import algorithms
from gossamer.config.reference import as_data, as_markdown, tables, type_words
from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets
from gossamer.models.networks import models
from gossamer.options.registry import Registry, options_of
from gossamer.topology.kinds import topologies

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    hint = "write it anew: gossamer recipes --schema > docs/configuration.md"
    assert PAGE.read_text(encoding="utf-8") == as_markdown(), hint


def test_widths() -> None:
    assert max(map(len, as_markdown().splitlines())) < 120


def test_every_kind_and_every_option_is_there_once() -> None:
    entries = {entry["table"]: entry for entry in as_data()}
    assert len(entries) == len(tables())
    registries: list[Registry[Any]] = [datasets, models, topologies, algorithms]
    for registry in registries:
        entry = entries[registry.table]
        common = [option["name"] for option in entry["options"]]
        for kind in entry["kinds"]:
            names = [*common, *(option["name"] for option in kind["options"])]
            assert sorted(names) == sorted(option.name for option in options_of(registry[kind["kind"]]))
            assert kind["meaning"]
        assert [kind["kind"] for kind in entry["kinds"]] == sorted(registry)
    top = {option["name"] for option in entries[""]["options"]} | {name for name in entries if name and "." not in name}
    assert top == set(RunConfig.model_fields)
    json.dumps(as_data())


def test_types_in_plain_words() -> None:
    words = {o.name: type_words(o.type) for o in options_of(topologies["erdos-renyi"])}
    assert words["p"] == "number above 0 up to 1"
    assert words["mixing"] == "metropolis or uniform"
    assert words["slow"] == "table"
    own = {o.name: type_words(o.type) for o in options_of(datasets["csv"])}
    assert own["records"] == "whole number from 1 or list of whole numbers from 1"
    assert own["partition"] == "table with a kind, see [data.partition]"
    assert own["ranges"] == "table"
    assert own["bias"] == "true or false or outside"
    assert type_words(list[list[float]] | str) == "list of lists of numbers or text"
