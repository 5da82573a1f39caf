"""What carries messages between sites; the exchange knows nothing else of the network."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from gossamer.consortium.roster import Member

MAX_MESSAGE = 1 << 30  # bytes


class Arrival(NamedTuple):
    sender: str  # the name proven by the connection, never one taken from the message
    message: bytes


class Links:
    """One site's links to the others. A message may be lost, arrive twice, late or in another order, but intact.

    This base class reaches nobody: it serves a site that was revoked.
    """

    def send(self, to: str, message: bytes, deadline: float) -> None:
        """Return at once; try until `deadline` (monotonic seconds).

        Only the newest messages to a site are kept while they wait; the exchange has an outbox of its own.
        """

    def receive(self, deadline: float) -> Arrival | None:
        """Return the next message of any site, or None at the deadline. A deadline in the past does not wait."""
        time.sleep(max(0.0, deadline - time.monotonic()))
        return None

    def states(self) -> dict[str, str]:
        """Return "up", "suspect" or "down" for every other site of the roster; a missing site has no link."""
        return {}

    def versions(self) -> dict[str, str]:
        """Return the gossamer version of every site that has been connected."""
        return {}

    def update(self, members: Iterable[Member]) -> None:
        """Apply a new roster: sites that are not in it are cut off before this returns."""

    def close(self) -> None:
        pass
