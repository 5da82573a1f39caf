"""Certificates that sites sign at the end of a study, and the verification of all of them together.

A site signs, with the key that the roster has of it, its certificate, its ledger's head and the study's identity. The
statement is in certificate.json under `site`, so that one file can be handed over.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field, ValidationError

from gossamer.consortium import files
from gossamer.consortium.files import Digest, Stamp, Strict, stamp
from gossamer.consortium.links import printable
from gossamer.consortium.roster import Roster, check_successor
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text
from gossamer.results.rundir import read_object
from gossamer.results.signatures import SITE, signed_content
from gossamer.results.verify import malformed_as_user_error, verify_run
from gossamer.results.words import day

_DOMAIN = b"gossamer site certificate 1\n"  # a signature over a certificate is one over nothing else
_TOLERANCE = 1e-6  # relative: what a figure may be above another by rounding


class Statement(Strict):
    """What a site signs together with its certificate."""

    study: str
    site: str
    node: Annotated[int, Field(ge=0)]
    ledger_head: Digest
    events: Annotated[int, Field(ge=0)]
    at: Stamp
    signature: Annotated[str, Field(pattern="^([0-9a-f]{2}){0,80}$")] = ""

    def message(self, certificate: Mapping[str, Any]) -> bytes:
        """Return the bytes to sign: the certificate as JSON with sorted names, however its file is laid out."""
        return _DOMAIN + signed_content(certificate, self.model_dump(exclude={"signature"}))

    def is_signed_by(self, key: ec.EllipticCurvePublicKey, certificate: Mapping[str, Any]) -> bool:
        try:
            key.verify(bytes.fromhex(self.signature), self.message(certificate), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError, UnsupportedAlgorithm):
            return False
        return True


def signed_by_site(
    certificate: Mapping[str, Any], study: Study, site: str, key: ec.EllipticCurvePrivateKey, **ledger: Any
) -> dict[str, Any]:
    """Return the certificate with this site's statement; an earlier one is replaced.

    `ledger`: its `ledger_head` and number of `events`, and `at`, the time.
    """
    node, at = study.nodes_for(site).index(site), stamp(ledger.pop("at"))
    statement = Statement(study=study.identity, site=site, node=node, at=at, **ledger)
    signature = key.sign(statement.message(certificate), ec.ECDSA(hashes.SHA256())).hex()
    return {**certificate, SITE: {**statement.model_dump(), "signature": signature}}


def verify_set(
    paths: Sequence[Path], study_file: Path, *, authority: str | None = None, roster_file: Path | None = None
) -> list[str]:
    """Verify the certificates of a study's sites together; return what was checked, a line each.

    `roster_file`: a later roster than the study's, where sites joined, left or got another key since.
    """
    study = Study.read(study_file, authority)
    rosters = [study.roster]
    if roster_file is not None:
        later = Roster.read(files.read(roster_file), str(roster_file), study.roster.fingerprint)
        check_successor(study.roster, later)
        rosters.append(later)
    checked: dict[str, _Certificate] = {}
    for path in paths:
        file = path / "certificate.json" if path.is_dir() else path
        with malformed_as_user_error(file):
            certificate = _Certificate(file, read_object(file), study)
            site = certificate.statement.site
            certificate.check(rosters)
            if site in checked:
                raise UserError(f"{file} and {checked[site].file} are both of the site {site}.")
            if path.is_dir():  # its ledger and models, not the certificate alone
                verify_run(path)
            checked[site] = certificate
    if len({certificate.statement.ledger_head for certificate in checked.values()}) < len(checked):
        raise UserError("two sites state the same ledger: one of them copied it.")
    newest = rosters[-1]
    took_part = {name for _, names in study.epochs(newest) for name in names}
    revoked = sorted(name for name in took_part - set(checked) if newest.site(name).revoked)
    missing = sorted(took_part - set(checked) - set(revoked))
    if missing:
        raise UserError(f"the certificate of {', '.join(missing)} is missing; name the files of all sites.")
    fingerprint = study.roster.fingerprint
    return [
        f"study {study.name}, version {study.version}, of the consortium {study.roster.consortium}: {len(checked)} "
        f"certificates, each signed by its site's key{'' if revoked else ', none missing'}",
        *(checked[site].line() for site in sorted(checked)),
        *(
            f"{name} was revoked and has no certificate here: what its records cost is not known"
            for name in revoked
        ),
        "the certificates alone were looked at: only the sites' run directories show whether their ledgers agree",
        "the authority is the one that was asked for"
        if authority is not None
        else f"whose consortium this is must be known from elsewhere; compare --authority {fingerprint}",
    ]


def guarantee(certificate: Mapping[str, Any], node: int) -> str:
    """Describe what a site's certificate proves."""
    c, proven = certificate, _of_node(certificate["epsilon_by_node"], node)["proven"]
    figure = f"proven ε ≤ {epsilon_text(proven)}" if proven is not None else "nothing is proven"
    conditions = f"δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}; observer: {c['observer']}"
    return f"{c['stamp'] + '; ' if c['stamp'] else ''}{figure} ({conditions})"


def _of_node(listed: Sequence[Any], node: int) -> Any:
    """Return a node's entry of a list of all nodes or of this one alone."""
    return listed[0] if len(listed) == 1 else listed[node]


class _Certificate:
    """One site's certificate in a study."""

    def __init__(self, file: Path, certificate: Mapping[str, Any], study: Study):
        self.file, self._certificate, self._study = file, certificate, study
        if SITE not in certificate:
            raise UserError(f"{file} is signed by no site; name certificates that `gossamer peer run` wrote.")
        try:
            self.statement = Statement.model_validate(certificate[SITE])
        except ValidationError:
            raise UserError(f"{file} is damaged: its {SITE!r} is not what a site signs.") from None

    def check(self, rosters: Sequence[Roster]) -> None:
        """Check the signature, and what the certificate states against the study and the rosters."""
        file, statement, certificate, study = self.file, self.statement, self._certificate, self._study
        name, node = statement.site, statement.node
        if statement.study != study.identity:
            raise UserError(f"{file} is of another study than {study.where}.")
        entries = [entry for roster in rosters for entry in roster.sites if entry.name == name]
        if not entries or study.first_epoch(rosters[-1], name) is None:
            shown, version = repr(printable(name, 40)), rosters[-1].version
            raise UserError(f"{file} is of {shown}, no site of the study by roster {version}; name --roster.")
        if not any(statement.is_signed_by(entry.public_key, certificate) for entry in entries):
            raise UserError(f"{file} is not what {name} signed with the key that the roster has of it.")
        planned = study.nodes_for(name).index(name)
        if node != planned:
            raise UserError(f"{file} states that {name} is node {node}; in the study it is {planned}.")
        if _of_node(certificate["ledger_heads"], node) != statement.ledger_head:
            raise UserError(f"{file} states another ledger in its certificate than {name} signed.")
        recipe = tomllib.loads(study.recipe)
        agreed = {
            "mode": recipe["mode"],
            "method": recipe["algorithm"]["kind"],
            "noise_source": recipe["privacy"]["noise"]["source"],
        }
        for key, value in agreed.items():
            if certificate.get(key) != value:
                shown = repr(certificate.get(key))
                raise UserError(f"{file} states {key} = {shown}, and the study asks for {value!r}.")
        rounds = certificate.get("rounds")  # that were run: fewer where a site was away, joined later or left
        if type(rounds) is not int or not 0 <= rounds <= recipe["rounds"]:
            raise UserError(f"{file} states rounds = {rounds!r}, and the study has {recipe['rounds']}.")
        records = [one["records"] for one in certificate["public_constants"] if one["node"] == node]
        if len(records) != 1 or records[0] not in {entry.records for entry in entries}:
            raise UserError(f"{file} states another number of records than {name} declared in the roster.")
        self._check_budget(recipe["privacy"].get("epsilon"))

    def _check_budget(self, epsilon: Any) -> None:
        """Refuse a site that proves a larger ε than was agreed upon."""
        c, node = self._certificate, self.statement.node
        if isinstance(epsilon, list):
            epsilon = epsilon[node] if node < len(epsilon) else None
        if epsilon is None or c["mode"] != "sound" or c["stamp"]:
            return
        proven = _of_node(c["epsilon_by_node"], node)["proven"]
        if proven is None or proven > epsilon * (1 + _TOLERANCE):
            raise UserError(f"{self.file} states {guarantee(c, node)}, and the study asks for {epsilon:g}.")

    def line(self) -> str:
        c, own = self._certificate, self.statement
        ledger = f"ledger {own.ledger_head[:16]}… of {own.events} events in {c['rounds']} rounds"
        line = f"{own.site}: {guarantee(c, own.node)}; {ledger}, signed on {day(own.at)}"
        return printable(line, len(line))
