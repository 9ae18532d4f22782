"""``fleet-simulator up`` ends with the first of its parts that does, and says which one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from simulator.service.app import build_app
from simulator.service.config import ServiceConfig
from simulator.service.service import Service
from tests.sudden_ends import Sudden

UP = [str(Path(sys.executable).with_name("fleet-simulator")), "up", "--port=0", "--gateway-port=0", "--json"]


def test_up_ends_with_its_gateway():
    with subprocess.Popen(
        UP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            os.kill(gateway_of(process.pid), signal.SIGKILL)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "gateway ended unexpectedly with -9" in said


def gateway_of(pid: int) -> int:
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    return next(child for child in children if b"device-gateway" in Path(f"/proc/{child}/cmdline").read_bytes())


def test_health_names_the_part_that_ended():
    service = Service(ServiceConfig(rate_limit=0))
    app = build_app(service)

    async def health() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/_emulator/health")

    assert asyncio.run(health()).status_code == 200
    service.fail("service-tick", Sudden())
    service.close()
    answer = asyncio.run(health())
    assert (answer.status_code, answer.json()["error"]) == (503, "part_ended")
    assert answer.json()["message"] == "service-tick ended unexpectedly: Sudden. The service ends; its log says why."
