"""``fleet-simulator up`` ends with the first of its parts that does, and says which one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from simulator.app import RunningParts, run_up
from simulator.children import ChildFailed
from simulator.config import UpSettings
from simulator.gateway import broker
from simulator.gateway.broker import running_broker
from simulator.service.app import build_app
from simulator.service.config import ServiceConfig
from simulator.service.service import Service
from simulator.watched import PartEnded
from tests.sudden_ends import LoopExit, Sudden, end_loop, end_writer

UP = [str(Path(sys.executable).with_name("fleet-simulator")), "up", "--port=0", "--gateway-port=0", "--json"]


def end_thread(name: str, others: set[threading.Thread]) -> None:
    """Raise an error in it, once: a second one would meet the thread while it passes the first one on.

    Args:
        name: of the thread.
        others: of the same process and maybe the same name: a fixture's service runs here too.
    """
    thread = next(thread for thread in threading.enumerate() if thread.name == name and thread not in others)
    if name == "service-writer":  # it has no loop; an error raised wherever it runs may meet a finalizer and be lost
        end_writer(thread, LoopExit)
    else:
        end_loop(thread, LoopExit)
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("part", ["service-writer", "fleet"])
def test_up_ends_with_a_thread_of_its_own(part):
    settings = UpSettings(port=0, devices=1, interval_s=0.1, rate_limit=0, gateway=False)
    ending: list[threading.Thread] = []
    others = set(threading.enumerate())

    def on_ready(_standing: RunningParts) -> None:
        ending.append(threading.Thread(target=end_thread, args=(part, others)))
        ending[0].start()

    with pytest.raises(PartEnded, match=f"{part} ended unexpectedly: LoopExit"):
        run_up(settings, on_ready)
    ending[0].join(60)


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


def test_the_thread_of_a_broker_in_this_process_is_looked_after(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    others = set(threading.enumerate())
    with running_broker(tmp_path / "broker", tmp_path / "log") as running:
        running.look()
        end_thread("broker", others)
        with pytest.raises(ChildFailed, match="the broker amqtt ended unexpectedly: LoopExit"):
            running.look()


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
