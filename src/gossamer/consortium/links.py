"""What one site knows of the others, and what carries bytes between them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

MOST = 1 << 30  # bytes of a parcel, header and all


@dataclass(frozen=True)
class Member:
    """One site as the roster has it. All of it is public."""

    name: str  # the name in its certificate (CN and SAN)
    fingerprint: str  # sha256 of its certificate (DER), hex
    public_key: bytes  # its certificate's key as SubjectPublicKeyInfo (DER): it signs nonces
    address: str | None  # host:port it listens at; None: it only dials out
    records: int  # declared number of records J_i, a public constant


@dataclass(frozen=True)
class Arrival:
    sender: str  # the name proven by the connection, never what the bytes say
    parcel: bytes  # opaque to the carrier; at most `most` bytes


class Links(Protocol):
    """What carries parcels between sites. Any parcel may be lost, come twice, late or in another order.

    What arrives is intact, and its sender's name is proven.
    """

    def send(self, to: str, parcel: bytes, deadline: float) -> None:
        """Return at once; try until `deadline` (monotonic seconds).

        At most two parcels a link wait to be taken; older ones are dropped. The protocol above keeps its own outbox.
        """
        ...

    def receive(self, deadline: float) -> Arrival | None:
        """The next parcel of any site; None at the deadline. A deadline that has passed only looks, never waits."""
        ...

    def states(self) -> dict[str, str]:
        """Every other site of the roster: "up", "suspect" or "down". Who is not named has no link any more."""
        ...

    def versions(self) -> dict[str, str]:
        """The gossamer that other sites run, of those that were heard."""
        ...

    def update(self, members: Iterable[Member]) -> None:
        """A new roster: who is not in it is cut off before this returns."""
        ...

    def close(self) -> None: ...


class NoLinks:
    """Of a site that may not speak to anybody any more."""

    def send(self, to: str, parcel: bytes, deadline: float) -> None:
        pass

    def receive(self, deadline: float) -> Arrival | None:
        time.sleep(max(0.0, deadline - time.monotonic()))
        return None

    def states(self) -> dict[str, str]:
        return {}

    def versions(self) -> dict[str, str]:
        return {}

    def update(self, members: Iterable[Member]) -> None:
        pass

    def close(self) -> None:
        pass
