"""Small signed runs, and ways to change them: as somebody without the run's key, and as the run's operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossamer.accounting.chain import digest
from gossamer.accounting.ledger import LedgerBook, ledger_paths, read_all
from gossamer.results.certificate import digests_of_files
from gossamer.results.signatures import RunKey
from gossamer.results.verify import Verdict, verify_run

CHANGES: dict[str, Any] = {
    "nodes": 3, "rounds": 4, "checkpoints.every": 2, "evaluation.every": 2, "topology.kind": "complete",
    "privacy.epsilon": None, "privacy.noise.multiplier": 9.0, "privacy.claim": "none",
}  # fmt: skip
KEPT = "kept.key"


def verdict(run: Path, anchor: str | None = None) -> Verdict:
    return verify_run(run, anchor)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def keep_key(key: RunKey) -> None:
    """In place of `RunKey.delete`: an operator who copies the key before the end."""
    key._path.rename(key._path.with_name(KEPT))


def resign(run: Path, change: Callable[[dict[str, Any]], Any] = lambda certificate: None) -> Path:
    """Change the certificate of a run whose key was kept, name the files as they are now, and sign that."""
    key = RunKey(run / KEPT, Ed25519PrivateKey.from_private_bytes(bytes.fromhex((run / KEPT).read_text())))
    path = run / "certificate.json"
    content = json.loads(path.read_text())
    change(content)
    if isinstance(content.get("digests"), dict):
        content["digests"]["files"] = dict(digests_of_files(run))
    path.write_text(json.dumps(key.sign(content)))
    (run / "certificate.html").unlink(missing_ok=True)
    return run


def relaid(run: Path, blocks: Sequence[range]) -> None:
    """The ledger of a run as if processes had hosted these blocks of its nodes."""
    by_node = read_all(run)
    (run / "ledger.jsonl").unlink()
    for nodes, path in ledger_paths(run, blocks).items():
        headers = {i: {k: v for k, v in by_node[i][0].items() if k not in ("version", "nodes")} for i in nodes}
        with LedgerBook.create(path, headers, sync=False) as book:
            for i in nodes:
                for event in by_node[i][1]:
                    book.write([((i,), event)])


def rechained(path: Path, change: Callable[[dict[str, Any]], Any]) -> str:
    """Every event changed and the chain made whole again, which takes no key; the new head."""
    first, *events = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps(first) + "\n"]
    for event in events:
        change(event)
        event.pop("prev")
        text = json.dumps(event, separators=(",", ":"))
        lines.append(f'{text[:-1]},"prev":"{digest(lines[-1].encode())}"}}\n')
    path.write_text("".join(lines))
    return digest(lines[-1].encode())
