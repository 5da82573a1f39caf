"""A member of a consortium who has a stream to another one and writes on it what he likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from gossamer.consortium.grpc_links import _METHOD, _SERVICE, Identity
from gossamer.consortium.links import run
from gossamer.consortium.roster import Member

SLOW = 60.0  # seconds that a busy machine may take


class Unruly:
    def __init__(self, site: Identity, address: str, wanted: Member, compression: Any = None):
        self._site, self._address, self._wanted, self._compression = site, address, wanted, compression

    async def _do(self, script: Callable[[Any], Any]) -> Any:
        credentials = grpc.ssl_channel_credentials(
            self._wanted.certificate.encode(), self._site.key, self._site.certificate
        )
        options = [
            ("grpc.ssl_target_name_override", self._wanted.name),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", -1),
        ]
        async with grpc.aio.secure_channel(
            self._address, credentials, options=options, compression=self._compression
        ) as channel:
            call = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")()
            try:
                await script(call)
                while await call.read() is not grpc.aio.EOF:
                    pass
                return (await call.code(), await call.details())
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details()
            except asyncio.InvalidStateError:  # it ended while he wrote
                return await call.code(), await call.details()
            finally:
                call.cancel()

    def do(self, script: Callable[[Any], Any]) -> tuple[grpc.StatusCode, str]:
        return run(asyncio.wait_for(self._do(script), 3 * SLOW), 3 * SLOW + 5)


def writes(*messages: bytes) -> Callable[[Any], Any]:
    async def script(call: Any) -> None:
        for message in messages:
            await call.write(message)

    return script
