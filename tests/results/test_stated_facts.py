"""What a certificate says about itself is held against the directory, signed or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.signed_runs import edit, unsigned, verdict

from gossamer.errors import UserError
from gossamer.results.released import MODELS
from gossamer.results.stated_facts import FACTS, compare_facts, facts_of_data, says_what_it_is

CHANGES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("name", lambda c: c.update(name="another")),
    ("run", lambda c: c.update(run="0" * 16)),
    ("started", lambda c: c.update(started="2020-01-01T00:00:00Z")),
    ("issued", lambda c: c.update(issued="2020-01-01T00:00:00Z")),
    ("'issued' is not a date", lambda c: c.update(issued="today")),
    ("key", lambda c: c.update(key="00" * 32)),
    ("nodes", lambda c: c.update(nodes=True)),
    ("data", lambda c: c.update(data={"kind": "digits", "own": True})),
    ("data", lambda c: c.update(data={"kind": "mnist", "own": False})),
    ("digests.configuration", lambda c: c["digests"].update(configuration="0" * 64)),
    ("digests.data", lambda c: c["digests"].update(data=None)),
    ("digests.models", lambda c: c["digests"]["models"].pop()),
]


@pytest.mark.parametrize(("what", "change"), CHANGES)
def test_every_fact_is_compared_also_without_a_signature(
    run: Path, what: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    unsigned(run)
    certificate, manifest = (
        json.loads((run / f"{name}.json").read_text()) for name in ("certificate", "manifest")
    )
    assert compare_facts(run, certificate, manifest)  # its models are there, and are the ones
    change(certificate)
    with pytest.raises(UserError, match=what):
        compare_facts(run, certificate, manifest)


def test_a_signed_certificate_that_was_given_another_date_is_noticed(run: Path) -> None:
    edit(run / "certificate.json", lambda c: c.update(issued="2030-01-01T00:00:00Z"))
    with pytest.raises(UserError, match=r"certificate\.json is not what the run had signed at its end"):
        verdict(run)


def test_a_fact_that_is_missing_is_named(run: Path) -> None:
    certificate, manifest = (
        json.loads((run / f"{name}.json").read_text()) for name in ("certificate", "manifest")
    )
    for key in set(FACTS) - {"issued"}:
        with pytest.raises(UserError, match=f"it has no '{key}'"):
            compare_facts(run, {k: v for k, v in certificate.items() if k != key}, manifest)
    assert not says_what_it_is({k: v for k, v in certificate.items() if k != "issued"})


def test_models_of_another_run_are_noticed(run: Path) -> None:
    unsigned(run)  # the last seal would notice the file before
    save_file(
        {name: torch.zeros_like(value) for name, value in load_file(run / MODELS).items()}, run / MODELS
    )
    with pytest.raises(UserError, match="does not hold the model of node 0 that the certificate is about"):
        verdict(run)


def test_private_records_have_no_digest() -> None:
    assert facts_of_data({"kind": "csv"}, {"data": {"source": "own file"}}) == (
        {"kind": "csv", "own": True},
        None,
    )
    assert facts_of_data({"kind": "digits"}, {"data": {"sha256": "ab"}}) == (
        {"kind": "digits", "own": False},
        "ab",
    )
