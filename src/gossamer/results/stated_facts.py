"""What a certificate says about itself (which run, when, of which configuration, data and models) beside the directory.

Certificates from before this was stated have none of it, and nothing of it is asked of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.files import digest_of, read_text
from gossamer.results.released import check_models

_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
FACTS = ("name", "run", "started", "issued", "key", "nodes", "data", "digests")


def says_what_it_is(certificate: Mapping[str, Any]) -> bool:
    """Not so of certificates that were made before there was a date on them."""
    return "issued" in certificate


def facts_of_data(asked: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The data set by name, what was declared of its columns, and its digest if it is public.

    `asked`: the table [data] of the configuration. Of private records a digest would let guesses be tested.
    """
    digest = manifest.get("data", {}).get("sha256")
    declared = {"columns": asked["columns"]} if "columns" in asked else {}
    return {"kind": asked["kind"], "own": digest is None, **declared}, digest


def data_of(run: Path) -> dict[str, Any]:
    """The table [data] that the run keeps."""
    found: dict[str, Any] = tomllib.loads(read_text(run / "config.toml"))["data"]
    return found


def compare_facts(run: Path, certificate: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> bool:
    """A sentence where one differs; were there models to compare?"""
    path = run / "certificate.json"
    if not says_what_it_is(certificate) or manifest is None:
        return False
    if missing := next((key for key in FACTS if key not in certificate), None):
        raise UserError(f"{path} is damaged: it has no {missing!r}.")
    for key, found in (
        ("name", manifest["name"]),
        ("run", manifest["run"]),
        ("started", manifest.get("started")),
        ("key", manifest.get("key")),
        ("nodes", len(certificate["draws"])),
    ):
        if certificate[key] != found or type(certificate[key]) is not type(found):
            raise _differs(path, key, certificate[key], found)
    dates = [certificate["started"], certificate["issued"]]
    if not all(isinstance(date, str) and _DATE.fullmatch(date) for date in dates):
        raise UserError(f"{path} is damaged: its 'issued' is not a date.")
    if dates[1] < dates[0]:
        raise _differs(path, "issued", dates[1], f"a beginning at {dates[0]}")
    digests = certificate["digests"]
    data, digest = facts_of_data(data_of(run), manifest)
    for key, stated, found in (
        ("data", certificate["data"], data),
        ("digests.configuration", digests["configuration"], digest_of(run / "config.toml")),
        ("digests.data", digests["data"], digest),
    ):
        if stated != found:
            raise _differs(path, key, stated, found)
    models = digests["models"]
    if len(models) != certificate["nodes"]:
        raise _differs(path, "digests.models", f"{len(models)} models", f"{certificate['nodes']} nodes")
    return check_models(run, models)


def _differs(path: Path, key: str, stated: Any, found: Any) -> UserError:
    return UserError(f"{path} states {key} = {stated!r:.90} where the run directory has {found!r:.90}.")
