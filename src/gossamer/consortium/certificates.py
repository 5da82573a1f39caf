"""What a site signs at the end, and whether the certificates of all sites make one whole.

A site signs, with the key that the roster has of it, its certificate, its ledger's head and which study it was. The
statement stands in certificate.json under `site`, so that one file can be handed over.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from gossamer.accounting.recompute import recompute
from gossamer.consortium import files
from gossamer.consortium.epochs import epochs_of, first_with, nodes_of
from gossamer.consortium.names import read_stamp, stamp
from gossamer.consortium.roster import Roster, check_successor
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.results.certificate import ADDED_LATER, SITE, epsilon_text
from gossamer.results.rundir import finite
from gossamer.results.verify import certificate_in, verify_run, whatever_it_holds
from gossamer.results.words import day

_DOMAIN = b"gossamer site certificate 1\n"  # a signature over a certificate is one over nothing else
_FORM = {
    "study": str,
    "site": str,
    "node": int,
    "ledger_head": str,
    "events": int,
    "at": str,
    "signature": str,
}
_CLOSE = 1e-6  # relative: what a figure may be above another by rounding


def signed_by_site(
    certificate: Mapping[str, Any],
    study: Study,
    site: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    ledger_head: str,
    events: int,
    at: datetime,
    node: int | None = None,
) -> dict[str, Any]:
    """The certificate with this site's statement; an earlier one is replaced. `node`: of a site that joined later."""
    certificate = json.loads(json.dumps(finite(dict(certificate))))  # as its file has it
    words = {
        "study": study.identity,
        "site": site,
        "node": study.node(site) if node is None else node,
        "ledger_head": ledger_head,
        "events": events,
        "at": stamp(at),
    }
    signature = key.sign(_message(certificate, words), ec.ECDSA(hashes.SHA256())).hex()
    return {**certificate, SITE: {**words, "signature": signature}}


def verify_set(
    paths: Sequence[Path], study_file: Path, *, authority: str | None = None, roster_file: Path | None = None
) -> list[str]:
    """What was checked of the certificates of a study's sites, in sentences; one that something is wrong is raised.

    `roster_file`: a later roster than the study's, where sites joined, left or got another key since.
    """
    study = Study.read(study_file, authority)
    rosters = [study.roster]
    if roster_file is not None:
        later = Roster.read(files.read(roster_file), str(roster_file), study.roster.fingerprint)
        check_successor(study.roster, later)
        rosters.append(later)
    asked = tomllib.loads(study.body.recipe)
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in paths:
        file = path / "certificate.json" if path.is_dir() else path
        with whatever_it_holds(file):
            certificate = certificate_in(file)
            site = _statement(certificate, file)["site"]
            if site in found:
                raise UserError(
                    f"{file} and {found[site][0]} are both of the site {site}; a site counts once."
                )
            _check_one(file, certificate, study, rosters, asked)
            if path.is_dir():  # its ledger, seals and models, not the certificate alone
                verify_run(path, recompute(path))
            found[site] = file, certificate
    heads = [certificate[SITE]["ledger_head"] for _, certificate in found.values()]
    if len(set(heads)) < len(heads):
        raise UserError("two sites state the same ledger: one of them copied it.")
    missing, excused = _missing(study, rosters[-1], found)
    if missing:
        raise UserError(f"the certificate of {', '.join(missing)} is missing; name the files of all sites.")
    return [
        _headline(study, len(found), whole=not excused),
        *_lines(found),
        *excused,
        *_known(study, authority),
    ]


def _check_one(
    file: Path,
    certificate: Mapping[str, Any],
    study: Study,
    rosters: Sequence[Roster],
    asked: Mapping[str, Any],
) -> None:
    said = _statement(certificate, file)
    name = said["site"]
    if said["study"] != study.identity:
        raise UserError(f"{file} is of another study than {study.where}.")
    entries = [entry for roster in rosters for entry in roster.sites if entry.name == name]
    newest = rosters[-1]
    if not entries or first_with(study, newest, name) is None:
        raise UserError(
            f"{file} is of {name[:40]!r}, which is no site of the study by roster {newest.version}; name the newest "
            "with --roster."
        )
    if not any(_fits(certificate, said, entry.public_key) for entry in entries):
        raise UserError(
            f"{file} is not what {name} signed: it was changed, or signed by another key than the roster has."
        )
    counted = nodes_of(study, name)
    node, of, due = said["node"], len(counted), counted.index(name)
    if node != due:
        raise UserError(f"{file} says that {name} is node {node}, and in the study it is {due}.")
    if _own(certificate["ledger_heads"], node, of) != said["ledger_head"]:
        raise UserError(f"{file} states another ledger in its certificate than {name} signed.")
    for key, agreed in (
        ("mode", asked["mode"]),
        ("method", asked["algorithm"]["kind"]),
        ("noise_source", asked["privacy"]["noise"]["source"]),
    ):
        if certificate.get(key) != agreed:
            raise UserError(
                f"{file} states {key} = {certificate.get(key)!r}, and the study asks for {agreed!r}."
            )
    rounds = certificate.get("rounds")  # that were run: fewer where a site was away, joined later or left
    if type(rounds) is not int or not 0 <= rounds <= asked["rounds"]:
        raise UserError(f"{file} states rounds = {rounds!r}, and the study has {asked['rounds']}.")
    constants = [one for one in certificate["public_constants"] if one["node"] == node]
    if len(constants) != 1 or constants[0]["records"] not in {entry.records for entry in entries}:
        raise UserError(f"{file} states another number of records than {name} declared in the roster.")
    _within_budget(file, certificate, asked["privacy"].get("epsilon"), node, of)


def _within_budget(file: Path, certificate: Mapping[str, Any], epsilon: Any, node: int, of: int) -> None:
    """Is what the site proves no more than what was agreed upon?"""
    proven = _own(certificate["epsilon_by_node"], node, of)["proven"]
    due = epsilon[node] if isinstance(epsilon, list) and node < len(epsilon) else epsilon
    if due is None or isinstance(due, list) or certificate["mode"] != "sound" or certificate["stamp"]:
        return
    if proven is None or proven > due * (1 + _CLOSE):
        raise UserError(
            f"{file} states a proven ε of {epsilon_text(proven)}, and the study asks for {due:g} "
            f"(δ = {certificate['delta']:g}, {certificate['adjacency']}, unit: {certificate['unit']}; observer: "
            f"{certificate['observer']})."
        )


def _statement(certificate: Mapping[str, Any], file: Path) -> dict[str, Any]:
    found = certificate.get(SITE)
    if found is None:
        raise UserError(
            f"{file} is signed by no site of a consortium; name certificates that `gossamer peer run` wrote."
        )
    good = isinstance(found, dict) and set(found) == set(_FORM)
    good = good and all(type(found[key]) is kind for key, kind in _FORM.items())
    good = good and bool(re.fullmatch("[0-9a-f]{16,160}", found["signature"]))
    good = good and bool(re.fullmatch("[0-9a-f]{64}", found["ledger_head"])) and found["site"].isprintable()
    try:
        good = good and found["node"] >= 0 and found["events"] >= 0 and bool(read_stamp(found["at"]))
    except ValueError:
        good = False
    if not good:
        raise UserError(f"{file} is damaged: its {SITE!r} is not what a site signs.")
    statement: dict[str, Any] = found
    return statement


def _fits(certificate: Mapping[str, Any], said: Mapping[str, Any], key: ec.EllipticCurvePublicKey) -> bool:
    words = {name: value for name, value in said.items() if name != "signature"}
    try:
        key.verify(bytes.fromhex(said["signature"]), _message(certificate, words), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True


def _message(certificate: Mapping[str, Any], words: Mapping[str, Any]) -> bytes:
    """What is signed: the certificate as JSON with sorted names, however its file is laid out."""
    said = {name: value for name, value in certificate.items() if name not in ADDED_LATER}
    return _DOMAIN + json.dumps([said, dict(words)], sort_keys=True).encode()


def _own(listed: Sequence[Any], node: int, of: int) -> Any:
    """A site's own entry, in a list of all nodes or of its own alone."""
    if len(listed) == 1:
        return listed[0]
    if len(listed) < of or node >= len(listed):
        raise ValueError("a list has no entry of the site")
    return listed[node]


def _missing(study: Study, newest: Roster, found: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Sites without a certificate: those that owe one, and sentences about those that do not."""
    took_part = {name for _, names in epochs_of(study, newest) for name in names}
    owing = sorted(took_part - set(found))
    revoked = [name for name in owing if newest.site(name).revoked]
    said = [
        f"{name} was revoked and has no certificate here: what its records cost is not known"
        for name in revoked
    ]
    return [name for name in owing if name not in revoked], said


def _headline(study: Study, count: int, *, whole: bool) -> str:
    return (
        f"study {study.name}, version {study.version}, of the consortium {study.roster.consortium}: {count} "
        f"certificates, each signed by its site's key{', none missing' if whole else ''}"
    )


def _lines(found: Mapping[str, tuple[Path, dict[str, Any]]]) -> list[str]:
    said = []
    for site, (_, c) in sorted(found.items()):
        own, node = c[SITE], c[SITE]["node"]
        entries = c["epsilon_by_node"]
        proven = (entries[0] if len(entries) == 1 else entries[node])["proven"]
        what = f"proven ε ≤ {epsilon_text(proven)}" if proven is not None else "nothing is proven"
        stamped = f"{c['stamp']}; " if c["stamp"] else ""
        said.append(
            f"{site}: {stamped}{what} (δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}; observer: "
            f"{c['observer']}); ledger {own['ledger_head'][:16]}… of {own['events']} events in {c['rounds']} "
            f"rounds, signed on {day(own['at'])}"
        )
    return ["".join(letter if letter.isprintable() else "�" for letter in line) for line in said]


def _known(study: Study, authority: str | None) -> list[str]:
    """Where the chain of trust begins."""
    alone = "the certificates alone were looked at: only the sites' run directories show whether their ledgers agree"
    key = study.roster.fingerprint
    if authority is not None:
        return [alone, "the authority is the one that was asked for"]
    return [
        alone,
        f"whose consortium this is must be known from elsewhere; compare --authority {key}",
    ]
