"""Devices behind a gateway use the gateway's extensions; the operator uses the service's."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agent.errors import Unauthorized
from agent.wire import extensions
from agent.wire.secret import Secret
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.target.target import find_gateway_offers
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


def test_a_gateways_extensions_are_read_with_a_devices_token():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.headers["authorization"] == "Bearer dgw_one" and self.path == "/.well-known/device-service"
            body = json.dumps({"extensions": ["long-poll", "recorded-at"]} if good else {"error": "unauthorized"})
            self.send_response(200 if good else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        assert find_gateway_offers(url, Secret("dgw_one")) == {"long-poll", "recorded-at"}
        with pytest.raises(Unauthorized):
            find_gateway_offers(url, Secret("dgw_two"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
