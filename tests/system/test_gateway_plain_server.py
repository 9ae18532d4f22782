"""Gateway and agent over MQTT, as processes, in front of a server that has the specification and nothing else."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.core.admission import FIRST_CONTACT, Contact
from agent.store.sqlite import FILE_NAME
from agent.wire.times import to_rfc3339
from gateway.tokens import FILE_NAME as TOKENS
from gateway.tokens import Tokens, make_token
from simulator.children import ChildProcess, Children, program_path
from tests.support.mosquitto import Mosquitto
from tests.system.agent_bench import AgentProcess, wait_until

pytestmark = pytest.mark.long

SOON_S = 60.0
DAY_S = 86_400.0


class PlainServer:
    """Lists all commands for ever, or each of them once; keeps results and readings.

    Attributes:
        word: the status of every command in the list; None lists none.
        commands: what is listed.
        results: ids of commands whose result came, as often as it came.
        readings: bodies of what came.
        looks: how often the list was asked for, and the queries that came with it.
        has_table: False refuses results with 500.

    Args:
        date_off_s: how far its ``Date`` is ahead of the time of its commands.
    """

    def __init__(self, *, once: bool = False, word: str | None = None, date_off_s: float = 0.0) -> None:
        self.once = once
        self.word = word
        self.has_table = True
        self.commands: list[dict[str, Any]] = []
        self.results: list[str] = []
        self.readings: list[dict[str, Any]] = []
        self.looks = 0
        self.queries: set[str] = set()
        self.changed = threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path == "/devices":
                    self._send(200, [{"device_id": "d1", "product_id": "p1"}])
                elif path == "/devices/d1/commands":
                    self._send(200, server.listed(query))
                else:
                    self._send(404, {"error": "not_found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._send(*server.take(self.path, body))

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string((timestamp or time.time()) + date_off_s)

            def _send(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def listed(self, query: str) -> list[dict[str, Any]]:
        with self.changed:
            self.looks += 1
            self.queries.add(query)
            listed = list(self.commands)
            if self.once:
                self.commands.clear()
            self.changed.notify_all()
            return listed

    def take(self, path: str, body: Any) -> tuple[int, Any]:
        with self.changed:
            try:
                if path == "/sensor-data":
                    self.readings.append(body)
                    return 201, "stored"
                if path == "/database/runtime-data" and self.has_table:
                    self.results.append(body["data_payload"]["command_id"])
                    return 201, {"id": "r1"}
                return 500, {"error": "no_table"}
            finally:
                self.changed.notify_all()

    def send(self, command_id: str, *, age_s: float = 0.0) -> None:
        payload = {"command": "ping", "echo": command_id}
        created_at = to_rfc3339(time.time() - age_s)
        with self.changed:
            command = {"id": command_id, "command_payload": payload, "created_at": created_at}
            self.commands.append(command if self.word is None else {**command, "status": self.word})

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, SOON_S), f"{what} did not happen"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Bench:
    """The broker, the gateway and the agent of one device around a server."""

    def __init__(self, folder: Path, broker: Mosquitto, children: Children, server: PlainServer) -> None:
        self.folder = folder
        self.server = server
        self.broker = broker
        self.gateway = children.add(ChildProcess("gateway", folder / "gateway.log"))
        self.agents: list[AgentProcess] = []
        state = folder / "gateway"
        state.mkdir(mode=0o700)
        token = make_token(secrets.token_bytes)
        with Tokens(state / TOKENS) as tokens:
            tokens.issue({"d1": token})
        for name, text in {"token": token.token.reveal(), "api_key": "mk_1", "secret_key": "msk_1"}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        config = {
            "service": {"base_url": f"http://127.0.0.1:{server.port}"},
            "auth": {"api_key_file": str(folder / "api_key"), "secret_key_file": str(folder / "secret_key")},
            "state_dir": str(state),
            "http": {"enabled": False},
            "mqtt": {"enabled": True, "port": broker.port},
            "commands": {"poll_s": 0.5, "reconcile_s": 5},
            "metrics": {"enabled": False},
        }
        (folder / "gateway.yaml").write_text(yaml.safe_dump(config))

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
    made: list[Bench] = []
    with Children() as children:

        def make(**options: Any) -> Bench:
            broker = start_mosquitto("allow_anonymous true")
            made.append(Bench(tmp_path, broker, children, PlainServer(**options)))
            return made[-1]

        yield make
        for bench in made:
            for agent in bench.agents:
                agent.close()
    for bench in made:
        bench.server.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("first", "word"), [("gateway", None), ("agent", None), ("gateway", "queued")])
def test_a_fresh_device_runs_nothing_of_a_list_that_never_shrinks(make_bench, first, word):
    bench = make_bench(word=word)
    server = bench.server
    for number in range(20):
        server.send(f"old-{number}", age_s=(11 + number) * DAY_S)
    if first == "gateway":
        bench.start_gateway()
        bench.start_agent()
        server.wait_until(lambda: server.looks > 0, "the gateway asked")
    else:
        bench.start_agent().wait_for("broker=")
        bench.start_gateway()
    time_of_contact = server.looks
    server.wait_until(lambda: server.looks >= time_of_contact + 3, "the gateway asked again")
    server.send("new")
    server.wait_until(lambda: "new" in server.results, "the new command ran")
    server.wait_until(lambda: server.looks >= time_of_contact + 8, "the list came again and again")
    assert server.results == ["new"]
    assert server.queries == {""}, "nothing beyond the specification was asked for"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("first", ["gateway", "agent"])
def test_history_is_none_of_a_new_devices_work_where_the_server_has_two_clocks(make_bench, first):
    bench = make_bench(date_off_s=-3600.0)  # of its Date; commands have the time of another machine
    server = bench.server
    server.send("old", age_s=5.0)
    for start in (bench.start_gateway, bench.start_agent)[:: 1 if first == "gateway" else -1]:
        start()
    bench.agents[0].wait_for("commands=skipped")
    server.send("new")
    server.wait_until(lambda: "new" in server.results, "the new command ran")
    seen = server.looks
    server.wait_until(lambda: server.looks >= seen + 3, "the list came again and again")
    assert server.results == ["new"]


@pytest.mark.timeout(240)
def test_a_command_that_is_listed_once_reaches_a_device_that_was_away(make_bench):
    bench = make_bench(once=True)
    server = bench.server
    bench.start_agent().terminate()
    bench.start_gateway()
    agent = bench.start_agent()
    wait_until(bench.has_first_contact)  # what was sent before is history, which a fresh device does not run
    server.send("there")
    server.wait_until(lambda: "there" in server.results, "it ran")
    agent.terminate()
    server.send("away")
    bench.gateway.kill()
    bench.start_gateway()
    seen = server.looks
    time.sleep(2.0)
    assert server.looks == seen, "nobody asks about a device that is away"
    assert server.commands, "so the server keeps its command"
    bench.start_agent()
    server.wait_until(lambda: "away" in server.results, "it ran")
    assert sorted(server.results) == ["away", "there"]


@pytest.mark.timeout(240)
def test_results_that_find_no_home_hold_no_readings(make_bench):
    bench = make_bench()
    server = bench.server
    server.has_table = False
    bench.start_gateway()
    bench.start_agent(sensors=True)
    server.wait_until(lambda: len(server.readings) > 0, "readings came")
    server.send("c1")
    log = bench.folder / "gateway.log"
    bench.gateway.wait_until(lambda: "no_table" in log.read_text(), "the result was refused", SOON_S)
    seen = len(server.readings)
    server.wait_until(lambda: len(server.readings) > seen + 20, "readings went on")
    assert all(set(body) == {"device_id", "sensor_data"} for body in server.readings)
