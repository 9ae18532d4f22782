"""A service, a broker, a gateway, agents on each of the three ways and a fleet, as real processes that stay alive."""

from __future__ import annotations

import json
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from agent.wire.registration import RegisterDevice
from agent.wire.sensor_data import PostSensorData
from gateway.devices.token_file import FILE_NAME as TOKENS
from gateway.devices.token_file import DeviceTokenFile
from gateway.devices.tokens import make_token
from gateway.store.schema import FILE_NAME as GATEWAY_DATABASE
from gateway.store.schema import open_or_replace
from gateway.store.values import StoredState
from simulator.children import ChildProcess, program_path
from simulator.wire.products import NewProduct
from tests.fault.gateway_rig import GatewayRig
from tests.fault.rig import API_KEY
from tests.ports import free_port

DIRECT, FRONT, MQTT = "http", "gateway http", "mqtt"
CURVE: Final = "curve"
_READY_S: Final = 120.0
_BATCH: Final = 500
_ASKING: Final = 8
_ASKED_BY_EACH: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How much there is of everything.

    Attributes:
        duration_s: how long it is watched.
        agents: how many of them on each way.
        fleet: virtual devices.
        earlier_readings: stored before anything begins. SQLite keeps up to 16 MB of pages for the service's writing
            connection; a database that is small at minute ten would fill them during the run, which is no leak.
        earlier_commands: reported ones in the gateway's journal, and as many keys of readings, for the same reason.
        command_every_s: from one command of the operator to the next, over all agents.
        sample_every_s: from one look at the processes to the next.
        fleet_extra_s: the fleet works longer than it is watched, by this much.
    """

    duration_s: float
    agents: tuple[tuple[str, int], ...] = ((DIRECT, 6), (FRONT, 6), (MQTT, 8))
    fleet: int = 50
    earlier_readings: int = 200_000
    earlier_commands: int = 20_000
    command_every_s: float = 1.0
    sample_every_s: float = 10.0
    fleet_extra_s: float = 60.0


class SteadyAgent:
    """One real ``device-agent``, its files and its device."""

    def __init__(self, name: str, way: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.way, self.folder = name, way, folder
        self.device_id = ""
        self.child = ChildProcess(name, folder / "agent.log")
        self.effects, self.witness = folder / "effects.jsonl", folder / "witness.jsonl"

    def is_ready(self) -> bool:
        """Whether its log says so."""
        return "agent=ready" in (self.folder / "agent.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it; it is not waited for."""
        self.child.start([str(program_path("device-agent")), "run", "--config", str(self.folder / "agent.yaml")])


class SteadyRig(GatewayRig):
    """Everything but the operator; the inherited single agent stays unused.

    Attributes:
        agents: the real ones.
        chatty_id: a device that a test plays over MQTT.
        away_id: a device of the gateway that never comes.
    """

    def __init__(self, folder: Path, mosquitto: str, plan: Plan) -> None:
        super().__init__(folder, mosquitto)
        self.plan = plan
        self.metrics_port = free_port()
        names = [(f"agent {way} {number}", way) for way, count in plan.agents for number in range(1, count + 1)]
        self.agents = [SteadyAgent(name, way, folder / name.replace(" ", "-")) for name, way in names]
        for each in self.agents:
            self._children.add(each.child)
        self.fleet = self._children.add(ChildProcess("fleet", folder / "fleet.log"))
        self.chatty_id = self.away_id = ""

    @property
    def fleet_out(self) -> Path:
        """Where the fleet leaves its record."""
        return self.folder / "fleet"

    def start_all(self) -> None:
        """Start what does not run yet, one after the other, and wait until the gateway serves and the fleet moves."""
        self._store_earlier_readings()
        self._fill_gateway_journal()
        self.start_gateway()
        self.wait_for_gateway()
        self._use_all_readers()
        for each in self.agents:
            each.start()
            # One after the other: twenty that start at the same time keep a small machine busy for a minute.
            each.child.wait_until(each.is_ready, "it was ready", _READY_S)
        self._start_fleet()
        seconds = self.fleet_out / "seconds.jsonl"
        self.fleet.wait_until(lambda: seconds.exists() and seconds.stat().st_size > 0, "its devices moved", _READY_S)

    def processes(self) -> dict[str, int]:
        """Name and process id of everything that is to stay alive."""
        found = {"service": self.service.pid, "broker": self.broker.pid, "gateway": self.gateway.pid}
        found |= {each.name: each.child.pid for each in self.agents}
        found["fleet"] = self.fleet.pid
        missing = [name for name, pid in found.items() if pid is None]
        if missing:
            raise RuntimeError(f"{', '.join(missing)}: ended before the run began; look at the logs in {self.folder}")
        fleet = self.fleet.pid or 0
        found |= {f"fleet child {number}": pid for number, pid in enumerate(_children_of(fleet), 1)}
        return {name: pid for name, pid in found.items() if pid is not None}

    def _store_earlier_readings(self) -> None:
        with self.client() as client:
            for begin in range(0, self.plan.earlier_readings, _BATCH):
                rows = range(begin, min(begin + _BATCH, self.plan.earlier_readings))
                client.post_sensor_data_batch(
                    [PostSensorData(device_id=self.load_device_id, sensor_data={"earlier": each}) for each in rows]
                )

    def _use_all_readers(self) -> None:
        """Ask so often at once that the service starts all threads of its pools; it does that as they are needed."""

        def ask(_number: int) -> None:
            with self.client() as client:
                for _ in range(_ASKED_BY_EACH):
                    client.device_commands(self.away_id)
                    next(client.sensor_data(self.load_device_id, limit=10))

        with ThreadPoolExecutor(_ASKING) as pool:
            for _ in pool.map(ask, range(_ASKING)):
                pass

    def _fill_gateway_journal(self) -> None:
        now_s = time.time()
        numbers = range(self.plan.earlier_commands)
        record = json.dumps({"command_payload": {"command": "append", "parameters": {"text": "x" * 200}}})
        connection, damage = open_or_replace(self.folder / "gateway" / GATEWAY_DATABASE, now_s)
        if damage:
            raise RuntimeError(damage)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO command (device_id, id, state, record, created_at, expires_at, changed_wall_s)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((self.away_id, f"earlier-{n}", StoredState.REPORTED, record, now_s, None, now_s) for n in numbers),
            )
            connection.executemany(
                "INSERT INTO taken VALUES (?, ?, ?)", ((self.away_id, f"earlier-{n}", now_s) for n in numbers)
            )
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _start_fleet(self) -> None:
        scenario = {
            "scenario": "steady",
            "seed": 1,
            "workers": 1,
            # A few connections, which are all open before the watch begins.
            "target": {"transport": "http_poll", "pool": 4},
            "fleet": {
                "devices": self.plan.fleet,
                "models": [{"telemetry": {"every_s": 20}, "poll": {"every_s": 20}}],
            },
            "commands": [{"payload": {"command": "ping"}, "rate_per_s": 0.2, "ttl_s": 600}],
            "phases": [
                {"name": "ramp", "kind": "ramp", "duration_s": 5},
                {"name": "hold", "kind": "hold", "duration_s": self.plan.duration_s + self.plan.fleet_extra_s},
            ],
            "drain_s": 120,
            "thresholds": ["audit.lost == 0"],
        }
        path = self.folder / "fleet.yaml"
        path.write_text(yaml.safe_dump(scenario))
        target = ["--base-url", f"http://127.0.0.1:{self._port}", "--api-key", API_KEY]
        secret = ["--secret-key-file", str(self.folder / "secret_key")]
        program = str(program_path("fleet-simulator"))
        self.fleet.start([program, "run", str(path), "--out", str(self.fleet_out), "--quiet", *target, *secret])

    def _register(self) -> None:
        with self.client() as client:
            product = client.create_product(NewProduct(name="steady")).product_id

            def register(name: str) -> str:
                device = RegisterDevice(
                    user_id="user-1", product_id=product, device_name=name, device_identifier=name, qr_info={}
                )
                return client.register_device(device).device_id

            for each in self.agents:
                each.device_id = register(each.name)
            self.load_device_id, self.chatty_id, self.away_id = map(register, ("load", "chatty", "away"))

    def _configure(self) -> None:
        state = self.folder / "gateway"
        state.mkdir(mode=0o700)
        ids = [each.device_id for each in self.agents if each.way != DIRECT] + [self.chatty_id, self.away_id]
        tokens = {device_id: make_token(secrets.token_bytes) for device_id in ids}
        with DeviceTokenFile(state / TOKENS) as file:
            file.issue(tokens, time.time())
        keys = {name: str(self.folder / name.removesuffix("_file")) for name in ("api_key_file", "secret_key_file")}
        gateway = {
            "service": {"base_url": f"http://127.0.0.1:{self._port}"},
            "auth": keys,
            "state_dir": str(state),
            "http": {"port": self.http_port},
            "mqtt": {"enabled": True, "port": self.broker.port},
            "metrics": {"port": self.metrics_port},
        }
        (self.folder / "gateway.yaml").write_text(yaml.safe_dump(gateway))
        for number, each in enumerate(self.agents):
            configuration = self._agent(each, is_polling=number % 3 == 2)
            if each.way == DIRECT:
                configuration["auth"] = {"mode": "key_pair", "allow_secret_key_on_device": True, **keys}
            else:
                token = each.folder / "token"
                token.write_text(tokens[each.device_id].token.reveal())
                token.chmod(0o600)
                configuration["auth"] = {"mode": "bearer", "token_file": str(token)}
            (each.folder / "agent.yaml").write_text(yaml.safe_dump(configuration))

    def _agent(self, agent: SteadyAgent, *, is_polling: bool) -> dict[str, Any]:
        (agent.folder / "state").mkdir(mode=0o700)
        python = [sys.executable, "-I", "-S"]
        is_long = self.plan.duration_s > _READY_S
        # Longer than the interval of the other sensor: so both are read at the same time from the beginning, and the
        # pool has all its threads when the watch begins.
        slowly = ["/bin/sh", "-c", 'sleep 8; exec "$0" "$@"'] if is_long else []
        configuration: dict[str, Any] = {
            "device": {"device_id": agent.device_id},
            "state_dir": str(agent.folder / "state"),
            "executables": {
                "append": {
                    "argv": [*python, str(self.folder / "effect.py"), str(agent.effects)],
                    "contract": "once",
                }
            },
            "sensors": [
                {
                    "name": "witness",
                    "type": "program",
                    "interval_s": 30 if is_long else 2,
                    "settings": {
                        "argv": [*slowly, *python, str(self.folder / "witness.py"), str(agent.witness)],
                        # A reading that its program wrote down and nobody waited for would count as lost.
                        "timeout_s": 25,
                    },
                },
                {"name": CURVE, "type": "simulated", "interval_s": 7, "settings": {"shape": "random_walk"}},
            ],
        }
        if agent.way == MQTT:
            configuration["mqtt"] = {"host": "127.0.0.1", "port": self.broker.port, "tls": False}
        else:
            port = self._port if agent.way == DIRECT else self.http_port
            configuration["service"] = {"base_url": f"http://127.0.0.1:{port}"}
        if is_polling:
            configuration["commands"] = {"long_poll": "off", "poll": {"fast_s": 3, "slow_s": 5, "idle_s": 5}}
        return configuration


def numbers_of(ledger: Path) -> set[int]:
    """The readings that a witness wrote down."""
    if not ledger.exists():
        return set()
    return {json.loads(line)["sequence"] for line in ledger.read_text().splitlines(keepends=True) if line[-1:] == "\n"}


def _children_of(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return sorted(found)
