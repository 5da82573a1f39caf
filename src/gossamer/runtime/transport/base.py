"""What carries bytes between the ranks of a run. A new carrier is one file that implements `Transport`.

tests/runtime/transport/test_base.py holds every carrier to what is written here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gossamer.runtime.transport.secret import Seal

if TYPE_CHECKING:  # who only watches, launches or says farewell needs no torch
    import torch
    from torch import Tensor

LOG = logging.getLogger("gossamer.transport")


class LostError(Exception):
    """A connection to another rank broke, or could not be used. The text is the carrier's own."""


class SilentError(LostError):
    """Nothing came within the time allowed; whether the other rank still lives is not known."""


class Pending(Protocol):
    """A message on its way."""

    def wait(self, seconds: float) -> None:
        """Until it has arrived in the receiver's buffer, or has left the sender's; `SilentError` after `seconds`."""
        ...


class Notes(Protocol):
    """A few short texts that all ranks can read and write, apart from the messages: who is where, and who failed why.

    Every method raises `LostError` when the place that holds the notes is gone.
    """

    def read(self, key: str) -> str | None: ...

    def write(self, key: str, text: str) -> None: ...

    def claim(self, key: str, text: str) -> str:
        """Write, unless somebody has written there before; what stands there now."""
        ...

    def clone(self) -> Notes:
        """The same notes for another thread, which must never wait for this one's calls."""
        ...


class Transport(Protocol):
    """One rank's end of the connections to all others. Ranks are numbered 0 … size − 1, the same everywhere.

    - **Order.** Messages from one rank to another with the same tag arrive in the order in which they were started;
      with different tags in any order. A message that arrives before its receive was started is kept.
    - **Tags** are integers in [0, 2³⁰). Rounds repeat them only after all earlier messages with that tag have arrived.
    - **Buffers** are flat uint8 tensors on `device` or, all of one `start`, on the processor. Both ends know the
      length. A buffer belongs to the transport from `start` until its `wait` has returned; what `wait` has delivered
      is complete.
    - **Nothing blocks at the start.** `start` returns before any message has arrived, so that all ranks may start
      their receives and sends in any order without a deadlock.
    - **Messages are all there is.** What everyone tells everyone, and sums, are made of them by the `Messenger`: a
      carrier's own collectives would add up and pass on what nobody has sealed.
    - **Errors.** A broken connection is a `LostError`, a rank that stays silent for the time allowed a `SilentError`;
      no other exception, and never a wrong or partial message. Its text is one line of the carrier's own words. Who
      is to blame is not the transport's to say: the `Watch` finds that out from the notes. Whatever makes a transport
      and cannot reach the others raises a `UserError` that names the rank, the address and the time-out.
    - **Only bytes cross.** No pickles and no code: what arrives is compared with the wire format or parsed as JSON.
    """

    rank: int
    size: int
    timeout: float  # seconds that an exchange of messages may take
    device: torch.device  # where the buffers of the rounds' messages lie
    notes: Notes
    first_here: bool  # the first rank on its machine
    spread: bool  # are there ranks on other machines?
    machine: str  # which one this is, among those of the run
    seal: Seal  # of this meeting alone, for whatever is sent

    def start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        """Start one message from each rank in `receive` and one to each in `send`, all at once.

        They are given together because some carriers (NCCL) deadlock on sends and receives started one by one.
        """
        ...

    def close(self) -> None:
        """Leave, after all messages have arrived. Not called after an error: the connections may be gone."""
        ...

    def abandon(self) -> None:
        """Leave after an error, once the others could read the notes."""
        ...


def first_line(error: BaseException) -> str:
    """What a library says, without its traces."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def count_resets(loop: asyncio.AbstractEventLoop, every: float = 60.0) -> None:
    """Log connections that broke as their number, a line in so many seconds, where asyncio writes a traceback each."""
    said, count = -math.inf, 0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said, count
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
            return
        count += 1
        if time.monotonic() - said >= every:
            LOG.warning("%d connections broke since the last such line: %s", count, error)
            said, count = time.monotonic(), 0

    loop.set_exception_handler(handle)
