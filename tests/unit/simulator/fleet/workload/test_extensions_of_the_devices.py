"""Devices behind a gateway use the gateway's extensions; the operator uses the service's."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from agent.wire import extensions
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.workload.fleet import FleetWorkload
from tests.http_server import Server
from tests.unit.simulator.fleet.workload.test_open_arrivals import a_job

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
MODEL = {"name": "node", "share": 1, "telemetry": {"every_s": 0.2}, "poll": {"every_s": 0.2}}


def heads(tmp_path, offers: frozenset[str], device_offers: frozenset[str]) -> list[str]:
    async def play() -> list[bytes]:
        async with Server(*[ANSWER] * 1000) as server:
            fleet = {"devices": 3, "models": [MODEL]}
            phases = [{"kind": "hold", "name": "hold", "duration_s": 60}]
            commands = [{"payload": {"command": "ping"}, "rate_per_s": 20}]
            more = {"kind": "devices", "fleet": fleet, "phases": phases, "commands": commands}
            job = replace(a_job(tmp_path, server.base_url, **more), offers=offers, device_offers=device_offers)
            run = FleetWorkload(job, Recorder())
            began_s = time.monotonic()
            run.begin(began_s)
            run.enter_phase(0, began_s)
            async with asyncio.timeout(60):
                while not all(any(word in each for each in server.requests) for word in WANTED):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await run.close()
            return list(server.requests)

    return [request.decode() for request in asyncio.run(play())]


WANTED = (b"GET /devices/d0/commands", b"POST /sensor-data", b"POST /commands/send")


@pytest.mark.parametrize("is_behind", [True, False])
def test_devices_use_what_they_talk_to_and_the_operator_what_the_service_has(tmp_path, is_behind):
    full, plain = extensions.ALL - {extensions.LONG_POLL}, extensions.NONE
    asked = heads(tmp_path, plain if is_behind else full, full if is_behind else plain)
    polls = [each for each in asked if each.startswith("GET")]
    readings = [each for each in asked if each.startswith("POST /sensor-data")]
    orders = [each for each in asked if each.startswith("POST /commands/send")]
    assert {("status=open" in each) for each in polls} == {is_behind}
    assert {("recorded_at" in each) for each in readings} == {is_behind}
    assert {("idempotency-key" in each) for each in orders} == {not is_behind}
