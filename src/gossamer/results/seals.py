"""Signatures over what a run has on file: `seals.jsonl`, made with a key that lives as long as the run.

The key (Ed25519) is made when a run begins. Its public half stands in the manifest, in every ledger's first line and in
the certificate; the private half is the file `run.key`, its owner's alone, so that a stopped run can go on, and is
removed when the run has ended. From then on nobody can sign anything more in this run's name: who changes, cuts or
extends a file afterwards cannot make the seals fit. What that does not show stands in docs/tampering.md.

A seal says how many events every ledger here had (of one that nodes have together: how many lines) and what they hash
to, and which files were there with which content.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gossamer.accounting.chain import digest, open_to_append, parse_chain, write_line
from gossamer.errors import UserError
from gossamer.results.files import read_bytes

KEY, SEALS = "run.key", "seals.jsonl"
VERSION = 1
BEGIN, CHECKPOINT, STOPPED, RESUMED, END = "begin", "checkpoint", "stopped", "resumed", "end"
_DOMAIN = b"gossamer seal 1\n"  # a signature over a seal is one over nothing else

Heads = Mapping[
    int, tuple[int, str]
]  # first node of a ledger → lines behind its first, and the last one's hash


class Sealer:
    """Who can still sign: the first process of a machine, while its run goes on."""

    def __init__(self, directory: Path, run: str, key: Ed25519PrivateKey, head: str, number: int):
        self._directory, self._run, self._key = directory, run, key
        self._head, self._number = head, number

    @classmethod
    def create(cls, directory: Path, run: str) -> Sealer:
        key = Ed25519PrivateKey.generate()
        _write_new(directory / KEY, key.private_bytes_raw().hex().encode() + b"\n", 0o600)
        first = {"version": VERSION, "kind": "seals", "run": run, "key": public_half(key)}
        line = json.dumps(first).encode() + b"\n"
        _write_new(directory / SEALS, line, 0o644)
        return cls(directory, run, key, digest(line), 0)

    @classmethod
    def resume(cls, directory: Path, run: str, public: str) -> Sealer:
        """Of a run that was stopped. A seal within which it was stopped is cut off: it was none."""
        path = directory / KEY
        try:
            key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(read_bytes(path).decode().strip()))
        except ValueError as error:
            if isinstance(error, UserError) and path.exists():
                raise
            raise UserError(
                f"{path} is missing or damaged; without the key a run that had begun cannot go on: run it anew."
            ) from None
        if public_half(key) != public:
            raise UserError(f"{path} is not the key that {directory / 'manifest.json'} names; put it back.")
        seals, head, rest = read_seals(directory, run, public, lenient=True)
        if rest:
            os.truncate(directory / SEALS, (directory / SEALS).stat().st_size - len(rest))
        return cls(directory, run, key, head, len(seals))

    @property
    def public(self) -> str:
        return public_half(self._key)

    @property
    def made(self) -> int:
        """Seals so far."""
        return self._number

    def seal(
        self, kind: str, done: int, ledgers: Heads, files: Mapping[str, str], **more: str | None
    ) -> None:
        """Append a seal after `done` rounds; `files`: name → digest, `more`: other digests."""
        said = {
            "number": self._number,
            "run": self._run,
            "kind": kind,
            "round": done,
            "events": _short([ledgers[node][0] for node in sorted(ledgers)]),
            "heads": heads_digest([ledgers[node][1] for node in sorted(ledgers)]),
            "files": dict(files),
            **more,
        }
        text = json.dumps(said)
        signature = self._key.sign(_DOMAIN + text.encode()).hex()
        line = f'{text[:-1]},"signature":"{signature}","prev":"{self._head}"}}\n'.encode()
        fd = open_to_append(self._directory / SEALS)
        try:
            write_line(fd, line, sync=True)
        finally:
            os.close(fd)
        self._head, self._number = digest(line), self._number + 1

    def mark(self, secret: str) -> str:
        """Of a secret: tells whether it is still the same, to who has the key; to everyone else, nothing."""
        return hmac.new(self._key.private_bytes_raw(), b"records\n" + secret.encode(), "sha256").hexdigest()

    def destroy(self) -> None:
        """The run has ended: its key is gone, so that nothing more can be signed."""
        remove_key(self._directory)


def remove_key(directory: Path) -> None:
    (directory / KEY).unlink(missing_ok=True)


def read_seals(
    directory: Path, run: str, public: str, *, lenient: bool = False
) -> tuple[list[dict[str, Any]], str, bytes]:
    """(seals, hash of the last line, torn rest), every signature checked by the public half."""
    path = directory / SEALS
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    except (ValueError, TypeError):
        raise UserError(f"{directory / 'manifest.json'} is damaged: its 'key' is not a public key.") from None
    header, seals, head, rest = parse_chain(
        path, read_bytes(path), lenient=lenient, what="seal", version=VERSION, read=_reader(key)
    )
    if (header.get("kind"), header.get("run"), header.get("key")) != ("seals", run, public):
        raise UserError(f"{path} belongs to another run than {directory / 'manifest.json'}; put them back.")
    for number, one in enumerate(seals):
        if (one["number"], one["run"]) != (number, run):
            raise UserError(f"{path} line {number + 2} is not where it was signed: a line was cut or moved.")
    return seals, head, rest


def _reader(key: Ed25519PublicKey) -> Any:
    def read(payload: bytes) -> dict[str, Any]:
        text, mark, signature = payload.rpartition(b',"signature":"')
        if not mark or not signature.endswith(b'"'):
            raise ValueError("it is not signed")
        try:
            key.verify(bytes.fromhex(signature[:-1].decode()), _DOMAIN + text + b"}")
        except InvalidSignature:
            raise ValueError("it was not signed by this run's key") from None
        found = json.loads(text + b"}")
        if not isinstance(found, dict) or not _is_seal(found):
            raise ValueError("it is not a seal")
        return found

    return read


def _is_seal(found: Mapping[str, Any]) -> bool:
    """A signature says who wrote it, not that he wrote what this program does."""
    kinds = {"number": int, "run": str, "kind": str, "round": int, "heads": str, "files": dict}
    if any(type(found.get(key)) is not kind for key, kind in kinds.items()):
        return False
    events, files = found.get("events"), found["files"]
    counted = events if isinstance(events, list) else [events]
    named = all(type(known) is str and not {"..", "/"} & {*Path(name).parts} for name, known in files.items())
    return named and all(type(count) is int and count >= 0 for count in counted)


def counts(seal: Mapping[str, Any], ledgers: Sequence[range]) -> dict[range, int]:
    """ledger → lines that it sealed; the ledgers in their order."""
    events = seal["events"]
    each = [events] * len(ledgers) if isinstance(events, int) else events
    if len(each) != len(ledgers):
        raise UserError(
            f"the seal of round {seal['round']} is about {len(each)} ledgers, and {len(ledgers)} are here."
        )
    return dict(zip(ledgers, each, strict=True))


def heads_digest(heads: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(heads).encode()).hexdigest()


def public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def _short(events: list[int]) -> int | list[int]:
    """One number where all nodes have as many."""
    return events[0] if events and len(set(events)) == 1 else events


def _write_new(path: Path, content: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, mode)
    try:
        write_line(fd, content, sync=True)
    finally:
        os.close(fd)
