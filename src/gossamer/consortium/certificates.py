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
from gossamer.results.certificate import epsilon_text, relation
from gossamer.results.rundir import read_object
from gossamer.results.signatures import SITE, signed_content
from gossamer.results.verify import malformed_as_user_error, verify_run
from gossamer.results.words import day

_DOMAIN = b"gossamer site certificate 1\n"  # a signature over a certificate is one over nothing else
_TOLERANCE = 1e-6  # relative: what a figure may be above another by rounding


class Statement(Strict):
    """A site's statement, which it signs together with its certificate."""

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
    statement = Statement(study=study.digest, site=site, node=node, at=at, **ledger)
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
    heads: dict[str, str] = {}  # by site: its ledger's
    lines = {}
    for path in paths:
        file = path / "certificate.json" if path.is_dir() else path
        with malformed_as_user_error(file):
            certificate = read_object(file)
            statement = _check(file, certificate, study, rosters)
            site = statement.site
            if site in lines:
                raise UserError(f"{file} is one more certificate of the site {site}; a site counts once.")
            if path.is_dir():  # its ledger and models, not the certificate alone
                verify_run(path)
            heads[site], lines[site] = statement.ledger_head, _describe(certificate, statement)
    if len(set(heads.values())) < len(heads):
        raise UserError("two sites state the same ledger; ask both for their own.")
    newest = rosters[-1]
    absent = {name for _, names in study.epochs(newest) for name in names} - set(lines)
    revoked = sorted(name for name in absent if newest.site(name).revoked)
    missing = sorted(absent - set(revoked))
    if missing:
        raise UserError(f"the certificate of {', '.join(missing)} is missing; name the files of all sites.")
    compare = f"know from elsewhere whose consortium this is; compare --authority {newest.fingerprint}"
    return [
        f"study {study.name}, version {study.version}, of the consortium {newest.consortium}: {len(lines)} "
        f"certificates, each signed by its site's key{'' if revoked else ', none missing'}",
        *(lines[site] for site in sorted(lines)),
        *(f"{name} was revoked and has no certificate here: its cost is not known" for name in revoked),
        "the certificates alone were looked at: only the sites' run directories show whether their ledgers agree",
        compare if authority is None else "the authority is the one that was asked for",
    ]


def guarantee(certificate: Mapping[str, Any], node: int) -> str:
    """Describe what a site's certificate proves."""
    c, proven = certificate, _of_node(certificate["epsilon_by_node"], node)["proven"]
    figure = f"proven ε ≤ {epsilon_text(proven)}" if proven is not None else "nothing is proven"
    return f"{c['stamp'] + '; ' if c['stamp'] else ''}{figure} ({relation(c)})"


def _of_node(listed: Sequence[Any], node: int) -> Any:
    """Return a node's entry of a list of all nodes or of this one alone."""
    return listed[0] if len(listed) == 1 else listed[node]


def _check(file: Path, certificate: Mapping[str, Any], study: Study, rosters: Sequence[Roster]) -> Statement:
    """Check the signature, and what the certificate states against the study and the rosters."""
    if SITE not in certificate:
        raise UserError(f"{file} is signed by no site; name certificates that `gossamer peer run` wrote.")
    try:
        statement = Statement.model_validate(certificate[SITE])
    except ValidationError:
        raise UserError(f"{file} is damaged: its {SITE!r} is not what a site signs; get it again.") from None
    name, node = statement.site, statement.node
    if statement.study != study.digest:
        raise UserError(f"{file} is of another study than {study.where}; name the right one.")
    entries = [entry for roster in rosters for entry in roster.sites if entry.name == name]
    if not entries or study.first_epoch(rosters[-1], name) is None:
        shown, version = repr(printable(name, 40)), rosters[-1].version
        raise UserError(f"{file} is of {shown}, not a site of the study by roster {version}; name --roster.")
    if not any(statement.is_signed_by(entry.public_key, certificate) for entry in entries):
        raise UserError(f"{file} is not what {name} signed with its key in the roster; get it again.")
    recipe = tomllib.loads(study.recipe)
    expected = {
        "mode": recipe["mode"],
        "method": recipe["algorithm"]["kind"],
        "noise_source": recipe["privacy"]["noise"]["source"],
        "node": study.nodes_for(name).index(name),
        "ledger_head": _of_node(certificate["ledger_heads"], node),
    }
    for key, value in expected.items():
        stated = getattr(statement, key) if key in ("node", "ledger_head") else certificate.get(key)
        if stated != value:
            raise UserError(f"{file} states {key} = {stated!r}, and {value!r} would be right for {name}.")
    rounds = certificate.get("rounds")  # that were run: fewer where a site was away, joined later or left
    if type(rounds) is not int or not 0 <= rounds <= recipe["rounds"]:
        raise UserError(f"{file} states rounds = {rounds!r}, and the study has {recipe['rounds']}.")
    records = [one["records"] for one in certificate["public_constants"] if one["node"] == node]
    if len(records) != 1 or records[0] not in {entry.records for entry in entries}:
        raise UserError(f"{file} states another number of records than {name} declared in the roster.")
    epsilon = recipe["privacy"].get("epsilon")
    if isinstance(epsilon, list):
        epsilon = epsilon[node] if node < len(epsilon) else None
    if epsilon is not None and certificate["mode"] == "sound" and not certificate["stamp"]:
        proven = _of_node(certificate["epsilon_by_node"], node)["proven"]
        if proven is None or proven > epsilon * (1 + _TOLERANCE):
            raise UserError(f"{file} states {guarantee(certificate, node)}; the study asks for {epsilon:g}.")
    return statement


def _describe(certificate: Mapping[str, Any], statement: Statement) -> str:
    events = f"{statement.events} events in {certificate['rounds']} rounds"
    ledger = f"ledger {statement.ledger_head[:16]}… of {events}, signed on {day(statement.at)}"
    line = f"{statement.site}: {guarantee(certificate, statement.node)}; {ledger}"
    return printable(line, len(line))
