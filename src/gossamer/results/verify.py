"""Verification of a run directory: its files against its certificate, and the certificate computed again.

Three answers of different strength: the certificate agrees with what the ledgers and models here say; the files are
those that the run's key signed; and, with an anchor that was published, it is this key and this certificate, and no
other one made up since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Any

import gossamer
from gossamer.accounting.chain import content
from gossamer.accounting.ledger import ledgers_in
from gossamer.accounting.recompute import NodeProof
from gossamer.errors import UserError
from gossamer.results.certificate import END, certificate_of, digests_of_files
from gossamer.results.pages import certificate_page
from gossamer.results.rundir import digest_of, manifest_digest, read_manifest, read_text
from gossamer.results.signatures import ADDED_LATER, KEY, check_signatures, read_certificate, signed_content

# Without these a run says the same: no figure is about them, and what needs one says that it is missing.
_MAY_BE_GONE = ("checkpoints/", "models", "average.", "frozen.", "model.json")
_ROUNDING = 1e-6  # relative: another machine's
_SHARPER = 1e-2  # relative: an upper bound may be stated so far above what a newer accountant proves


@dataclass(frozen=True)
class Verdict:
    """The checks that could be made; a disagreement is an error instead, or `broken` where a run is only shown."""

    certified: bool  # there is a certificate, and it is what the files here give
    # Nodes whose figures are only as stated: their ledgers are on other machines.
    elsewhere: tuple[int, ...] = ()
    signed: bool = False  # by this run's key, at its end
    unsigned_because: str | None = None
    anchored: bool = False
    broken: str | None = None
    models: bool = False  # those in the directory are the certificate's

    def sentences(self) -> list[str]:
        if self.broken is not None:
            return [f"this does not verify: {self.broken}"]
        if not self.certified:
            first = "all chains verify (no certificate with them: a cut tail would not show)"
        elif self.elsewhere:
            others = f"those of {len(self.elsewhere)} other nodes (from node {self.elsewhere[0]})"
            stated = "their figures are as stated by their ranks, or as planned for their sites"
            first = f"the ledgers here agree with the certificate; {others} are on other machines: {stated}"
        else:
            first = "all chains verify and agree with the certificate"
        second = "signed by the run's key" if self.signed else f"not signed: {self.unsigned_because}"
        return [first, second, *(["as published in the anchor"] if self.anchored else [])]


def look_at(run: Path) -> Verdict:
    """Verify a run that is only shown: what does not verify is in the verdict."""
    try:
        return verify_run(run) if lexists(run / "certificate.json") else verify_files(run)
    except UserError as error:
        return Verdict(certified=False, broken=str(error))


def verify_run(run: Path, anchor: str | None = None, proofs: Sequence[NodeProof] | None = None) -> Verdict:
    """Check the files, compute the certificate again and compare; raise a sentence where anything differs.

    `proofs`: the ledgers, if they were priced already.
    """
    verdict = verify_files(run, anchor)
    if not lexists(run / "certificate.json"):
        return verdict
    with malformed_as_user_error(run):
        path = run / "certificate.json"
        stated, due = read_certificate(path), certificate_of(run, proofs)
        models = due["digests"]["models"]
        # Of files that are gone there is nothing to compare; those that are here were.
        due["digests"]["files"] = stated["digests"]["files"]
        pairs = zip(stated["digests"]["models"], models, strict=True)
        due["digests"]["models"] = [known if here is None else here for known, here in pairs]
        if problem := next(differences(stated, due), None):
            version = stated["versions"]["gossamer"]
            made_by = "" if version == gossamer.__version__ else f" (made by gossamer {version:.20})"
            raise UserError(f"{path} {problem}{made_by}.")
        elsewhere = tuple(i for i, one in enumerate(due["epsilon_by_node"]) if "stated_by" in one)
        has_models = any(run.glob("models*.safetensors"))
        return replace(verdict, certified=True, elsewhere=elsewhere, models=has_models)


def verify_files(run: Path, anchor: str | None = None) -> Verdict:
    """Check what was signed, and price nothing: for commands that read many runs, or one that is not finished."""
    if not lexists(run / "manifest.json"):
        if anchor is not None:
            raise UserError(f"{run} has no manifest, so it is not the run of this anchor.")
        return Verdict(certified=False, unsigned_because="there is no manifest")
    with malformed_as_user_error(run):
        manifest = read_manifest(run)
        check_beginning(run, manifest)
        if anchor is not None:
            _check_anchor(run, anchor)
        anchored = anchor is not None
        if not lexists(run / "certificate.json"):
            if lexists(run / END) and not lexists(run / KEY):
                raise UserError(f"{run / 'certificate.json'} is missing, and the run had ended; put it back.")
            why = "the run has not ended, and signs its certificate when it does"
            return Verdict(certified=False, unsigned_because=why, anchored=anchored)
        certificate = read_certificate(run / "certificate.json")
        _check_end(run, manifest, certificate)
        left = lexists(run / KEY)
        reason = f"{KEY} is still there, and its holder can sign anything: remove it" if left else None
        return Verdict(True, signed=not left, unsigned_because=reason, anchored=anchored)


def check_beginning(run: Path, manifest: Mapping[str, Any]) -> None:
    """Raise unless the first files and every ledger belong to this manifest."""
    for name, known in manifest["files"].items():
        if not lexists(run / name) or digest_of(run / name) != known:
            raise UserError(f"{run / name} is not what the run began with; put it back.")
    own = manifest_digest(manifest)
    for path in ledgers_in(run).values():
        first, complete, _ = content(path).partition(b"\n")
        if complete and json.loads(first)["manifest"] != own:
            raise UserError(f"{path} belongs to another run than {run / 'manifest.json'}; put them back.")


def _check_end(run: Path, manifest: Mapping[str, Any], certificate: Mapping[str, Any]) -> None:
    path = run / "certificate.json"
    check_signatures(certificate, path)
    if certificate["key"] != manifest["key"]:
        raise UserError(f"{path} is signed by another key than {run / 'manifest.json'} names; put it back.")
    known, here = certificate["digests"]["files"], dict(digests_of_files(run))
    for name, digest in known.items():
        is_link_to_nothing = name not in here and lexists(run / name)
        if is_link_to_nothing or (name not in here and not name.startswith(_MAY_BE_GONE)):
            raise UserError(f"{run / name} is missing; put it back.")
        if here.get(name, digest) != digest:
            raise UserError(f"{run / name} is not what the run signed at its end; put it back.")
    if added := sorted(set(here) - set(known)):
        raise UserError(f"{run / added[0]} was not there when the run ended; remove it.")
    shown = run / "certificate.html"
    if lexists(shown) and read_text(shown) != certificate_page(dict(certificate)):
        raise UserError(f"{shown} does not show what {path} states; put it back or remove it.")


def differences(stated: Any, due: Any, where: str = "") -> Iterator[str]:
    """Yield a sentence for every field in which two certificates differ, except what is added after the end."""
    if isinstance(stated, dict) and isinstance(due, dict):
        for key in sorted({*stated, *due} - {*(ADDED_LATER if not where else ())}):
            name = f"{where}.{key}" if where else key
            if key not in stated or key not in due:
                yield f"{'lacks' if key in due else 'has an unknown'} {name}"
            else:
                yield from differences(stated[key], due[key], name)
    elif isinstance(stated, list) and isinstance(due, list) and len(stated) == len(due):
        for i, (one, other) in enumerate(zip(stated, due, strict=True)):
            yield from differences(one, other, f"{where}[{i}]")
    elif not _agree(stated, due, where):
        yield f"states {where} = {stated!r:.60} where the run directory gives {due!r:.60}"


def _agree(stated: Any, due: Any, where: str) -> bool:
    if type(stated) is not float or type(due) is not float:
        return type(stated) is type(due) and bool(stated == due)
    is_lower = where.endswith("lower")
    below = _SHARPER if is_lower else _ROUNDING
    above = _SHARPER if "epsilon" in where and not is_lower else _ROUNDING
    return due - abs(due) * below <= stated <= due + abs(due) * above


@contextmanager
def malformed_as_user_error(path: Path | str) -> Iterator[None]:
    """Turn what a file of an unknown author makes of our code into one sentence."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        what = f"a file does not hold what `gossamer run` writes ({type(error).__name__})"
        raise UserError(f"{path}: {what}.") from error


def anchor_of(run: Path) -> str:
    """Return one line to publish: it pins the run's key, and at its end the certificate."""
    manifest = read_manifest(run)
    path = run / "certificate.json"
    ended = hashlib.sha256(signed_content(read_certificate(path))).hexdigest() if lexists(path) else ""
    return ":".join(["gossamer", "1", manifest["run"], manifest["key"], ended])


def _check_anchor(run: Path, anchor: str) -> None:
    parts = anchor.strip().split(":")
    if len(parts) != 5 or parts[:2] != ["gossamer", "1"]:
        raise UserError(f"--anchor {anchor[:40]!r} is no line of `certificate anchor`; copy all of it.")
    *own, ended = anchor_of(run).split(":")
    if parts[:4] != own:
        raise UserError(f"{run} is not the run of this anchor: its name or its key is another; name the right one.")
    if parts[4] not in ("", ended):
        raise UserError(f"{run / 'certificate.json'} is not the certificate of this anchor; put it back.")
