"""Every thread and task of a running agent and a running gateway, each of them ended from inside by an exception.

What lives as long as its process is watched: its end ends the process with exit code 1, and log and status say which it
was. What belongs to one command, read or request ends that alone, and the next one goes well. A thread that has no line
in the tables below fails the test.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from agent.exit_codes import EXIT_CRASHED
from gateway.devices.token_file import FILE_NAME, DeviceTokenFile
from gateway.devices.tokens import make_token
from simulator.children import program_path
from simulator.service.server import RunningService
from tests import canary
from tests.e2e.agent_bench import SOON_S, AgentBench, wait_until
from tests.fault import thread_hook
from tests.fault.processes import ForkedProcess, ForkServer
from tests.fault.thread_hook import HOOK, TASK
from tests.mosquitto import Mosquitto
from tests.ports import free_port

HOOKS = itertools.count()
ENDS = "the process ends with exit code 1, and the service manager starts it again"

AGENT = {
    "MainThread": ENDS,
    "store": ENDS,
    "commands": ENDS,
    "sensors": ENDS,
    "sensors-idle": ENDS,
    "readings": ENDS,
    "results": ENDS,
    "metrics": ENDS,
    "lane:ping": ENDS,
}
AGENT_BRIEF = {
    r"run:.*": "one command: see tests/unit/agent/runtime/test_lanes.py",
    r"sensor:.*": "one read; then its thread is sensors-idle again: see tests/unit/agent/sensors/test_sensor_reader.py",
    HOOK: "this test's own",
}
GATEWAY = {
    "MainThread": ENDS,
    "store": ENDS,
    "commands-0": ENDS,
    "results-0": ENDS,
    "readings-0": ENDS,
    "discovery-0": ENDS,
    "events": ENDS,
    "housekeeping": ENDS,
    "gateway-tokens": ENDS,
    "gateway-http": ENDS,
    "mqtt": ENDS,
    "mqtt-commands": ENDS,
    "mqtt-receipts": ENDS,
    "mqtt-retry": ENDS,
    "metrics": ENDS,
    f"{TASK}Server.serve": ENDS,
    f"{TASK}RequestResponseCycle.run_asgi": "one request, which is answered with 500",
    f"{TASK}Event.wait": "the wait of one held request, which is answered with 500",
    f"{TASK}_wait_for_disconnect": "likewise",
}
GATEWAY_BRIEF = {
    r"asyncio_\d+": "decodes for one request, which waits for it and gets what is raised",
    HOOK: "this test's own",
}


# --- what runs ----------------------------------------------------------------------------------------------------


class Program:
    """One program that a test watches; started anew for each thread that ends it."""

    def __init__(
        self, server: ForkServer, folder: Path, words: list[str], *, ready: str, state_dir: Path, metrics: int = 0
    ) -> None:
        self.log_file = folder / "program.log"
        self._server = server
        self._words = words
        self._ready = ready
        self._state_dir = state_dir
        self._metrics = metrics
        self._process: ForkedProcess | None = None
        self._hook = ""

    def start(self) -> None:
        self.log_file.unlink(missing_ok=True)
        self._hook = f"threads-{os.getpid()}-{next(HOOKS)}"
        variables = {thread_hook.VARIABLE: self._hook}
        self._process = self._server.start(
            [str(program_path(self._words[0])), *self._words[1:]], self.log_file, variables=variables
        )
        wait_until(lambda: self._ready in self.log())

    def stop(self) -> None:
        if self._process is not None:
            self._process.end()
        canary.check_output(self.log())

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def names(self) -> list[str]:
        found: list[str] = thread_hook.ask(self._hook, do="list")
        return found

    def end(self, name: str) -> None:
        assert thread_hook.ask(self._hook, do="end", name=name), f"nothing could be raised in {name}"

    def exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.exit_code

    def figures(self) -> list[str]:
        """The lines of the page of metrics."""
        return httpx.get(f"http://127.0.0.1:{self._metrics}/metrics", timeout=SOON_S).text.splitlines()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._state_dir / "status.json").read_text())
        return found


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(changes=["tests.fault.thread_hook:install"]) as server:
        yield server


def ends(program: Program, name: str) -> None:
    """Raise in this thread; the process ends, and everything says why."""
    crashed = {f"{TASK}Server.serve": "gateway-http"}.get(name, name)
    program.start()
    wait_until(lambda: name in program.names())
    raised = 0

    def has_ended() -> bool:
        nonlocal raised
        # What is raised in the middle of an attempt to connect ends that attempt: once more, then.
        if program.exit_code() is None and raised == program.log().count("broker=failed"):
            raised += 1
            with contextlib.suppress(OSError, ValueError):  # it ends before it answers
                program.end(name)
        return program.exit_code() is not None

    wait_until(has_ended)
    log = program.log()
    assert program.exit_code() == EXIT_CRASHED, log
    assert "Traceback" in log
    assert "EndedByTest" in log
    status = program.status()
    assert status["state"] == "stopped"
    if name == "MainThread":
        assert "EndedByTest" in status["reason"]
        return
    assert f"thread={crashed} state=crashed" in log
    assert status["reason"] == f"service {crashed} crashed"
    assert status["parts"][crashed]["state"] == "crashed"


def unknown(names: list[str], *tables: dict[str, str]) -> list[str]:
    known = [re.escape(each) if table in (AGENT, GATEWAY) else each for table in tables for each in table]
    return sorted({name for name in names if not any(re.fullmatch(each, name) for each in known)})


# --- the agent ----------------------------------------------------------------------------------------------------


@pytest.fixture
def agent(server: ForkServer, service: RunningService, bench: AgentBench) -> Iterator[Program]:
    metrics = free_port()
    more = f"metrics: {{port: {metrics}}}\nsensors:\n  - {{name: board, type: system, interval_s: 1}}\n"
    bench.write_config(service.base_url, more=more)
    words = ["device-agent", "run", "--config", str(bench.config)]
    program = Program(server, bench.folder, words, ready="agent=ready", state_dir=bench.state_dir, metrics=metrics)
    yield program
    program.stop()


def ping(bench: AgentBench) -> None:
    assert bench.wait_for(bench.send(command="ping")).status == "succeeded"


@pytest.mark.timeout(300)
def test_each_thread_of_an_agent_is_known(agent: Program, bench: AgentBench):
    agent.start()
    ping(bench)
    # The thread that reads sensors has another name while it does.
    wait_until(lambda: "sensors-idle" in agent.names())
    names = agent.names()
    assert unknown(names, AGENT, AGENT_BRIEF) == []
    assert {"device_agent_starts_total 1.0", 'device_agent_part_ok{part="commands"} 1.0'} <= set(agent.figures())
    assert [name for name in AGENT if name not in [*names, "sensors-idle"]] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, then in AGENT.items() if then == ENDS])
def test_a_thread_of_the_agent_that_ends_ends_the_agent_and_everything_says_so(
    agent: Program, bench: AgentBench, name: str
):
    if name.startswith("lane:"):
        bench.send(command="ping")
    ends(agent, name)


@pytest.mark.timeout(300)
def test_the_connection_of_an_agent_to_its_broker_is_watched(server: ForkServer, tmp_path: Path):
    """No broker listens: the thread waits for its next attempt."""
    config, state_dir, token = tmp_path / "agent.yaml", tmp_path / "state", tmp_path / "token"
    token.write_text("dat_" + "x" * 32)
    token.chmod(0o600)
    settings = {
        "device": {"device_id": "d1"},
        "mqtt": {"host": "127.0.0.1", "port": free_port(), "tls": False},
        "auth": {"mode": "bearer", "token_file": str(token)},
        "state_dir": str(state_dir),
    }
    config.write_text(yaml.safe_dump(settings))
    words = ["device-agent", "run", "--config", str(config)]
    program = Program(server, tmp_path, words, ready="agent=ready", state_dir=state_dir)
    try:
        ends(program, "mqtt")
        program.start()
        assert unknown(program.names(), AGENT, AGENT_BRIEF, {"mqtt": ENDS}) == []
    finally:
        program.stop()


# --- the gateway --------------------------------------------------------------------------------------------------


class Gateway(Program):
    """A gateway with an HTTP front, and a broker that is not there unless a port is given."""

    def __init__(self, server: ForkServer, base_url: str, bench: AgentBench, broker_port: int | None = None) -> None:
        folder = bench.folder
        state_dir = folder / "gateway"
        state_dir.mkdir(mode=0o700)
        token = make_token(secrets.token_bytes)
        with DeviceTokenFile(state_dir / FILE_NAME) as file:
            file.issue({bench.device_id: token}, time.time())
        self.token = token.token.reveal()
        port, metrics = free_port(), free_port()
        self.commands_url = f"http://127.0.0.1:{port}/devices/{bench.device_id}/commands"
        settings = {
            "service": {"base_url": base_url, "timeout_s": 5},
            "auth": {f"{name}_file": str(folder / name) for name in ("api_key", "secret_key")},
            "state_dir": str(state_dir),
            "http": {"port": port},
            "mqtt": {"enabled": True, "port": broker_port or free_port()},
            "metrics": {"port": metrics},
            "connections": 1,
        }
        config = folder / "gateway.yaml"
        config.write_text(yaml.safe_dump(settings))
        words = ["device-gateway", "run", "--config", str(config)]
        super().__init__(server, folder, words, ready="gateway=ready", state_dir=state_dir, metrics=metrics)

    def poll(self, wait_s: float = 30.0) -> int:
        """Ask for commands, and once more, held, for others than those; the last answer's status."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(headers=headers, timeout=2 * SOON_S) as client:
            first = client.get(self.commands_url, params={"status": "open"})
            assert first.status_code == 200
            query, known = {"status": "open", "wait": str(wait_s)}, {"If-None-Match": first.headers["etag"]}
            return client.get(self.commands_url, params=query, headers=known).status_code


@pytest.fixture
def gateway(server: ForkServer, service: RunningService, bench: AgentBench) -> Iterator[Gateway]:
    program = Gateway(server, service.base_url, bench)
    yield program
    program.stop()


@contextlib.contextmanager
def held_poll(gateway: Gateway, statuses: list[int]) -> Iterator[None]:
    """A device whose poll is held while this lasts; it is answered with a status."""
    thread = threading.Thread(target=lambda: statuses.append(gateway.poll()))
    thread.start()
    try:
        wait_until(lambda: f"{TASK}_wait_for_disconnect" in gateway.names())
        yield
    finally:
        gateway.stop()  # which answers it
        thread.join(SOON_S)


@pytest.mark.timeout(300)
def test_each_thread_and_task_of_a_gateway_is_known(gateway: Gateway):
    gateway.start()
    with held_poll(gateway, []):
        names = gateway.names()
        # Fronts are looked at every two seconds.
        wait_until(lambda: 'device_gateway_part_ok{part="http"} 1.0' in gateway.figures())
        figures = gateway.figures()
    started_s = next(float(line.split()[1]) for line in figures if line.startswith("device_gateway_start_timestamp"))
    assert abs(time.time() - started_s) < 2 * SOON_S
    assert unknown(names, GATEWAY, GATEWAY_BRIEF) == []
    assert [name for name in GATEWAY if name not in names] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, then in GATEWAY.items() if then == ENDS])
def test_a_thread_of_the_gateway_that_ends_ends_the_gateway_and_everything_says_so(
    gateway: Gateway, bench: AgentBench, name: str
):
    # News wakes the thread that listens for news.
    news = threading.Timer(2.0, bench.send, kwargs={"command": "ping"}) if name == "events" else None
    if news is not None:
        news.start()
    ends(gateway, name)
    if news is not None:
        news.join(SOON_S)


@pytest.mark.timeout(300)
def test_a_fault_inside_of_a_session_with_the_broker_makes_the_connection_anew(
    server: ForkServer, service: RunningService, bench: AgentBench, start_mosquitto: Callable[..., Mosquitto]
):
    broker = start_mosquitto("allow_anonymous true", "log_type all")
    gateway = Gateway(server, service.base_url, bench, broker.port)
    try:
        gateway.start()
        wait_until(lambda: "mqtt=connected" in gateway.log())
        gateway.end("mqtt")
        wait_until(lambda: broker.log().count("Sending SUBACK to gateway-") > 1)
        # paho takes what is raised while it waits for an unknown fault of the socket.
        assert "next try in" in gateway.log()
        assert gateway.exit_code() is None
    finally:
        gateway.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, then in GATEWAY.items() if then != ENDS])
def test_a_task_of_one_request_that_ends_ends_that_request_alone(gateway: Gateway, name: str):
    gateway.start()
    statuses: list[int] = []
    with held_poll(gateway, statuses):
        gateway.end(name)
        wait_until(lambda: statuses)
        assert statuses == [500]
        assert "EndedByTest" in gateway.log()
        assert gateway.poll(0.5) == 304
        assert gateway.exit_code() is None
