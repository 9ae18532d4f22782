"""A real agent process as a consumer: over HTTP, or over MQTT behind a real gateway."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import yaml
from click.testing import CliRunner

from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store.snapshot import read_snapshot
from agent.cli.program import device_agent
from agent.core.triage import RESOLUTION_S
from agent.errors import StorageError
from gateway.devices.token_file import FILE_NAME as TOKENS
from gateway.devices.token_file import DeviceTokenFile
from gateway.devices.tokens import make_token
from simulator.children import ChildProcess, Children, program_path
from simulator.demo import programs
from tests.e2e.agent_bench import wait_until
from tests.mosquitto import Mosquitto
from tests.servers.accounts import Account, Stored
from tests.servers.expectations import Expectations, check_elsewhere, check_readings, check_requests, check_runs
from tests.servers.fronts import Fronts
from tests.servers.server_words import check_server_words

READING = "witness_sequence"
HISTORY, BEFORE, AFTER = (1, 2), (3, 4), (5, 6)
"""Numbers of commands: sent before the device's first contact, after it, and while the agent is dead or later."""
_READY_S = 60.0
_WORK_S = 45.0
_WORDS_S = 15.0
_RUN = "effects.jsonl"
_READ = "witness.jsonl"


class AgentPlay:
    """One device, its agent and what it did, in a folder.

    Args:
        folder: of everything that it writes.
        account: of the server that it, or its gateway, talks to.
        broker: behind a gateway on this broker; None speaks HTTP to the server.
    """

    def __init__(self, folder: Path, account: Account, broker: Mosquitto | None = None) -> None:
        self.folder = folder
        self.account = account
        self.device_id = account.device()
        self._children = Children()
        self._broker = broker
        self._history = 0
        self._gateway = None if broker is None else self._children.add(ChildProcess("gateway", folder / "gateway.log"))
        self._agent = self._children.add(ChildProcess("agent", folder / "agent.log"))

    @property
    def is_behind_gateway(self) -> bool:
        """Commands are pushed to it, and not listed."""
        return self._gateway is not None

    def __enter__(self) -> Self:
        for name, value in (("api_key", self.account.api_key), ("secret_key", self.account.secret_key)):
            _keep(self.folder / name, value)
        for name in ("effect.py", "witness.py"):
            shutil.copyfile(Path(programs.__file__).with_name(name), self.folder / name)
        effect = (self.folder / "effect.py").read_text()
        # What it writes down is the number in the payload: ids are the server's own affair.
        (self.folder / "effect.py").write_text(effect.replace('"attempt": attempt,', '"number": payload["number"],'))
        self._configure()
        self._children.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._children.__exit__(None, None, None)

    def start(self) -> None:
        """Start the gateway if it does not run, and the agent."""
        if self._gateway is not None and not self._gateway.running:
            self._gateway.start(_program("device-gateway", "run", "--config", str(self.folder / "gateway.yaml")))
        self._agent.start(_program("device-agent", "run", "--config", str(self.folder / "agent.yaml")))

    def wait_for_first_contact(self, history: int) -> None:
        """Until the agent's journal has so many commands of its first answer; what is sent from now on is work."""
        self._history = history
        self._agent.wait_until(self._has_met, "its first contact", _READY_S)

    def kill(self) -> None:
        """SIGKILL for the agent, and for the gateway."""
        self._agent.kill()
        if self._gateway is not None:
            self._gateway.kill()

    def send(self, numbers: tuple[int, ...]) -> None:
        """Send commands."""
        for number in numbers:
            self.account.send(self.device_id, {"command": "append", "seconds": 0, "number": number})

    def runs(self) -> Counter[int]:
        """Number -> how often its program began."""
        return Counter(int(line["number"]) for line in _lines(self.folder / _RUN))

    def made(self) -> set[int]:
        """Numbers of the readings that the sensor has printed."""
        return {int(line["sequence"]) for line in _lines(self.folder / _READ)}

    def held(self) -> set[int]:
        """Numbers of the readings that wait in the agent's outbox, as of its last commit."""
        rows = self._look_up("SELECT body FROM reading WHERE body IS NOT NULL")
        values = [json.loads(body).get("sensor_data", json.loads(body)) for (body,) in rows]
        return {int(one[READING]) for one in values if READING in one}

    def stored(self) -> list[Stored]:
        """What the server has."""
        return list(self.account.stored(self.device_id))

    def status(self, *options: str) -> str:
        """What ``device-agent status`` prints."""
        arguments = ["status", "--config", str(self.folder / "agent.yaml"), *options]
        return CliRunner().invoke(device_agent, arguments).output

    def log(self) -> str:
        """Of agent and gateway."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def end(self) -> list[str]:
        """SIGTERM; what was wrong with it."""
        code = self._agent.end(30.0)
        problems = [] if code == 0 else [f"the agent ended with {code}"]
        if self._gateway is not None and (code := self._gateway.end(30.0)) != 0:
            problems.append(f"the gateway ended with {code}")
        if "Traceback" in self.log():
            problems.append("there is a traceback in the log")
        return problems

    def wait(self, look: Callable[[], bool], within_s: float = _WORK_S) -> bool:
        """Whether it came to pass in time."""
        with contextlib.suppress(AssertionError):
            return bool(wait_until(look, within_s))
        return False

    def _has_met(self) -> bool:
        return len(self._look_up("SELECT 1 FROM command")) >= self._history

    def _look_up(self, sql: str) -> list[Any]:
        store = self.folder / "state" / FILE_NAME
        content = None
        with contextlib.suppress(StorageError):
            content = read_snapshot(store)
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            if content:
                connection.deserialize(content)
            with contextlib.suppress(sqlite3.OperationalError):  # the agent has made no table yet
                return connection.execute(sql).fetchall()
        return []

    def _configure(self) -> None:
        python = [sys.executable, "-I", "-S"]
        witness = [*python, str(self.folder / "witness.py"), str(self.folder / _READ)]
        agent: dict[str, Any] = {
            "device": {"device_id": self.device_id},
            "state_dir": str(self.folder / "state"),
            "executables": {
                "append": {
                    "argv": [*python, str(self.folder / "effect.py"), str(self.folder / _RUN)],
                    "contract": "once",
                }
            },
            "sensors": [{"name": "witness", "type": "program", "interval_s": 0.25, "settings": {"argv": witness}}],
            "outbox": {"group_window_s": 0.05},
            "safe_mode": {"starts": 0},
            "logging": {"level": "info"},
        }
        keys = {name: str(self.folder / name.removesuffix("_file")) for name in ("api_key_file", "secret_key_file")}
        server = {"base_url": self.account.front.url, "timeout_s": 10}
        if self._broker is None:
            agent["service"] = server
            agent["auth"] = {"mode": "key_pair", "allow_secret_key_on_device": True, **keys}
            agent["commands"] = {"poll": {"fast_s": 0.2, "slow_s": 0.3, "idle_s": 0.5, "spread_s": 0}}
        else:
            broker = {"host": "127.0.0.1", "port": self._broker.port, "tls": False, "reconnect_max_s": 1}
            agent["mqtt"] = {**broker, "receipt_timeout_s": 3}
            agent["auth"] = {"mode": "bearer", "token_file": str(self.folder / "token")}
            self._configure_gateway(server, keys, self._broker.port)
        (self.folder / "state").mkdir(mode=0o700)
        (self.folder / "agent.yaml").write_text(yaml.safe_dump(agent))

    def _configure_gateway(self, server: dict[str, Any], keys: dict[str, str], port: int) -> None:
        state = self.folder / "gateway"
        state.mkdir(mode=0o700)
        token = make_token(secrets.token_bytes)
        with DeviceTokenFile(state / TOKENS) as file:
            file.issue({self.device_id: token}, time.time())
        _keep(self.folder / "token", token.token.reveal())
        gateway = {
            "service": server,
            "auth": keys,
            "state_dir": str(state),
            "http": {"port": 0},
            "mqtt": {"enabled": True, "port": port, "client_id": f"gateway-{self.device_id}"},
            "commands": {"fast_s": 0.3, "idle_s": 0.5, "reconcile_s": 5},
            "readings": {"gather_s": 0.1},
            "metrics": {"enabled": False},
        }
        (self.folder / "gateway.yaml").write_text(yaml.safe_dump(gateway))


def play_agent(play: AgentPlay, fronts: Fronts, wanted: Expectations, *, killed: bool) -> list[str]:
    """A device's life: history, first contact, commands, perhaps a kill, commands, an end in order.

    Returns:
        what was wrong; empty when nothing was.
    """
    began_s = time.monotonic()
    play.send(HISTORY)
    # Pushed commands are told from history by their time, and that is not believed to the second.
    aged_s = time.monotonic() + 1.5 * RESOLUTION_S if play.is_behind_gateway else 0.0
    wait_until(lambda: time.monotonic() > aged_s)
    with play:
        play.start()
        play.wait_for_first_contact(len(HISTORY) if wanted.reads_whole_lists else 1)
        play.send(BEFORE)
        expected = set(BEFORE) | (set(HISTORY) if wanted.runs_open_history else set())
        whole = wanted.reads_whole_lists
        if whole:
            play.wait(lambda: expected <= set(play.runs()))
        held: set[int] = set()
        last_before = 0
        if killed:
            play.kill()
            held = play.held()
            last_before = max(play.made(), default=0)
        play.send(AFTER)
        if killed:
            play.start()
        expected |= set(AFTER)
        if whole:
            play.wait(lambda: expected <= set(play.runs()))
        # The last one before a kill may be lost; one that was made after it may not.
        play.wait(lambda: max(play.made(), default=0) > last_before)
        made = play.made()
        newest = max(made, default=0)
        play.wait(lambda: newest in _numbers(play.stored()))
        problems = wait_for_words(play, wanted)
        problems += play.end()
        # A kill may catch a reading on its way from the sensor to the disk; what the disk held may not be lost.
        due = held if killed else {number for number in made if number < newest}
        due -= play.held()
        problems += check_readings(due | {newest}, play.stored(), READING, wanted)
        work = (*BEFORE, *AFTER)
        problems += check_runs(play.runs(), work, HISTORY, wanted, pushed=play.is_behind_gateway)
        problems += check_requests(play.account.front, time.monotonic() - began_s)
        problems += check_elsewhere(fronts, play.account.secret_key)
    return problems


def wait_for_words(play: AgentPlay, wanted: Expectations) -> list[str]:
    """Until ``device-agent status`` says what it should; what is wrong with its words when the time is over."""
    said = play.wait(lambda: not check_words(play, wanted), _WORDS_S)
    return [] if said else check_words(play, wanted)


def check_words(play: AgentPlay, wanted: Expectations) -> list[str]:
    """``device-agent status`` says that the agent runs, and what it found out about its server."""
    text = play.status()
    if "agent      running" not in text:
        return [f"status does not say that the agent runs: {text[:200]!r}"]
    server = json.loads(play.status("--json"))["server"]
    if play.is_behind_gateway:
        return [] if server is None else [f"an agent behind a gateway says of a server: {server['words']}"]
    if server is None:
        return ["status says nothing of the server"]
    return check_server_words(server["words"], wanted.words)


def _numbers(stored: list[Stored]) -> set[int]:
    return {int(row.values[READING]) for row in stored if READING in row.values}


def _program(name: str, *arguments: str) -> list[str]:
    return [str(program_path(name)), *arguments]


def _keep(path: Path, secret: str) -> None:
    path.touch(mode=0o600)
    path.write_text(secret)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)
