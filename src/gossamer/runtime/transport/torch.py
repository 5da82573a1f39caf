"""Messages over torch.distributed: processes of one machine or, by torchrun, of many."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from gossamer.errors import UserError
from gossamer.runtime.transport.base import LostError, Notes, Pending, SilentError, first_line
from gossamer.runtime.transport.meeting import StoreNotes


def started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def ranks_started() -> int:
    return int(os.environ["WORLD_SIZE"])


class TorchTransport:
    """gloo for tensors of the processor, NCCL for those of graphics cards. Made by `TorchTransport.meet`."""

    def __init__(self, rank: int, size: int, notes: Notes, timeout: float, device: str = "cpu"):
        self.rank, self.size, self.notes = rank, size, notes
        self.timeout, self.device = timeout, torch.device(device)
        self.first_here = int(os.environ.get("LOCAL_RANK", rank)) == 0
        self.spread = int(os.environ.get("LOCAL_WORLD_SIZE", size)) < size
        self.machine = os.environ.get("GROUP_RANK", "0")

    @classmethod
    def meet(cls, *, timeout: float, device: str = "cpu") -> TorchTransport:
        """Find the others, as torchrun's environment says where."""
        rank, limit = int(os.environ["RANK"]), timedelta(seconds=timeout)
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        try:
            store, rank, size = next(rendezvous("env://", timeout=limit))
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"rank {rank} cannot reach the meeting point {where}: {first_line(error)}; check torchrun's settings."
            ) from None
        store.set(f"gossamer/joined/{rank}", "")
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        except RuntimeError as error:
            missing = [r for r in range(size) if not store.check([f"gossamer/joined/{r}"])]
            who = (
                f"rank {missing[0]} did not come"
                if missing
                else f"the ranks cannot connect ({first_line(error)})"
            )
            raise UserError(f"{who} to {where} within runtime.timeout = {timeout:g} s.") from None
        return cls(rank, size, StoreNotes(store), timeout, device)

    def start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        starts = [
            *(dist.P2POp(dist.irecv, buffer, rank, tag=tag) for rank, buffer in receive.items()),
            *(dist.P2POp(dist.isend, buffer, rank, tag=tag) for rank, buffer in send.items()),
        ]
        if not starts:
            return {}, {}
        works = [_Work(work) for work in _translated(lambda: dist.batch_isend_irecv(starts))]
        if len(works) < len(starts):  # NCCL gives one handle for the whole batch, gloo one for each
            works = works * len(starts)
        return (
            dict(zip(receive, works, strict=False)),
            dict(zip(send, works[len(receive) :], strict=False)),
        )

    def gather(self, own: bytes) -> list[bytes]:
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        _translated(lambda: dist.all_gather(sizes, torch.tensor([len(own)])))
        longest = int(max(sizes))
        if longest == 0:
            return [b""] * self.size
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        padded = torch.zeros(longest, dtype=torch.uint8)
        if own:
            padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        _translated(lambda: dist.all_gather(texts, padded))
        return [bytes(text[: int(size)].numpy()) for text, size in zip(texts, sizes, strict=True)]

    def sum(self, own: Tensor) -> Tensor:
        total = own.clone()
        _translated(lambda: dist.all_reduce(total))
        return total

    def close(self) -> None:
        dist.destroy_process_group()


class _Work:
    def __init__(self, work: Any):
        self._work = work

    def wait(self, seconds: float) -> None:
        _translated(lambda: self._work.wait(timedelta(seconds=seconds)))


def _translated(action: Callable[[], Any]) -> Any:
    """torch tells silence from a broken connection by its words alone."""
    try:
        return action()
    except RuntimeError as error:
        kind = SilentError if "imed out" in str(error) else LostError
        raise kind(first_line(error)) from None
