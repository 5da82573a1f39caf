"""How a site's links stand, in a file for whoever watches: also while it waits and evaluates nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

FILE = "links.json"
EVERY = 1.0  # seconds


@contextmanager
def shown_links(
    folder: Path, site: str, states: Callable[[], Mapping[str, str]], every: float = EVERY
) -> Iterator[None]:
    """Keep FILE in that folder up to date; nothing else waits for it, and a full disk stops it alone."""
    over = threading.Event()

    def keep() -> None:
        written: Mapping[str, str] | None = None
        while True:
            ended = over.wait(every)
            with suppress(OSError):
                if (now := dict(states())) != written:
                    _write(folder / FILE, {"site": site, "links": now})
                    written = now
            if ended:
                return

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(path: Path, content: object) -> None:
    """Whole or not at all: somebody may be reading."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(path)
