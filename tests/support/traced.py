"""An exchange that records what it moved, and the sum of all mass that sites hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer.consortium.exchange import PeerExchange
from gossamer.consortium.frames import Place
from gossamer.consortium.mass import Mass


@dataclass(frozen=True)
class Step:
    """What one exchange moved: enough to compute it again elsewhere (replay.py)."""

    place: Place
    channel: int
    sent: Mapping[str, tuple[int, float]]  # receiver → (number of the parcel, share)
    added: Sequence[tuple[str, int, int]]  # (sender, incarnation, number); this site itself for what came back
    returned_from: Sequence[str] = ()  # to whom those that came back had gone, in their order


class TracedExchange(PeerExchange):
    def __init__(self, *, trace: Callable[[Step], None], **given: Any):
        super().__init__(**given)
        self._trace = trace

    def _result(self, channel: int, tensors: Sequence[Tensor]) -> Any:
        result = super()._result(channel, tensors)
        added = self.mass._added
        numbers = [(parcel.sender, parcel.incarnation, parcel.sequence) for parcel in added]
        back = [parcel.receiver for parcel in added if parcel.sender == self.name]
        self._trace(Step(self.mass.place, channel, dict(self._sent), numbers, back))
        return result


def total(masses: Sequence[Mass], channel: int = 0) -> list[Tensor]:
    """All mass of some sites: what is kept, taken but not added, and in an outbox while nobody has decided about it."""
    found: list[Tensor] | None = None

    def add(tensors: Sequence[Tensor]) -> None:
        nonlocal found
        flat = [tensor.detach().double().reshape(-1) for tensor in tensors]
        found = flat if found is None else [a + b for a, b in zip(found, flat, strict=True)]

    by_name = {mass.name: mass for mass in masses}
    for mass in masses:
        if mass.channel == channel:
            add(mass._kept)
        for parcel in mass.inbox:
            if parcel.channel == channel:
                add(parcel.content)
        for to, link in mass.outbound.items():
            receiver = by_name[to].inbound.get(mass.name) if to in by_name else None
            for number, parcel in link.parcels.items():
                known = receiver is not None and receiver.incarnation == mass.incarnation
                gone = known and receiver is not None and (number in receiver.taken or number < receiver.oldest)
                if parcel.channel == channel and not gone:
                    add(parcel.content)
    assert found is not None
    return [torch.as_tensor(tensor) for tensor in found]
