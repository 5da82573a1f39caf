"""Whether a run's certificate says what its ledgers say, and whether its files are those that the run signed.

Three answers, each with its own strength: what was recomputed from the ledgers here; what the run's key signed; and,
with an anchor that was published earlier, that it is this key and these seals, and no others made up since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import content, digest
from gossamer.accounting.ledger import ledger_paths, ledgers_in, read_ledger
from gossamer.accounting.recompute import NodeProof, recompute
from gossamer.errors import UserError
from gossamer.results import seals
from gossamer.results.certificate import ADDED_LATER
from gossamer.results.files import digest_of, digest_of_object, read_metrics, read_object, read_text
from gossamer.results.pages import certificate_page
from gossamer.results.rundir import finite, ledgers_here, read_manifest
from gossamer.results.signatures import check_signatures
from gossamer.results.stated import compare_figures
from gossamer.results.stated_facts import compare_facts

_STATED = (
    "epsilon_claimed", "epsilon_proven", "epsilon_proven_lower", "epsilon_by_node", "not_proven_because", "delta",
    "adjacency", "unit", "observer", "noise_source", "stamp", "public_constants", "draws", "ledger_heads", "versions",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What could be checked; whatever does not agree is an error instead, or `broken` where a run is only shown."""

    certified: bool  # there is a certificate, and it says of the ledgers here what they say
    elsewhere: tuple[int, ...] = ()  # nodes whose figures are only as stated: their ledgers lie elsewhere
    signed: bool = False  # by this run's key, at its end
    unsigned_because: str | None = None
    anchored: bool = False
    behind: int = 0  # events behind the last signed head
    broken: str | None = None
    models: bool = False  # those in the directory are the certificate's

    def sentences(self) -> list[str]:
        if self.broken is not None:
            return [f"this does not verify: {self.broken}"]
        if not self.certified:
            first = "all chains verify (no certificate beside them: a cut tail would not show)"
        elif self.elsewhere:
            first = (
                f"the ledgers here verify and agree with the certificate; those of {len(self.elsewhere)} other nodes "
                f"(from node {self.elsewhere[0]}) lie on other machines: their figures are as stated by their ranks, "
                "or as planned for their sites"
            )
        else:
            first = "all chains verify and agree with the certificate"
        second = "signed by the run's key" if self.signed else f"not signed: {self.unsigned_because}"
        third = ["as published in the anchor"] if self.anchored else []
        return [first, second, *third]


def look_at(run: Path) -> Verdict:
    """For whatever only shows a run: what `plan --ledger` would say, and what does not verify as a sentence to show."""
    try:
        ended = _there(run / "certificate.json")
        # Of one that goes on a line may be half written: what was signed is compared, and nothing priced.
        return verify_run(run, recompute(run)) if ended else verify_files(run)
    except UserError as error:
        return Verdict(certified=False, broken=str(error))


def verify_run(run: Path, proofs: Sequence[NodeProof], anchor: str | None = None) -> Verdict:
    """Compare all that a run directory states; raises a sentence where anything differs."""
    with whatever_it_holds(run):
        manifest = read_manifest(run) if _there(run / "manifest.json") else None
        certificate = read_certificate(run) if _there(run / "certificate.json") else None
        _same_key(run, manifest, {proof.path: proof.header for proof in proofs})
        elsewhere = compare_figures(run, certificate, manifest, proofs) if certificate is not None else ()
        models = certificate is not None and compare_facts(run, certificate, manifest)
        return replace(_signed(run, manifest, certificate, elsewhere, anchor), models=models)


def verify_files(run: Path) -> Verdict:
    """What was signed alone, without pricing anything: for those who read many runs, or one that goes on."""
    with whatever_it_holds(run):
        certificate = read_certificate(run) if _there(run / "certificate.json") else None
        manifest = read_manifest(run)
        due = ledger_paths(run, ledgers_here(manifest)).values()
        ledgers = sorted({*due, *ledgers_in(run).values()})
        _same_key(run, manifest, {path: _header(path) for path in ledgers})
        return _signed(run, manifest, certificate)


@contextmanager
def whatever_it_holds(run: Path) -> Iterator[None]:
    """A directory of others' is data: what no run of this program writes, signed or not, is a sentence as well."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(
            f"{run}: a file does not hold what `gossamer run` writes ({type(error).__name__})."
        ) from error


def _signed(
    run: Path,
    manifest: Mapping[str, Any] | None,
    certificate: Mapping[str, Any] | None,
    elsewhere: tuple[int, ...] = (),
    anchor: str | None = None,
) -> Verdict:
    if certificate is not None:
        check_signatures(certificate, run / "certificate.json")
    if manifest is None or "key" not in manifest:
        if anchor is not None:
            raise UserError(f"{run} is not signed, so no anchor was ever made of it: it is another run.")
        why = "there is no manifest" if manifest is None else "it was begun before runs had keys"
        return Verdict(certificate is not None, elsewhere, unsigned_because=why)
    found, _, _ = seals.read_seals(run, manifest["run"], manifest["key"], lenient=certificate is None)
    check_sealed(run, manifest, found)
    if anchor is not None:
        _check_anchor(run, manifest, anchor)
    because, behind = None, _behind(run, manifest, found[-1])
    if certificate is None:
        because = f"the run has not ended; its last seal is of round {found[-1].get('round')}"
        if behind:
            because += f", and {behind} events behind it are chained but not signed: cut off, they would not be missed"
        if found[-1]["kind"] == seals.END and not _there(run / seals.KEY):
            raise UserError(f"{run / 'certificate.json'} is missing, and the run had signed it; put it back.")
    else:
        _check_end(run, certificate, found)
        if behind:
            raise UserError(
                f"{run} has {behind} events more in its ledgers than were signed at the run's end."
            )
        if _there(run / seals.KEY):
            because = f"{seals.KEY} is still there, and who has it can sign anything: remove it"
    return Verdict(
        certificate is not None,
        elsewhere,
        because is None,
        because,
        anchored=anchor is not None,
        behind=behind,
    )


def _behind(run: Path, manifest: Mapping[str, Any], last: Mapping[str, Any]) -> int:
    """Events of all ledgers here that no seal has seen."""
    ledgers = ledgers_here(manifest)
    sealed = seals.counts(last, ledgers) if last["kind"] != seals.BEGIN else dict.fromkeys(ledgers, 0)
    paths = ledger_paths(run, ledgers)
    return sum(_events_behind(paths[one], sealed[one]) for one in ledgers)


def _events_behind(path: Path, sealed: int) -> int:
    """Count the events of one ledger in whole lines behind those that were sealed."""
    lines = content(path).count(b"\n") - 1
    if lines <= sealed:
        return 0
    return sum(line.node_count for line in read_ledger(path, lenient=True).lines[sealed:])


def read_certificate(run: Path) -> dict[str, Any]:
    """Of a finished run, with all that it has to state."""
    return certificate_in(run / "certificate.json")


def certificate_in(file: Path) -> dict[str, Any]:
    """One that was handed over, too."""
    return read_object(file, *_STATED)


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
    ledgers, later = ledgers_here(manifest), found[1:]
    hashes = {
        nodes: _line_hashes(path, later, ledgers, nodes)
        for nodes, path in ledger_paths(run, ledgers).items()
        if later
    }
    for one in later:
        counts = seals.counts(one, ledgers)
        if seals.heads_digest([hashes[nodes][counts[nodes]] for nodes in ledgers]) != one["heads"]:
            raise UserError(
                f"the ledgers of {run} no longer hold what was signed after round {one['round']}."
            )


def _line_hashes(
    path: Path, found: Sequence[Mapping[str, Any]], ledgers: Sequence[range], nodes: range
) -> dict[int, str]:
    """Number of lines → the hash of the last of them, for the numbers that were sealed."""
    lines = content(path).removesuffix(b"\n").split(b"\n")
    wanted = {seals.counts(one, ledgers)[nodes]: one["round"] for one in found}
    missing = next((count for count in sorted(wanted) if count >= len(lines)), None)
    if missing is not None:
        raise UserError(
            f"{path} no longer holds the {missing} lines that were signed after round {wanted[missing]}: "
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
    if read_text(shown) != certificate_page(certificate):
        raise UserError(
            f"{shown} does not show what {run / 'certificate.json'} states; put it back or remove it."
        )


def _header(path: Path) -> dict[str, Any]:
    """A ledger's first line."""
    try:
        found = json.loads(content(path).partition(b"\n")[0])
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} line 1 is damaged: it is not JSON.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} line 1 is damaged: it is not an object.")
    return found


def _same_key(
    run: Path, manifest: Mapping[str, Any] | None, headers: Mapping[Path, Mapping[str, Any]]
) -> None:
    """A ledger says which run it belongs to and by which key that signs; so must the manifest."""
    for path, header in headers.items():
        for key in ("run", "nonce", "key"):
            if key in header and (manifest is None or manifest.get(key) != header[key]):
                raise UserError(
                    f"{path} belongs to another run than {run / 'manifest.json'}: its {key!r} differs; put them back "
                    "together."
                )
            if manifest is not None and "key" in manifest and key not in header:
                raise UserError(f"{path} does not say which run it belongs to.")


def _there(path: Path) -> bool:
    """Also where it is a link to nothing: then reading it says so."""
    return path.is_symlink() or path.exists()
