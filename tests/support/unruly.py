"""A member of a consortium who has a proven stream to another one and writes on it what he likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from gossamer.consortium import service
from gossamer.consortium.identity import Identity
from gossamer.consortium.links import Member
from gossamer.consortium.loop import run
from gossamer.consortium.peer_pb2 import Frame
from gossamer.consortium.session import prove_as_dialler

SLOW = 20.0  # seconds that a busy machine may take


class Unruly:
    """A member with a proven stream who does as he likes."""

    def __init__(self, site: Identity, address: str, wanted: Member, compression: Any = None):
        self._site, self._address, self._wanted, self._compression = site, address, wanted, compression

    async def _do(self, script: Callable[[Any], Any], proven: bool) -> Any:
        credentials = grpc.ssl_channel_credentials(
            self._site.authority, self._site.key, self._site.certificate
        )
        options = [
            ("grpc.ssl_target_name_override", self._wanted.name),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", -1),
        ]
        async with grpc.aio.secure_channel(
            self._address, credentials, options=options, compression=self._compression
        ) as channel:
            call = service.dial(channel)
            try:
                if proven:
                    await prove_as_dialler(call, self._site, self._wanted)
                await script(call)
                while await call.read() is not grpc.aio.EOF:
                    pass
                return (await call.code(), await call.details())
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details()
            finally:
                call.cancel()

    def do(self, script: Callable[[Any], Any], proven: bool = True) -> tuple[grpc.StatusCode, str]:
        return run(asyncio.wait_for(self._do(script, proven), 3 * SLOW), 3 * SLOW + 5)


def writes(*frames: Frame) -> Callable[[Any], Any]:
    async def script(call: Any) -> None:
        for frame in frames:
            await call.write(frame)

    return script
