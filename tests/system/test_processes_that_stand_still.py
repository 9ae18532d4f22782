"""Agents over HTTP and over MQTT that are stopped (SIGSTOP) for longer than a command may wait: it never runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.client import SendCommand
from simulator.children import ChildProcess, program_path
from tests.conftest import require_program
from tests.support.mosquitto import find_mosquitto
from tests.system.agent_bench import wait_until
from tests.system.fault.gateway_rig import GatewayRig

pytestmark = pytest.mark.long

SOON_S = 60.0
TTL_S = 2
BEYOND_S = 1.5
"""How long after a command's end a process goes on: more than the second that a ``Date`` is cut to."""
OVER = {"expired", "timed_out", "rejected"}


class Still(GatewayRig):
    """The rig with one more device: an agent over HTTP."""

    def __init__(self, folder: Path, mosquitto: str) -> None:
        super().__init__(folder, mosquitto)
        self.http_agent = self._children.add(ChildProcess("http agent", folder / "http-agent.log"))

    def start_agents(self) -> None:
        """Both; they are waited for."""
        self.start_agent()
        program = str(program_path("device-agent"))
        self.http_agent.start([program, "run", "--config", str(self.folder / "http-agent.yaml")])
        for agent, log in ((self.agent, "agent.log"), (self.http_agent, "http-agent.log")):
            path = self.folder / log
            agent.wait_until(lambda path=path: "agent=ready" in path.read_text(), "it was ready", SOON_S)

    def send(self, device_id: str, ttl_s: int | None = TTL_S, **payload: Any) -> str:
        """A command's id."""
        command = SendCommand(device_id=device_id, command_payload={"command": "append", **payload}, ttl_seconds=ttl_s)
        with self.client() as client:
            found = client.send_command(command).id
        assert found is not None
        return found

    def status_of(self, device_id: str, command_id: str) -> str | None:
        """As the service shows it."""
        with self.client() as client:
            records = client.device_commands(device_id).records
        return next((record.status for record in records if record.id == command_id), None)

    def has_run(self, command_id: str) -> bool:
        """Its program has begun, by the program's own file."""
        return command_id in self.runs()

    def _configure(self) -> None:
        super()._configure()
        through_gateway = yaml.safe_load((self.folder / "agent.yaml").read_text())
        keys = {name: str(self.folder / name.removesuffix("_file")) for name in ("api_key_file", "secret_key_file")}
        over_http = {name: through_gateway[name] for name in ("commands", "executables", "outbox", "safe_mode")} | {
            "service": {"base_url": f"http://127.0.0.1:{self._port}"},
            "device": {"device_id": self.load_device_id},
            "auth": {"allow_secret_key_on_device": True, **keys},
            "state_dir": str(self.folder / "http-state"),
        }
        del through_gateway["sensors"]
        (self.folder / "agent.yaml").write_text(yaml.safe_dump(through_gateway))
        (self.folder / "http-agent.yaml").write_text(yaml.safe_dump(over_http))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Still]:
    mosquitto = find_mosquitto() or require_program("mosquitto")
    with Still(tmp_path_factory.mktemp("still"), mosquitto) as rig:
        rig.start_gateway()
        rig.wait_for_gateway()
        rig.start_agents()
        yield rig


@contextlib.contextmanager
def stopped(process: ChildProcess) -> Iterator[None]:
    """It stands still for the length of the block."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def wait_for_end(sent_s: float) -> float:
    """Until a command that was sent at this instant is over for certain; now, epoch seconds."""
    wait_until(lambda: time.time() > sent_s + TTL_S + BEYOND_S, SOON_S)
    return time.time()


def test_an_agent_that_stood_still_starts_nothing_that_ended_meanwhile(rig):
    agents = {rig.load_device_id: rig.http_agent, rig.device_id: rig.agent}
    ended: list[tuple[str, str]] = []
    for device_id in agents:
        first = rig.send(device_id, None, seconds=3 * TTL_S)
        wait_until(lambda first=first: rig.has_run(first), SOON_S)
    for device_id, log in zip(agents, ("http-agent.log", "agent.log"), strict=True):
        waiting = rig.send(device_id)
        ended.append((device_id, waiting))
        line, path = f"command={waiting} handler=append state=received", rig.folder / log
        # It is in the journal; or this machine is so slow that its time is over already.
        wait_until(lambda line=line, path=path: line in path.read_text() or _is_over(rig, *ended[-1]), SOON_S)
        assert not rig.has_run(waiting), "it should wait for its lane"
    with contextlib.ExitStack() as stack:
        for agent in agents.values():
            stack.enter_context(stopped(agent))
        ended += [(device_id, rig.send(device_id)) for device_id in agents]
        wait_for_end(time.time())
    for device_id in agents:
        alive = rig.send(device_id, None, seconds=0)
        wait_until(lambda device_id=device_id, alive=alive: rig.status_of(device_id, alive) == "succeeded", SOON_S)
    for device_id, command in ended:
        assert not rig.has_run(command), "started after its end"
        wait_until(lambda device_id=device_id, command=command: _is_over(rig, device_id, command), SOON_S)


def _is_over(rig: Still, device_id: str, command_id: str) -> bool:
    return rig.status_of(device_id, command_id) in OVER
