"""Somebody on the network without the run's secret: tries every listening port, and says what came back.

python -m tests.support.stranger SECONDS HOST PORT…
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time

from gossamer.runtime.transport import frames
from gossamer.runtime.transport.base import LostError
from gossamer.runtime.transport.meeting import MeetingNotes
from gossamer.runtime.transport.secret import Secret

WORDS = [
    b"",
    b"GET / HTTP/1.0\r\n\r\n",
    os.urandom(300),
    struct.pack("<Q", 0),  # what gloo's own ranks begin with
    struct.pack("<Q", 1) + bytes(4096),
    b"\x00" * 200,
    struct.pack("<I", 0xFFFFFFFF) * 64,
    frames.hello(Secret.fresh(), bytes(frames.GREETING), bytes(32), 1) + bytes(1000),
]


def heard(host: str, port: int, words: bytes) -> bytes | None:
    """What comes back; None where nobody listens."""
    try:
        line = socket.create_connection((host, port), timeout=1)
    except OSError:
        return None
    with line:
        line.settimeout(0.2)
        came = b""
        with contextlib.suppress(OSError):
            line.sendall(words)
            while len(came) < 1 << 20 and (part := line.recv(65536)):
                came += part
        return came


def fill(host: str, port: int, size: int) -> None:
    """As much as is taken."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), timeout=1) as line,
    ):
        line.settimeout(0.5)
        for _ in range(size >> 20):
            line.sendall(bytes(1 << 20))


def torchs_own_words(host: str, port: int) -> str | None:
    """What its client gets within a few seconds: where the answer is not torch's it may wait for ever."""
    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(_store_words(host, port)), daemon=True)
    asking.start()
    asking.join(3)
    return answers[0] if answers else None


def _store_words(host: str, port: int) -> str | None:
    """What worked on torch's own key-value server: read, forge, delete."""
    from datetime import timedelta

    from torch.distributed import TCPStore

    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=1))
        store.set("gossamer/result", '{"epsilon_proven": 0.001}')
        for rank in range(2):
            store.delete_key(f"gossamer/at/{rank}")
        return str(store.get("gossamer/result"))
    except RuntimeError:
        return None


def main() -> None:
    until, host, ports = time.monotonic() + float(sys.argv[1]), sys.argv[2], list(map(int, sys.argv[3:]))
    found: dict[str, object] = {"reached": [], "heard": [], "joined": [], "tcp_store": []}
    reached, said, joined, stored = set(), set(), set(), set()
    crowd = []
    first = True
    while first or time.monotonic() < until:
        for port in ports:
            for words in WORDS:
                came = heard(host, port, words)
                if came is not None:
                    reached.add(port)
                    said.add(
                        came.removeprefix(came[: frames.GREETING] if came.startswith(frames.MAGIC) else b"")
                    )
            with contextlib.suppress(LostError):
                MeetingNotes(Secret.fresh(), host, port, 1, patience=0.2).write("gossamer/failure", "forged")
                joined.add(port)
            if first:
                fill(host, port, 1 << 28)
                stored.add(torchs_own_words(host, port))
            with contextlib.suppress(OSError):
                crowd.append(socket.create_connection((host, port), timeout=0.5))  # and stays
        first = False
    found["reached"], found["joined"] = sorted(reached), sorted(joined)
    found["heard"] = sorted(part.hex()[:200] for part in said if part.strip(b"\0"))
    found["tcp_store"] = sorted(text for text in stored if text)
    print(json.dumps(found), flush=True)
    os._exit(0)  # whatever torch's client still waits for


if __name__ == "__main__":
    main()
