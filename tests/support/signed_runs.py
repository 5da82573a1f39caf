"""Small signed runs, and ways to change them that leave everything but the signatures whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import digest
from gossamer.accounting.ledger import LedgerBook, ledger_paths, read_all
from gossamer.accounting.recompute import recompute
from gossamer.results.seals import SEALS
from gossamer.results.verify import Verdict, verify_run

CHANGES: dict[str, Any] = {
    "nodes": 3, "rounds": 4, "checkpoints.every": 2, "evaluation.every": 2, "topology.kind": "complete",
    "privacy.epsilon": None, "privacy.noise.multiplier": 9.0, "privacy.claim": "none",
}  # fmt: skip


def verdict(run: Path, anchor: str | None = None) -> Verdict:
    return verify_run(run, recompute(run), anchor)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def unsigned(run: Path) -> Path:
    """The same run as if there had never been a key: then only what the ledgers say can be compared."""
    (run / SEALS).unlink()
    edit(run / "manifest.json", lambda m: [m.pop(key) for key in ("key", "nonce")])
    head = rechained(run / "ledger.jsonl", header=True)
    edit(run / "certificate.json", lambda c: c.update(ledger_heads=[head] * len(c["ledger_heads"]), key=None))
    return run


def relaid(run: Path, blocks: Sequence[range]) -> None:
    """The ledger of a run as if processes had hosted these blocks of its nodes; unsigned."""
    by_node = read_all(run)
    heads: dict[int, str] = {}
    (run / "ledger.jsonl").unlink()
    for nodes, path in ledger_paths(run, blocks).items():
        headers = {
            i: {k: v for k, v in by_node[i][0].items() if k not in ("version", "nodes")} for i in nodes
        }
        with LedgerBook.create(path, headers, sync=False) as book:
            for i in nodes:
                for event in by_node[i][1]:
                    book.write([((i,), event)])
            heads |= book.heads()

    def certify(c: dict[str, Any]) -> None:
        c["ledger_heads"] = [heads.get(i, head) for i, head in enumerate(c["ledger_heads"])]

    if (run / "certificate.json").exists():
        edit(run / "certificate.json", certify)


def rechained(
    path: Path, change: Callable[[dict[str, Any]], Any] | None = None, *, header: bool = False
) -> str:
    """Every event changed and the chain made whole again, which takes no key; the new head."""
    first, *events = [json.loads(line) for line in path.read_text().splitlines()]
    if header:
        first = {k: v for k, v in first.items() if k not in ("run", "nonce", "key")}
    lines = [json.dumps(first) + "\n"]
    for event in events:
        if change is not None:
            change(event)
        event.pop("prev")
        text = json.dumps(event, separators=(",", ":"))
        lines.append(f'{text[:-1]},"prev":"{digest(lines[-1].encode())}"}}\n')
    path.write_text("".join(lines))
    return digest(lines[-1].encode())
