"""The desk: requests before and after a run, which are no load."""

from __future__ import annotations

import asyncio

from agent.wire.secret import Secret
from simulator.fleet.target.client import Keyring, open_client
from simulator.keys import Keys
from tests.support.http_server import OK, Server


def test_the_desk_is_patient_however_hasty_the_devices_are():
    async def story() -> int:
        async def late(_head: bytes, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.1)
            writer.write(OK)

        async with Server(late, OK) as server:
            async with open_client(server.base_url, Keyring((Keys("mk_1", Secret("msk_1")),)), timeout_s=0.01) as desk:
                await desk.ask("GET", "/products")
            return len(server.requests)

    assert asyncio.run(story()) == 1
