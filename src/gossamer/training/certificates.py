"""`gossamer certificate verify` and `sign`: a certificate, checked against its run directory and its signatures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossamer.config.layers import stored
from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, of_its_own, relation, site_of
from gossamer.results.pages import certificate_page
from gossamer.results.rundir import RunDirectory, read_object
from gossamer.results.signatures import (
    KEY,
    SIGNATURES,
    check_signatures,
    read_certificate,
    read_private_key,
    read_public,
    signed,
)
from gossamer.results.verify import malformed_as_user_error, verify_run
from gossamer.results.words import day
from gossamer.training.budget import now
from gossamer.training.plan import Plan
from gossamer.training.views import network_figures

UNCHECKED = "what one node and an outsider learn is as the certificate states it: {}"
_CLOSE = 1e-3  # relative: figures of pairs are rounded up by less


def verify(path: Path, public_key: str | None = None) -> list[str]:
    """Return one sentence per check; raise a UserError where a check fails.

    A run directory is checked as a whole. A certificate alone can only be as good as who signed it.
    """
    wanted = None if public_key is None else read_public(public_key)
    if path.is_dir():
        file = path / "certificate.json"
        if not file.exists():
            raise UserError(f"{path} has no certificate.json; name a run that has ended.")
        lines, certificate = _run(path), read_certificate(file)
    else:
        file, certificate = path, read_object(path)
        if not certificate.get(SIGNATURES) and (site := site_of(certificate)) is not None:
            raise UserError(
                f"{path} is of the site {site} of a consortium, whose key is in the study's roster; name the study "
                "with --study, and the certificates of all its sites."
            )
        if not certificate.get(SIGNATURES):
            raise UserError(
                f"{path} is signed by no organisation, so nothing in it can be checked without its run directory; name "
                "that directory."
            )
        lines = ["the certificate alone was looked at: only its run directory shows whether the ledgers agree"]
    with malformed_as_user_error(file):
        lines = [_headline(certificate), *lines, *_signers(file, certificate, wanted)]
        if certificate.get("epsilon_audited") is not None or certificate.get("audit"):  # put in after the end
            lines.append("the audited figure is not signed: run the audit again")
        return lines


def sign(run: Path, key: Path, name: str) -> list[str]:
    """Put an organisation's signature under the certificate of a run that verifies; what is there now, in sentences."""
    private = read_private_key(key, Ed25519PrivateKey)
    if not run.is_dir():
        raise UserError(f"{run} is not a run directory; name one that `gossamer run` made.")
    verify(run)
    certificate = signed(read_certificate(run / "certificate.json"), private, name, now())
    directory = RunDirectory(run)
    # Stopped in between, no page is better than one that shows less than the certificate states.
    (run / "certificate.html").unlink(missing_ok=True)
    directory.write_json("certificate.json", certificate)
    directory.write_text("certificate.html", certificate_page(certificate))
    return _signers(run / "certificate.json", certificate, None)


def _run(run: Path) -> list[str]:
    verdict = verify_run(run)
    if not verdict.signed and (run / KEY).exists():
        raise UserError(f"{run} counts as unsigned: {verdict.unsigned_because}.")
    unchecked = check_network(run)
    models = "the models in the directory are those that the certificate is about" if verdict.models else None
    return [line for line in (*verdict.sentences(), models, unchecked) if line]


def _headline(c: Mapping[str, Any]) -> str:
    own, site = of_its_own(c), site_of(c)
    what = (
        f"proven ε ≤ {epsilon_text(own['epsilon_proven'])}"
        if own["epsilon_proven"] is not None
        else "nothing is proven"
    ) + (f" for {site}" if site else "")
    stamp = f"{c['stamp']}; " if c["stamp"] else ""
    line = f"run {c['run']}, issued on {day(c['issued'])}: {stamp}{what} ({relation(c)})"
    # Of a file that anybody may have made.
    return "".join(letter if letter.isprintable() else "�" for letter in line)


def _signers(file: Path, certificate: Mapping[str, Any], wanted: str | None) -> list[str]:
    signatures = check_signatures(certificate, file)
    keys = [one["key"] for one in signatures]
    if wanted is not None and wanted not in keys:
        by = f"by {', '.join(keys)}" if keys else "by nobody"
        raise UserError(f"{file} is not signed by the key {wanted}, but {by}.")
    lines = []
    for one in signatures:
        known = "the key that was asked for" if one["key"] == wanted else f"the key {one['key']}"
        lines.append(f"signed on {day(one['at'])} in the name of {one['signer']}, with {known}")
    site = site_of(certificate)
    if site is not None:
        lines.append(f"of the site {site}; its signature is checked with --study, on the certificates of all sites")
    if not signatures and site is None:
        lines.append("signed by no organisation")
    if signatures and wanted is None:
        lines.append("whose keys these are must be known from elsewhere; compare with --public-key")
    return lines


def check_network(run: Path) -> str | None:
    """A sentence where it could not be computed again, None where it agrees or nothing is stated."""
    path = run / "certificate.json"
    if not path.exists() or (certificate := read_object(path, "network"))["network"] is None:
        return None
    try:
        o = Plan.of(stored(run / "config.toml"), force=True)
    except UserError as error:
        return UNCHECKED.format(error)
    here = not any("stated_by" in one for one in certificate["epsilon_by_node"])
    due = _numbers(network_figures(o, run if here else None))
    stated = _numbers(certificate["network"])
    if len(due) != len(stated) or any(not math.isclose(a, b, rel_tol=_CLOSE) for a, b in zip(due, stated, strict=True)):
        raise UserError(f"{path} states other figures under 'network' than the ledgers have; put it back.")
    return None


def _numbers(figures: Any) -> list[float]:
    """Every number in it, in order; −1 where it is none."""
    if isinstance(figures, dict):
        return [n for key in sorted(figures) for n in _numbers(figures[key])]
    if isinstance(figures, list):
        return [n for item in figures for n in _numbers(item)]
    return [float(figures)] if type(figures) in (int, float) else [-1.0]
