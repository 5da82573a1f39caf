"""Whether a run's certificate says what its ledgers say, and whether its files are those that the run signed.

Three answers, each with its own strength: what was recomputed from the ledgers here; what the run's key signed; and,
with an anchor that was published earlier, that it is this key and these seals, and no others made up since.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import content, digest
from gossamer.accounting.ledger import node_path
from gossamer.accounting.ledger import verify as verify_ledger
from gossamer.accounting.observers import against_all
from gossamer.accounting.recompute import NodeProof
from gossamer.errors import UserError
from gossamer.results import seals
from gossamer.results.certificate import SEEDED
from gossamer.results.certificate_page import page
from gossamer.results.files import digest_of, digest_of_object, read_metrics, read_object, read_text
from gossamer.results.rundir import finite, read_manifest
from gossamer.results.stated_observers import compare_by_observer

# An audit puts its figures into the certificate of a run that has ended, so that nobody can sign them.
ADDED_LATER = ("epsilon_audited", "violation", "violated", "audit")
_BELOW = 1e-6  # relative: another machine's rounding
_ABOVE = 1e-2  # relative: an accountant that has become a little sharper since
_STATED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_proven_lower", "epsilon_by_node", "not_proven_because", "delta",
    "adjacency", "unit", "observer", "noise_source", "stamp", "public_constants", "draws", "ledger_heads", "versions",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What could be checked; whatever does not agree is an error instead."""

    certified: bool  # there is a certificate, and it says of the ledgers here what they say
    elsewhere: tuple[
        int, ...
    ] = ()  # nodes whose figures are only as stated: their ledgers lie on other machines
    signed: bool = False  # by this run's key, at its end
    unsigned_because: str | None = None
    anchored: bool = False

    def sentences(self) -> list[str]:
        if not self.certified:
            first = "all chains verify (no certificate beside them: a cut tail would not show)"
        elif self.elsewhere:
            first = (
                f"the ledgers here verify and agree with the certificate; those of {len(self.elsewhere)} other nodes "
                f"(from node {self.elsewhere[0]}) lie on other machines: their figures are as stated by their ranks"
            )
        else:
            first = "all chains verify and agree with the certificate"
        second = "signed by the run's key" if self.signed else f"not signed: {self.unsigned_because}"
        third = ["as published in the anchor"] if self.anchored else []
        return [first, second, *third]


def verify_run(ledgers: Path, proofs: Sequence[NodeProof], anchor: str | None = None) -> Verdict:
    """Of the run whose ledgers these are; raises a sentence where anything differs."""
    run = ledgers.parent
    manifest = read_manifest(run) if _there(run / "manifest.json") else None
    certificate = read_certificate(run) if _there(run / "certificate.json") else None
    _same_key(run, manifest, proofs)
    elsewhere = _figures(ledgers, certificate, manifest, proofs) if certificate is not None else ()
    if manifest is None or "key" not in manifest:
        if anchor is not None:
            raise UserError(f"{run} is not signed, so no anchor was ever made of it: it is another run.")
        why = "there is no manifest" if manifest is None else "it was begun before runs had keys"
        return Verdict(certificate is not None, elsewhere, unsigned_because=why)
    found, _, _ = seals.read_seals(run, manifest["run"], manifest["key"], lenient=certificate is None)
    check_sealed(run, manifest, found)
    if anchor is not None:
        _check_anchor(run, manifest, anchor)
    because = None
    if certificate is None:
        because = "the run has not ended"
        if found[-1]["kind"] == seals.END and not _there(run / seals.KEY):
            raise UserError(f"{run / 'certificate.json'} is missing, and the run had signed it; put it back.")
    else:
        _check_end(run, certificate, found)
        if _there(run / seals.KEY):
            because = f"{seals.KEY} is still there, and who has it can sign anything: remove it"
    return Verdict(certificate is not None, elsewhere, because is None, because, anchored=anchor is not None)


def read_certificate(run: Path) -> dict[str, Any]:
    """Of a finished run, with all that it has to state."""
    return read_object(run / "certificate.json", *_STATED)


def end_digests(run: Path, certificate: Mapping[str, Any]) -> dict[str, str]:
    """What the last seal says besides the ledgers."""
    said = json.loads(json.dumps(finite(dict(certificate))))
    return {
        "certificate": digest_of_object(said, without=ADDED_LATER),
        "metrics": _digest_if_there(run / "metrics.jsonl"),
        "page": _digest_if_there(run / "certificate.html"),
    }


def _digest_if_there(path: Path) -> str:
    return digest_of(path) if _there(path) else ""


def check_sealed(run: Path, manifest: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> None:
    """What every seal saw is still there: the first files, the ledgers up to there, the checkpoints that are left."""
    if not found or found[0].get("kind") != seals.BEGIN:
        raise UserError(f"{run / seals.SEALS} does not begin with the run's first seal: lines were cut off.")
    if found[0].get("manifest") != digest_of_object(dict(manifest), without=("resumed",)):
        raise UserError(f"{run / 'manifest.json'} is not what the run had signed when it began; put it back.")
    for name, known in found[0]["files"].items():
        if not _there(run / name) or digest_of(run / name) != known:
            raise UserError(f"{run / name} is not what the run had signed when it began; put it back.")
    nodes, later = sorted(manifest.get("ledgers_here", [])), found[1:]
    hashes = {
        node: _line_hashes(node_path(run / "ledger", node), later, nodes, node) for node in nodes if later
    }
    for one in later:
        counts = seals.counts(one, nodes)
        if seals.heads_digest([hashes[node][counts[node]] for node in nodes]) != one["heads"]:
            raise UserError(f"{run / 'ledger'} no longer holds what was signed after round {one['round']}.")


def _line_hashes(
    path: Path, found: Sequence[Mapping[str, Any]], nodes: Sequence[int], node: int
) -> dict[int, str]:
    """Number of events → the hash of the last of them, for the numbers that were sealed."""
    lines = content(path).removesuffix(b"\n").split(b"\n")
    wanted = {seals.counts(one, nodes)[node]: one["round"] for one in found}
    missing = next((count for count in sorted(wanted) if count >= len(lines)), None)
    if missing is not None:
        raise UserError(
            f"{path} no longer holds the {missing} events that were signed after round {wanted[missing]}: "
            "its tail was cut off."
        )
    return {count: digest(lines[count] + b"\n") for count in wanted}


def anchor_of(run: Path) -> str:
    """One line to publish: it pins the run's key and all that it has signed so far."""
    manifest = read_manifest(run)
    if "key" not in manifest:
        raise UserError(f"{run} was begun before runs had keys; there is nothing signed to publish.")
    found, head, _ = seals.read_seals(run, manifest["run"], manifest["key"], lenient=True)
    check_sealed(run, manifest, found)
    return ":".join(
        ["gossamer", "1", manifest["run"], manifest["nonce"], manifest["key"], str(len(found)), head]
    )


def _check_anchor(run: Path, manifest: Mapping[str, Any], anchor: str) -> None:
    parts = anchor.strip().split(":")
    if len(parts) != 7 or parts[:2] != ["gossamer", "1"] or not parts[5].isdecimal():
        raise UserError(
            f"--anchor {anchor[:40]!r} is not a line that `gossamer certificate anchor` printed; copy all of it."
        )
    if parts[2:5] != [manifest["run"], manifest["nonce"], manifest["key"]]:
        raise UserError(f"{run} is not the run of this anchor: its name or its key is another.")
    lines, number = content(run / seals.SEALS).split(b"\n"), int(parts[5])
    if number >= len(lines) - 1 or digest(lines[number] + b"\n") != parts[6]:
        raise UserError(f"{run / seals.SEALS} no longer holds the {number} seals of this anchor.")


def _check_end(run: Path, certificate: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> None:
    if found[-1].get("kind") != seals.END:
        raise UserError(f"{run / seals.SEALS} does not end with the run's last seal: lines were cut off.")
    now = end_digests(run, certificate)
    for name, key in (("certificate.json", "certificate"), ("metrics.jsonl", "metrics")):
        if found[-1].get(key) != now[key]:
            raise UserError(f"{run / name} is not what the run had signed at its end; put it back.")
    files = {name: known for one in found[1:] for name, known in one["files"].items()}
    for name, known in files.items():
        # One that is gone is missed by nobody: the next made it superfluous, or the run's end did.
        if _there(run / name) and digest_of(run / name) != known:
            raise UserError(f"{run / name} is not what the run had signed; put it back or remove it.")
    read_metrics(run / "metrics.jsonl", to_the_end=True)
    if now["page"] != found[-1].get("page"):
        _check_page(run, certificate)


def _check_page(run: Path, certificate: Mapping[str, Any]) -> None:
    """certificate.html is drawn from certificate.json; an audit draws it again, with its figures."""
    shown = run / "certificate.html"
    if not _there(shown):
        return  # nothing reads it
    found = read_text(shown)
    name = html.unescape(found.partition("<p>")[2].partition("</p>")[0])
    if found != page(dict(certificate), name):
        raise UserError(
            f"{shown} does not show what {run / 'certificate.json'} states; put it back or remove it."
        )


def _same_key(run: Path, manifest: Mapping[str, Any] | None, proofs: Sequence[NodeProof]) -> None:
    """A ledger says which run it belongs to and by which key that signs; so must the manifest."""
    for proof in proofs:
        for key in ("run", "nonce", "key"):
            if key in proof.header and (manifest is None or manifest.get(key) != proof.header[key]):
                raise UserError(
                    f"{node_path(run / 'ledger', proof.node)} belongs to another run than {run / 'manifest.json'}: "
                    f"its {key!r} differs; put them back together."
                )
            if manifest is not None and "key" in manifest and key not in proof.header:
                raise UserError(
                    f"{node_path(run / 'ledger', proof.node)} does not say which run it belongs to."
                )


def _figures(
    ledgers: Path,
    certificate: Mapping[str, Any],
    manifest: Mapping[str, Any] | None,
    proofs: Sequence[NodeProof],
) -> tuple[int, ...]:
    """Every stated figure against the ledgers; the nodes whose ledgers lie elsewhere come back."""
    c = _Stated(ledgers.parent / "certificate.json", certificate)
    n = c.length("draws", "ledger_heads", "epsilon_by_node", "public_constants")
    here = sorted(set(range(n) if manifest is None else manifest.get("ledgers_here", range(n))))
    if not here or here[-1] >= n:
        raise UserError(
            f"{ledgers.parent / 'manifest.json'} is damaged: its 'ledgers_here' names no node of the run."
        )
    by_node = {proof.node: proof for proof in proofs}
    for node in here:
        if node not in by_node:
            raise UserError(f"{node_path(ledgers, node)} is missing, and the certificate is about it.")
        path = node_path(ledgers, node)
        verify_ledger(path, head=certificate["ledger_heads"][node], count=certificate["draws"][node])
        _node(c, node, by_node[node])
    if strange := sorted(set(by_node) - set(here)):
        raise UserError(
            f"{node_path(ledgers, strange[0])} is of no node whose ledger this run keeps here; remove it."
        )
    elsewhere = tuple(sorted(set(range(n)) - set(here)))
    c.same("observer", against_all(p.observer for p in proofs).describe(), certificate["observer"])
    deltas = [by_node[node].header["delta"] for node in here]
    if certificate["delta"] != max(deltas) and not (elsewhere and c.number("delta") > max(deltas)):
        raise c.differs("delta", certificate["delta"], max(deltas))
    proven = [
        c.epsilon(f"epsilon_by_node[{i}].proven", c.entry("epsilon_by_node", i).get("proven"))
        for i in range(n)
    ]
    c.same("epsilon_proven", max(proven), c.epsilon("epsilon_proven", certificate["epsilon_proven"]))
    claims = [c.entry("epsilon_by_node", i).get("claimed") for i in range(n)]
    known = [claim for claim in claims if claim is not None]
    c.same("epsilon_claimed", max(known) if known else None, certificate["epsilon_claimed"])
    if (certificate["not_proven_because"] is None) != math.isfinite(max(proven)):
        raise c.differs(
            "not_proven_because", certificate["not_proven_because"], "a reason where ε = ∞, only there"
        )
    worst = max(proofs, key=lambda p: p.proven.epsilon)
    if not elsewhere:
        c.close("epsilon_proven_lower", worst.proven.lower, certificate["epsilon_proven_lower"])
        c.same("not_proven_because", worst.proven.because, certificate["not_proven_because"])
    compare_by_observer(c, proofs, elsewhere)
    return elsewhere


def _node(c: _Stated, node: int, proof: NodeProof) -> None:
    header, entry = proof.header, c.entry("epsilon_by_node", node)
    if header.get("node") != node:
        raise UserError(
            f"{c.path.parent / 'ledger'} holds the ledger of node {header.get('node')!r} as node {node}'s."
        )
    c.close(f"epsilon_by_node[{node}].proven", proof.proven.epsilon, c.epsilon("proven", entry.get("proven")))
    for key in ("adjacency", "unit"):
        c.same(key, header[key], c.stated[key])
    seeded = header["noise"] == SEEDED
    c.same("stamp", SEEDED if seeded else None, c.stated["stamp"])
    c.same("noise_source", "seeded" if seeded else "system", c.stated["noise_source"])
    public = c.entry("public_constants", node)
    for key, value in header.get("public", {}).items():
        c.same(f"public_constants[{node}].{key}", value, public.get(key))


class _Stated:
    """A certificate's figures beside what they should be."""

    def __init__(self, path: Path, stated: Mapping[str, Any]):
        self.path, self.stated = path, stated

    def damaged(self, key: str) -> UserError:
        return UserError(f"{self.path} is damaged: its {key!r} is not what a certificate has there.")

    def differs(self, key: str, stated: Any, found: Any) -> UserError:
        return UserError(f"{self.path} states {key} = {stated!r:.60} where the ledgers say {found!r:.60}.")

    def length(self, *keys: str) -> int:
        """Of lists with an entry per node."""
        for key in keys:
            if not isinstance(self.stated[key], list) or len(self.stated[key]) != len(self.stated[keys[0]]):
                raise self.damaged(key)
        return len(self.stated[keys[0]])

    def entry(self, key: str, node: int) -> dict[str, Any]:
        found = self.stated[key][node]
        if not isinstance(found, dict):
            raise self.damaged(f"{key}[{node}]")
        return found

    def number(self, key: str) -> float:
        found = self.stated[key]
        if type(found) not in (int, float):
            raise self.damaged(key)
        return float(found)

    def epsilon(self, key: str, value: Any) -> float:
        """JSON has no infinity."""
        if value is None:
            return math.inf
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.damaged(key)
        return float(value)

    def same(self, key: str, found: Any, stated: Any) -> None:
        if type(found) is not type(stated) and not {type(found), type(stated)} <= {int, float}:
            raise self.differs(key, stated, found)
        if found != stated:
            raise self.differs(key, stated, found)

    def close(self, key: str, found: float | None, stated: Any) -> None:
        """Never below what was found; above it only where an earlier program proved a little more."""
        if found is None or stated is None or math.isinf(found):
            self.same(key, found, stated)
            return
        if type(stated) not in (int, float) or not (
            found * (1 - _BELOW) - 1e-12 <= stated <= found * (1 + _ABOVE) + 1e-12
        ):
            raise self.differs(key, stated, found)


def _there(path: Path) -> bool:
    """Also where it is a link to nothing: then reading it says so."""
    return path.is_symlink() or path.exists()
