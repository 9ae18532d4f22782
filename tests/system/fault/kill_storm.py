"""A storm: several agents under load, each killed again and again at random, their service now and then as well.

Two thirds of the kills come at a random moment after the agent is ready: during a poll, a commit, a program, a send.
The others come at a random moment after the process began: during start-up and recovery. Every 25th agent is started
as a user starts it, by ``exec`` of ``device-agent run``; the others are forked by a process that has imported
everything (:mod:`tests.system.fault.fork_server`), since what a fresh interpreter does for a second is no work of ours.

The books are kept outside: :mod:`tests.system.fault.verdict` says what they are and what must be true of them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from agent.errors import ServiceError
from agent.store.sqlite import FILE_NAME
from agent.wire.models import FINAL_STATES
from agent.wire.secret import KeyPair, Secret
from gateway.client import SendCommand
from simulator.children import ChildProcess, program_path
from simulator.wire.client import ServiceClient
from tests.support.canary import SECRET_KEY
from tests.support.ports import free_port
from tests.system.agent_bench import plugin_folder
from tests.system.fault.processes import ForkedProcess, ForkServer, Victim, end_all, environment
from tests.system.fault.rig import API_KEY, agent_configuration, register, service_argv, write_files
from tests.system.fault.verdict import Books, Seen, look_at, read_effects

SENSORS: Final = ("a", "b")
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")
_READY: Final = b"agent=ready"
_READY_WITHIN_S: Final = 60.0
_SETTLE_WITHIN_S: Final = 240.0
_SETTLE_LOOK_S: Final = 0.2
_SLICE_S: Final = 0.02
_SERVICE_LIVES_S: Final = (4.0, 10.0)
_COMMAND_EVERY_S: Final = (0.05, 0.5)
_EXEC_EVERY: Final = 25
_LOG_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """What a storm does.

    Attributes:
        seed: of every random choice; threads and processes still take their own time.
        cycles: how often an agent is killed, over all devices.
        devices: how many agents run at the same time.
        changes: faults planted into the forked processes, ``module:function``; real ones are not started then.
        service_dies: whether the service is killed as well.
    """

    seed: int
    cycles: int
    devices: int = 6
    changes: tuple[str, ...] = ()
    service_dies: bool = True


class Device:
    """One agent's files, its process, and what was seen of it."""

    def __init__(self, number: int, folder: Path, device_id: str) -> None:
        self.number = number
        self.folder = folder
        self.id = device_id
        self.log = folder / "agent.log"
        self.effects = folder / "effects.jsonl"
        self.state = folder / "state"
        self.sent: list[tuple[str, str]] = []
        self.looks: Seen = Seen()
        self.ended_by_itself: list[int] = []
        self.victim: Victim | None = None
        self.log_from = 0
        self.started_us = 0

    def is_ready(self) -> bool:
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(self.log_from)
            return _READY in log.read()
        return False

    def begin_log(self) -> None:
        """The next process's lines begin at the end of the file, which does not grow for ever."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size > _LOG_MAX_BYTES:
            self.log.replace(self.log.with_suffix(".old"))
            size = 0
        self.log_from = size


class Storm:
    """Everything of one storm; :meth:`run` it once.

    Args:
        folder: where all of it goes; it may be deleted afterwards.
        plan: what to do.
        on_progress: told how many cycles are done, now and then.
    """

    def __init__(self, folder: Path, plan: Plan, on_progress: Callable[[int], None] = lambda _cycles: None) -> None:
        self._folder = folder
        self._plan = plan
        self._on_progress = on_progress
        self._plugins = make_plugin_folder(folder / "plugins")
        self._server = ForkServer(self._plugins, plan.changes)
        self._service: ForkedProcess | None = None
        self._port = free_port()
        self._cycles = itertools.count(1)
        self._stop = threading.Event()
        self._errors: list[BaseException] = []

    def run(self) -> Books:
        """Start everything, let it storm, let it settle, end everything: the books.

        Raises:
            Exception: the storm itself failed, such as a service that does not start.
        """
        write_files(self._folder)
        with self._server:
            devices: list[Device] = []
            try:
                self._start_service()
                devices = self._register()
                self.rage(devices)
                if self._errors:
                    raise self._errors[0]
                for device in devices:
                    self.start_agent(device, forked=True)
                self._settle(devices)
                end_all([device.victim for device in devices if device.victim])
                return self._close_books(devices)
            finally:
                end_all([device.victim for device in devices if device.victim])
                if self._service:
                    self._service.end()

    # --- the storm ------------------------------------------------------------------------------------------------

    def rage(self, devices: Sequence[Device]) -> None:
        """Until all cycles are done; no agent runs then."""
        killers = [threading.Thread(target=self._guarded(self._kill_again_and_again), args=(each,)) for each in devices]
        others = [threading.Thread(target=self._guarded(self._send_commands), args=(each,)) for each in devices]
        if self._plan.service_dies:
            others.append(threading.Thread(target=self._guarded(self._kill_the_service), args=(None,)))
        for thread in (*killers, *others):
            thread.start()
        for thread in killers:
            thread.join()
        self._stop.set()
        for thread in others:
            thread.join()

    def _guarded(self, work: Callable[[Device], None]) -> Callable[[Device], None]:
        def guard(device: Device) -> None:
            try:
                work(device)
            except BaseException as error:  # noqa: BLE001 - handed to whoever runs the storm
                self._errors.append(error)
                self._stop.set()

        return guard

    def _kill_again_and_again(self, device: Device) -> None:
        chance = random.Random(f"{self._plan.seed} kills {device.number}")
        while not self._stop.is_set() and (cycle := next(self._cycles)) <= self._plan.cycles:
            forked = bool(self._plan.changes) or cycle % _EXEC_EVERY != 0
            self.start_agent(device, forked=forked)
            if chance.random() < 1 / 3:
                self.live(device, chance.uniform(0.0, 0.25 if forked else 1.5))
            else:
                self._wait_until_ready(device)
                self.live(device, chance.uniform(0.0, 0.7))
            self.kill(device)
            self._on_progress(cycle)

    def live(self, device: Device, seconds: float) -> None:
        """Let it live this long, unless it ends by itself."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and device.victim and device.victim.running:
            time.sleep(min(_SLICE_S, left_s))

    def _wait_until_ready(self, device: Device) -> None:
        until_s = time.monotonic() + _READY_WITHIN_S
        while device.victim and device.victim.running and not device.is_ready():
            if time.monotonic() > until_s:
                raise RuntimeError(f"the agent was not ready within {_READY_WITHIN_S:g} s: {device.log}")
            time.sleep(_SLICE_S)

    def kill(self, device: Device) -> None:
        """SIGKILL, and a look at its store."""
        victim = device.victim
        assert victim is not None
        ended_with = victim.exit_code
        victim.kill()
        # A command power_cycle ends it with SIGKILL, which is as good as ours.
        if ended_with not in {None, -9}:
            device.ended_by_itself.append(ended_with or 0)
        device.looks.add(look_at(device.state / FILE_NAME, self._folder / f"peek-{device.number}"))

    def _kill_the_service(self, _device: Device | None) -> None:
        chance = random.Random(f"{self._plan.seed} service")
        while not self._stop.wait(chance.uniform(*_SERVICE_LIVES_S)):
            assert self._service is not None
            self._service.kill()
            self._stop.wait(chance.uniform(0.0, 0.5))
            self._start_service()

    def _send_commands(self, device: Device) -> None:
        chance = random.Random(f"{self._plan.seed} commands {device.number}")
        with self.client() as client:
            for number in itertools.count():
                payload = _payload(chance, number)
                with contextlib.suppress(ServiceError):
                    record = client.send_command(SendCommand(device_id=device.id, command_payload=payload))
                    assert record.id is not None
                    device.sent.append((record.id, payload["command"]))
                if self._stop.wait(chance.uniform(*_COMMAND_EVERY_S)):
                    return

    # --- after the storm ------------------------------------------------------------------------------------------

    def _settle(self, devices: Sequence[Device]) -> None:
        """Until every command has ended and every outbox is empty; what has not by then is found in the books."""
        until_s = time.monotonic() + _SETTLE_WITHIN_S
        with self.client() as client:
            left = list(devices)
            while left and time.monotonic() < until_s:
                for device in left:
                    self._revive(device)
                left = [device for device in left if not self._has_settled(client, device)]
                time.sleep(_SETTLE_LOOK_S)

    def _revive(self, device: Device) -> None:
        if device.victim and not device.victim.running:
            if device.victim.exit_code != -9:
                device.ended_by_itself.append(device.victim.exit_code or 0)
            self.start_agent(device, forked=True)

    def _has_settled(self, client: ServiceClient, device: Device) -> bool:
        try:
            records = client.device_commands(device.id, status="open").records
        except ServiceError:
            return False
        if any(record.status not in FINAL_STATES for record in records):
            return False
        look = look_at(device.state / FILE_NAME, self._folder / f"peek-{device.number}")
        # What a running agent reads now follows; nothing older may be left.
        return all(life >= device.started_us for life in look.lives)

    def _close_books(self, devices: Sequence[Device]) -> Books:
        books = Books()
        with self.client() as client:
            for device in devices:
                last = look_at(device.state / FILE_NAME, self._folder / f"peek-{device.number}", whole=True)
                device.looks.add(last)
                records = client.device_commands(device.id).records
                stored = Counter(
                    (sensor, int(record.sensor_data[f"{sensor}_life"]), int(record.sensor_data[f"{sensor}_number"]))
                    for record in client.sensor_data(device_id=device.id)
                    for sensor in SENSORS
                    if f"{sensor}_life" in record.sensor_data
                )
                books.add(
                    sent=dict(device.sent),
                    records={str(record.id): record for record in records},
                    effects=read_effects(device.effects),
                    seen=device.looks,
                    waiting=last.readings,
                    stored=stored,
                    ended_by_itself=device.ended_by_itself,
                )
        return books

    # --- processes ------------------------------------------------------------------------------------------------

    def client(self) -> ServiceClient:
        """A client of the service; close it."""
        return ServiceClient(f"http://127.0.0.1:{self._port}", KeyPair(API_KEY, Secret(SECRET_KEY)))

    def _start_service(self) -> None:
        output = self._folder / "service.out"
        output.write_text("")
        argv = service_argv(self._folder, self._port)
        self._service = self._server.start(argv, self._folder / "service.log", output=output)
        until_s = time.monotonic() + _READY_WITHIN_S
        while not (match := _ADDRESS.search(output.read_text(errors="replace"))):
            if not self._service.running or time.monotonic() > until_s:
                log = (self._folder / "service.log").read_text(errors="replace")
                raise RuntimeError(f"the service did not start: {log[-2000:]}")
            time.sleep(_SLICE_S)
        self._port = int(match.group(1))

    def start_agent(self, device: Device, *, forked: bool) -> None:
        """Start it, by the fork server or as a user does; it is not waited for."""
        device.begin_log()
        device.started_us = time.time_ns() // 1000
        argv = [str(program_path("device-agent")), "run", "--config", str(device.folder / "agent.yaml")]
        variables = {"FAULT_EFFECTS": str(device.effects)}
        if forked:
            device.victim = self._server.start(argv, device.log, variables=variables)
        else:
            child = ChildProcess("agent", device.log)
            child.start(argv, environment(PYTHONPATH=self._server.python_path, **variables))
            device.victim = child

    # --- files ----------------------------------------------------------------------------------------------------

    def _register(self) -> list[Device]:
        names = [f"storm-{number}" for number in range(self._plan.devices)]
        with self.client() as client:
            ids = register(client, names)
        devices = [Device(number, self._folder / names[number], each) for number, each in enumerate(ids)]
        for device in devices:
            self._configure(device)
        return devices

    def _configure(self, device: Device) -> None:
        program = [sys.executable, "-I", "-S", str(self._folder / "effect.py"), str(device.effects)]
        base_url = f"http://127.0.0.1:{self._port}"
        configuration = agent_configuration(self._folder, base_url, device.id, device.state) | {
            "service": {"base_url": base_url, "timeout_s": 5},
            "commands": {"poll": {"fast_s": 0.1, "idle_s": 0.5, "spread_s": 0}},
            "executables": {"program": {"argv": program, "contract": "once"}},
            "sensors": [{"name": name, "type": "sequence", "interval_s": 0.2} for name in SENSORS],
        }
        device.folder.mkdir()
        device.state.mkdir(mode=0o700)
        (device.folder / "agent.yaml").write_text(yaml.safe_dump(configuration))


def _payload(chance: random.Random, number: int) -> dict[str, object]:
    """A command of each contract, most of them short; now and then a large one, which moves many pages at once."""
    name = chance.choices(["repeatable", "only_once", "program", "power_cycle", "restart_agent"], [40, 40, 12, 6, 2])[0]
    if name == "restart_agent":
        return {"command": name}
    if name == "program":
        return {"command": name, "seconds": 0, "number": number}
    text = "x" * chance.choice([0, 0, 0, 100, 20_000])
    return {"command": name, "seconds": round(chance.choice([0.0, 0.02, 0.2]), 2), "number": number, "text": text}


_ENTRY_POINTS = """
[agent.handlers]
repeatable = fault_effects:Repeatable
only_once = fault_effects:OnlyOnce
power_cycle = fault_effects:PowerCycle

[agent.sensors]
sequence = fault_effects:Sequence
"""


def make_plugin_folder(folder: Path) -> Path:
    """Put the package there; with the folder on ``PYTHONPATH`` the agent finds it as it finds any other."""
    text = Path(__file__).with_name("fault_effects.py").read_text("utf-8")
    return plugin_folder(folder, "fault_effects", text, _ENTRY_POINTS.lstrip())
