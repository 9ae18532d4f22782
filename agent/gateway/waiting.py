"""Waiting for a change of a device's commands, for thousands of devices on one event loop."""

from __future__ import annotations

import asyncio
import contextlib

from agent.gateway.ports import DeviceDesk, OpenCommands


async def wait_for_change(desk: DeviceDesk, device_id: str, version: str | None, wait_s: float) -> OpenCommands:
    """The device's open commands as soon as they are not ``version``, at the latest after ``wait_s`` seconds.

    Raises:
        UnknownDevice: as :meth:`~agent.gateway.ports.DeviceDesk.open_commands`.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def on_change() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(changed.set)

    end = desk.watch(device_id, on_change)
    try:
        async with asyncio.timeout(wait_s if wait_s > 0 else None):
            while True:
                commands = desk.open_commands(device_id)
                if commands.version != version or wait_s <= 0:
                    return commands
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return desk.open_commands(device_id)
    finally:
        end()
