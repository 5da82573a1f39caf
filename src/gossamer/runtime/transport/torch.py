"""Messages over torch.distributed: processes of one machine or, by torchrun, of many."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import UserError
from gossamer.runtime.transport.base import LostError, Notes, Pending, SilentError, first_line
from gossamer.runtime.transport.meeting import PLACE, ForeignError, MeetingNotes
from gossamer.runtime.transport.secret import FILE, VARIABLE, Seal, Secret
from gossamer.runtime.transport.server import MeetingServer

_LINGER = 15.0  # seconds that the others have to read why the run ended


def started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def ranks_started() -> int:
    return int(os.environ["WORLD_SIZE"])


class TorchTransport:
    """gloo for tensors of the processor, NCCL for those of graphics cards. Made by `TorchTransport.meet`."""

    def __init__(
        self,
        rank: int,
        size: int,
        notes: Notes,
        timeout: float,
        seal: Seal,
        device: str = "cpu",
        server: MeetingServer | None = None,
    ):
        self.rank, self.size, self.notes, self.seal = rank, size, notes, seal
        self.timeout, self.device = timeout, torch.device(device)
        self.first_here = int(os.environ.get("LOCAL_RANK", rank)) == 0
        # Where nobody says how many ranks are here, some are taken to be elsewhere: nothing of ours is told them.
        self.spread = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < size
        self.machine = os.environ.get("GROUP_RANK") or (f"of rank {rank}" if self.spread else "0")
        self._server = server

    @classmethod
    def meet(cls, *, timeout: float, device: str = "cpu") -> TorchTransport:
        """Find the others, as the environment says where, and prove to each other that we belong to the run."""
        rank, size, limit = int(os.environ["RANK"]), ranks_started(), timedelta(seconds=timeout)
        where, serves = _meeting_point(rank)
        secret, server = _secret(rank, size), None
        try:
            host, port = where.rsplit(":", 1)
            server = _serve(secret, host, int(port)) if serves else None
            notes = MeetingNotes(secret, host, int(port), rank, timeout)
        except ForeignError as error:
            raise UserError(
                f"rank {rank} cannot join at the meeting point {where}: {error}; give every host the same "
                f"{FILE} or {VARIABLE}."
            ) from None
        except (LostError, ValueError) as error:
            raise UserError(
                f"rank {rank} cannot reach the meeting point {where}: {first_line(error)}; check torchrun's settings."
            ) from None
        token = secrets.token_hex(16)
        if notes.claim(f"gossamer/joined/{rank}", token) != token:
            raise UserError(f"rank {rank} is already taken at {where}; start every rank once.")
        # A key of this meeting alone: what was sealed in another run with the same secret fits nowhere here.
        seal = secret.derive(b"messages", notes.claim("gossamer/session", secrets.token_hex(32)).encode())
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        try:
            store = MeetingStore(notes.under("torch"), limit)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        except RuntimeError as error:
            missing = [r for r in range(size) if notes.read(f"gossamer/joined/{r}") is None]
            who = (
                f"rank {missing[0]} did not come"
                if missing
                else f"the ranks cannot connect ({first_line(error)})"
            )
            raise UserError(f"{who} to {where} within runtime.timeout = {timeout:g} s.") from None
        return cls(rank, size, notes, timeout, seal, device, server)

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

    def close(self) -> None:
        dist.destroy_process_group()

    def abandon(self) -> None:
        """After an error: whoever serves the notes lets the others read them."""
        if self._server is not None:
            self._server.linger(_LINGER, besides=1)  # our own connection


class MeetingStore(dist.Store):  # type: ignore[name-defined,misc]
    """The meeting point as torch wants to see it: through it gloo tells where its connections are."""

    def __init__(self, notes: MeetingNotes, limit: timedelta):
        super().__init__()
        self._notes, self._limit = notes, limit

    def set(self, key: str, value: str | bytes) -> None:
        self._try(lambda: self._notes.set(key, value if isinstance(value, bytes) else value.encode()))

    def get(self, key: str) -> bytes:
        self.wait([key])
        found: bytes = self._try(lambda: self._notes.get(key))
        return found

    def check(self, keys: list[str]) -> bool:
        found: bool = self._try(lambda: all(self._notes.get(key) is not None for key in keys))
        return found

    def add(self, key: str, number: int) -> int:
        return int(self._try(lambda: self._notes.add(key, number)))

    def delete_key(self, key: str) -> bool:
        return bool(self._try(lambda: self._notes.delete(key)))

    def wait(self, keys: list[str], limit: timedelta | None = None) -> None:
        deadline = time.monotonic() + (limit or self._limit).total_seconds()
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out waiting for {', '.join(keys)}")
            time.sleep(0.005)

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except LostError as error:
            raise RuntimeError(str(error)) from None


def _meeting_point(rank: int) -> tuple[str, bool]:
    """host:port, and whether this rank is to open it."""
    given = os.environ.get(PLACE)
    if given:
        return given, False
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if port and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port = str(int(port) + 1)  # torchrun itself listens at the first, without a secret
    return f"{host}:{port}", rank == 0


def _secret(rank: int, size: int) -> Secret:
    secret = Secret.of_environment()
    if secret is None and size > 1:
        raise UserError(
            f"rank {rank} has no secret of the run; put one (`openssl rand -hex 32`) into a file that every host has, "
            f"and its name into {FILE}."
        )
    return secret or Secret.fresh()


def _serve(secret: Secret, host: str, port: int) -> MeetingServer:
    try:
        return MeetingServer(secret, host, port)
    except LostError:
        if host in ("localhost", "127.0.0.1"):
            raise
        # An address that others know us by need not be one of our own cards': then on all of them.
        return MeetingServer(secret, "", port)


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
