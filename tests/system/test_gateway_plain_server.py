"""Gateway and agent over MQTT, as processes, in front of a server that has the specification and nothing else."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.core.admission import FIRST_CONTACT, Contact
from agent.store.sqlite import FILE_NAME
from agent.wire.encoding import to_rfc3339
from gateway.tokens import FILE_NAME as TOKENS
from gateway.tokens import Tokens, make_token
from simulator.children import ChildProcess, Children, program_path
from tests.support.mosquitto import Mosquitto
from tests.system.agent_bench import AgentProcess, wait_until
from tests.system.plain_server import Choices, Plain, plain_server

pytestmark = pytest.mark.long

SOON_S = 60.0
DAY_S = 86_400.0


class Bench:
    """The broker, the gateway and the agent of one device around a server."""

    def __init__(self, folder: Path, broker: Mosquitto, children: Children, server: Plain) -> None:
        self.folder = folder
        self.server = server
        server.devices.append({"device_id": "d1", "product_id": "p1"})
        self.broker = broker
        self.gateway = children.add(ChildProcess("gateway", folder / "gateway.log"))
        self.agents: list[AgentProcess] = []
        state = folder / "gateway"
        state.mkdir(mode=0o700)
        token = make_token()
        with Tokens(state / TOKENS) as tokens:
            tokens.issue({"d1": token})
        for name, text in {"token": token.reveal(), "api_key": "mk_1", "secret_key": "msk_1"}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        config = {
            "service": {"base_url": server.base_url},
            "auth": {"api_key_file": str(folder / "api_key"), "secret_key_file": str(folder / "secret_key")},
            "state_dir": str(state),
            "http": {"port": 0},
            "mqtt": {"enabled": True, "port": broker.port},
            "commands": {"poll_s": 0.5, "reconcile_s": 5},
            "metrics": {"enabled": False},
        }
        (folder / "gateway.yaml").write_text(yaml.safe_dump(config))

    def send(self, command_id: str, *, age_s: float = 0.0, **members: Any) -> None:
        payload = {"command": "ping", "echo": command_id}
        record = {"id": command_id, "command_payload": payload, "created_at": to_rfc3339(time.time() - age_s)}
        with self.server.lock:
            self.server.commands.setdefault("d1", []).append(record | members)

    def results(self) -> list[str]:
        return [row["data_payload"]["command_id"] for row in self.server.results]

    def wait_for_result(self, command_id: str) -> None:
        wait_until(lambda: command_id in self.results(), SOON_S)

    def wait_for_polls(self, count: int) -> None:
        seen = self.server.polls
        wait_until(lambda: self.server.polls >= seen + count, SOON_S)

    def start_gateway(self) -> None:
        program = str(program_path("device-gateway"))
        self.gateway.start([program, "run", "--config", str(self.folder / "gateway.yaml")])
        log = self.folder / "gateway.log"
        self.gateway.wait_until(lambda: "mqtt=connected" in log.read_text(), "it served", SOON_S)

    def start_agent(self, *, sensors: bool = False) -> AgentProcess:
        config = {
            "mqtt": {"host": "127.0.0.1", "port": self.broker.port, "tls": False, "reconnect_max_s": 1},
            "device": {"device_id": "d1"},
            "auth": {"mode": "bearer", "token_file": str(self.folder / "token")},
            "state_dir": str(self.folder / "state"),
            "commands": {"poll": {"spread_s": 0}},
            "sensors": [{"name": "s", "type": "simulated", "interval_s": 0.2}] if sensors else [],
        }
        path = self.folder / "agent.yaml"
        path.write_text(yaml.safe_dump(config))
        self.agents.append(AgentProcess(path))
        self.agents[-1].wait_for("agent=ready")
        return self.agents[-1]

    def has_first_contact(self) -> bool:
        """Whether the device's journal holds when its first contact was, on the service's clock."""
        copy = self.folder / "copy"
        copy.mkdir(exist_ok=True)
        for name in (f"{FILE_NAME}-wal", FILE_NAME):  # a running agent keeps the file to itself
            shutil.copyfile(self.folder / "state" / name, copy / name)
        with contextlib.closing(sqlite3.connect(copy / FILE_NAME)) as journal:
            found = journal.execute("SELECT value FROM setting WHERE name = ?", (FIRST_CONTACT,)).fetchone()
        contact = Contact.from_json(found and found[0])
        return contact is not None and contact.at_s is not None


@pytest.fixture
def make_bench(start_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    with contextlib.ExitStack() as stack, Children() as children:

        def make(**choices: Any) -> Bench:
            server = stack.enter_context(plain_server(Choices(**choices)))
            bench = Bench(tmp_path, start_mosquitto("allow_anonymous true"), children, server)
            stack.callback(lambda: [agent.close() for agent in bench.agents])
            return bench

        yield make


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("first", "word"), [("gateway", None), ("agent", None), ("gateway", "queued")])
def test_a_fresh_device_runs_nothing_of_a_list_that_never_shrinks(make_bench, first, word):
    bench = make_bench()
    members = {} if word is None else {"status": word}
    for number in range(20):
        bench.send(f"old-{number}", age_s=(11 + number) * DAY_S, **members)
    if first == "gateway":
        bench.start_gateway()
        bench.start_agent()
    else:
        bench.start_agent().wait_for("broker=")
        bench.start_gateway()
    bench.wait_for_polls(4)
    bench.send("new", **members)
    bench.wait_for_result("new")
    bench.wait_for_polls(4)
    assert bench.results() == ["new"]
    assert bench.server.beyond == [], "nothing beyond the specification was asked for"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("first", ["gateway", "agent"])
def test_history_is_none_of_a_new_devices_work_where_the_server_has_two_clocks(make_bench, first):
    bench = make_bench(date_off_s=-3600.0)  # of its Date; commands have the time of another machine
    bench.send("old", age_s=5.0)
    for start in (bench.start_gateway, bench.start_agent)[:: 1 if first == "gateway" else -1]:
        start()
    bench.agents[0].wait_for("commands=skipped")
    bench.send("new")
    bench.wait_for_result("new")
    bench.wait_for_polls(3)
    assert bench.results() == ["new"]


@pytest.mark.timeout(240)
def test_a_command_that_is_listed_once_reaches_a_device_that_was_away(make_bench):
    bench = make_bench(command_list="once")
    bench.start_agent().terminate()
    bench.start_gateway()
    agent = bench.start_agent()
    wait_until(bench.has_first_contact)  # what was sent before is history, which a fresh device does not run
    bench.send("there")
    bench.wait_for_result("there")
    agent.terminate()
    bench.send("away")
    bench.gateway.kill()
    bench.start_gateway()
    seen = bench.server.polls
    time.sleep(2.0)
    assert bench.server.polls == seen, "nobody asks about a device that is away, so the server keeps its command"
    bench.start_agent()
    bench.wait_for_result("away")
    assert sorted(bench.results()) == ["away", "there"]


@pytest.mark.timeout(240)
def test_results_that_find_no_home_hold_no_readings(make_bench):
    bench = make_bench(results=500)
    bench.start_gateway()
    bench.start_agent(sensors=True)
    wait_until(lambda: bench.server.readings, SOON_S)
    bench.send("c1")
    log = bench.folder / "gateway.log"
    bench.gateway.wait_until(lambda: "no such table" in log.read_text(), "the result was refused", SOON_S)
    seen = len(bench.server.readings)
    wait_until(lambda: len(bench.server.readings) > seen + 20, SOON_S)
    assert bench.server.beyond == []
