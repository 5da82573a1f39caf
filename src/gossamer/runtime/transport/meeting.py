"""The meeting point of the ranks on torch's key-value server: where they find each other and leave their notes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gossamer.runtime.transport.base import LostError

_PATIENCE = timedelta(seconds=5)


class StoreNotes:
    """Notes in a store of torch.distributed."""

    def __init__(self, store: Any):
        self.store = store

    def read(self, key: str) -> str | None:
        try:
            return str(self.store.get(key).decode()) if self.store.check([key]) else None
        except RuntimeError as error:
            raise LostError(str(error)) from None

    def write(self, key: str, text: str) -> None:
        try:
            self.store.set(key, text)
        except RuntimeError as error:
            raise LostError(str(error)) from None

    def claim(self, key: str, text: str) -> str:
        try:
            found = self.store.compare_set(key, "", text)
        except RuntimeError as error:
            raise LostError(str(error)) from None
        return found.decode() if isinstance(found, bytes) else str(found)

    def clone(self) -> StoreNotes:
        try:
            store = self.store.clone()
        except RuntimeError as error:
            raise LostError(str(error)) from None
        store.set_timeout(_PATIENCE)
        return StoreNotes(store)


def open_meeting_point() -> StoreNotes:
    """Serve one on a free port of this machine: `.store.port`."""
    from torch._C._distributed_c10d import (
        TCPStore,  # without the rest of torch.distributed, which takes a while
    )

    return StoreNotes(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_PATIENCE))


def reach_meeting_point(host: str, port: int) -> StoreNotes:
    from torch._C._distributed_c10d import TCPStore

    try:
        return StoreNotes(TCPStore(host, port, is_master=False, timeout=_PATIENCE))
    except RuntimeError as error:
        raise LostError(str(error)) from None
