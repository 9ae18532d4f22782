"""amqtt in a thread of this process: a broker that speaks 3.1.1 only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator

from amqtt.broker import Broker

from tests.support.ports import free_port

SOON_S = 60.0


@contextlib.contextmanager
def amqtt() -> Iterator[int]:
    """The port of a running broker."""
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.ERROR)
    port = free_port()
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        config = {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}", "max_connections": 10}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
        broker = Broker(config)
        await broker.start()
        ready.set()
        await done.wait()
        await broker.shutdown()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="amqtt")
    thread.start()
    try:
        assert ready.wait(SOON_S), "amqtt did not start"
        yield port
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(SOON_S)
