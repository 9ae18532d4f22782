"""What the demo does, in order: start all, load it with a fleet, kill the real agent in the middle, judge both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from agent.errors import AgentError
from agent.wire.models import FINAL_STATES, CommandRecord
from gateway.client import SendCommand
from simulator.children import ChildProcess, Children, program_path
from simulator.demo.agent import WITNESS, RealAgent
from simulator.exit_codes import ExitCode
from simulator.fleet.target.target import running_local
from simulator.keys import keep_keys
from simulator.wire.client import ServiceClient

_READY_S: Final = 90.0
_ENDED_S: Final = 60.0
_RUN_S: Final = 300.0
_DOWN_S: Final = 2.0
_LOOK_S: Final = 0.1

Say = Callable[[str, str], None]
"""Prints one step: who, and what happened."""


@dataclass(frozen=True, slots=True)
class Order:
    """A command to the real agent, and the end that it must come to.

    Attributes:
        status: the final state.
        error: what the reason must begin with; empty for none.
        runs: how often its program must have begun; None where no program counts.
    """

    payload: dict[str, Any]
    status: str = "succeeded"
    error: str = ""
    runs: int | None = None


@dataclass(slots=True)
class Verdict:
    """What the demo came to.

    Attributes:
        code: exit code.
        fleet: exit code of the fleet's run; what is none of ours is a failed check.
        report: the fleet's report.
        failures: what was wrong with the real agent, a sentence each.
        checked: what was checked of it.
    """

    code: ExitCode = ExitCode.GOOD
    fleet: ExitCode = ExitCode.GOOD
    report: str = ""
    failures: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For a program that reads it."""
        return {**asdict(self), "held": self.code is ExitCode.GOOD}


_SIMPLE: Final = (
    Order({"command": "ping", "echo": "hello"}),
    Order({"command": "read_sensors", "names": ["board"]}),
    Order({"command": "make_coffee", "cups": 2}, "rejected", "unknown_command"),
)
_CAUGHT: Final = (
    Order({"command": "open_valve"}, "failed", "indeterminate", runs=1),
    Order({"command": "self_test"}, runs=2),
)
"""In the middle of these the agent is killed: what must not run twice does not, what may runs again."""
_WHILE_DEAD: Final = Order({"command": "ping", "echo": "get up"})
_LAST: Final = Order({"command": "set_interval", "name": WITNESS, "interval_s": 3600})


class Demo:
    """One demo; its processes end with the ``with`` block.

    Args:
        root: the folder, which is empty.
        say: prints one step.
    """

    def __init__(self, root: Path, say: Say) -> None:
        self._root = root
        self._say = say
        self._ends = ExitStack()
        self._children = Children()
        self._sent: dict[str, Order] = {}
        self._device_id = ""

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def play(self, devices: int, seed: int) -> Verdict:
        """All of it.

        Args:
            devices: how many virtual ones.
            seed: of what they measure.

        Raises:
            NotStarted: service or gateway could not be started.
            AgentError: it cannot go on.
        """
        base_url = self._start_service()
        self._ends.enter_context(self._children)
        keys = keep_keys(self._root / "up" / "keys")
        self._client = self._ends.enter_context(ServiceClient(base_url, keys))
        self._agent = RealAgent(
            self._root / "agent",
            self._child("device-agent"),
            self._root / "up" / "gateway" / "mqtt-device" / "config.yaml",
        )
        self._device_id = self._agent.device_id
        self._agent.start()
        self._wait(self._stored, self._agent.look, "the real agent's first reading came", _READY_S)
        self._say("agent", "a real device-agent sends readings over MQTT, by its token, without the keys")
        run = self._start_run(devices, seed)
        self._wait(lambda: self._seen() >= devices, self._agent.look, "the virtual devices came online", _READY_S)
        self._cut_down()
        verdict = Verdict(report=str(self._root / "run" / "report.html"))
        self._wait(lambda: not run.running, lambda: None, "the fleet's run ended", _RUN_S)
        known = run.exit_code in set(ExitCode)
        verdict.fleet = ExitCode(run.exit_code or 0) if known else ExitCode.CHECK_FAILED
        self._say("fleet", f"the run's own audit: exit code {verdict.fleet}")
        self._judge(verdict)
        return verdict

    def _child(self, name: str) -> ChildProcess:
        logs = self._root / "logs"
        logs.mkdir(exist_ok=True)
        return self._children.add(ChildProcess(name, logs / f"{name.split()[-1]}.log"))

    def _start_service(self) -> str:
        """The service's address."""
        standing = self._ends.enter_context(running_local(self._root / "up", gateway=True))
        self._say("service", f"listens on {standing.base_url}, its data on the disk")
        self._say("gateway", f"listens on {standing.gateway_url}; broker: {standing.broker}")
        return standing.base_url

    def _start_run(self, devices: int, seed: int) -> ChildProcess:
        scenario = yaml.safe_load((files("simulator.demo") / "scenario.yaml").read_text())
        scenario["seed"] = seed
        scenario["fleet"]["devices"] = devices
        path = self._root / "scenario.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False))
        run = self._child("fleet-simulator run")
        options = [f"--up={self._root / 'up'}", f"--out={self._root / 'run'}"]
        run.start([str(program_path("fleet-simulator")), "run", str(path), *options])
        self._say("fleet", f"{devices} virtual devices measure and answer; a third of them will lose its power")
        return run

    def _cut_down(self) -> None:
        """Kill the real agent in the middle of two commands, and let it come back."""
        for order in _SIMPLE:
            self._send(order)
        self._wait_ended()
        caught = {self._send(order) for order in _CAUGHT}
        self._wait(lambda: caught <= self._agent.runs().keys(), self._agent.look, "both programs began", _ENDED_S)
        self._agent.kill()
        self._say("agent", "SIGKILL in the middle of two commands")
        self._send(_WHILE_DEAD)
        time.sleep(_DOWN_S)
        self._agent.start()
        self._say("agent", "started again")
        self._wait_ended()
        self._say("agent", f"all of its {len(self._sent)} commands have ended")

    def _judge(self, verdict: Verdict) -> None:
        """Compare what the agent's programs wrote down with what the service has."""
        self._send(_LAST)
        self._wait_ended()
        listed = [record for record in self._client.device_commands(self._device_id).records if record.id in self._sent]
        wrong_commands = self._wrong_commands(listed)
        verdict.failures += wrong_commands
        if not wrong_commands:
            text = f"{len(self._sent)} commands ended as they must, each program ran as often as promised"
            verdict.checked.append(text)
        made = self._agent.measured()
        deadline_s = time.monotonic() + _ENDED_S
        while (missing := self._missing(made)) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        stored = self._stored()
        numbers = Counter(number for number, _ in stored)
        wrong = [f"reading {number} is stored {count} times" for number, count in numbers.items() if count > 1]
        wrong += [
            f"reading {number} was altered: {value}, not {made.get(number)}"
            for number, value in stored
            if made.get(number) != value
        ]
        if missing:
            wrong.append(f"{len(missing)} of {len(made)} readings never came: {sorted(missing)[:10]}")
        verdict.failures += wrong
        if not stored:
            verdict.failures.append("none of its numbered readings is stored, so nothing can be said of them")
        elif not wrong:
            verdict.checked.append(f"{len(stored)} numbered readings are stored, each once and unaltered")
        if wrong:
            verdict.code = ExitCode.DATA_LOST
        elif verdict.failures:
            verdict.code = ExitCode.CHECK_FAILED
        else:
            verdict.code = verdict.fleet

    def _missing(self, made: Mapping[int, float]) -> set[int]:
        stored = {number for number, _ in self._stored()}
        return made.keys() - stored - self._agent.taken_by_kill(stored)

    def _stored(self) -> list[tuple[int, Any]]:
        """The numbered readings that the service has: number and value."""
        keys = ["witness_sequence", "witness_check"]
        records = [record.sensor_data for record in self._client.sensor_data(self._device_id, keys=keys)]
        return [(one["witness_sequence"], one.get("witness_check")) for one in records if "witness_sequence" in one]

    def _wrong_commands(self, listed: list[CommandRecord]) -> list[str]:
        found = []
        for command_id, order in self._sent.items():
            records = [record for record in listed if record.id == command_id]
            name = order.payload["command"]
            if len(records) != 1:
                found.append(f"{name}: listed {len(records)} times, not once")
                continue
            reason = records[0].error or records[0].status_reason or ""
            if records[0].status != order.status or not reason.startswith(order.error):
                wanted = f"{order.status} {order.error}".rstrip()
                found.append(f"{name}: ended as {records[0].status} {reason}, not as {wanted}")
            runs = self._agent.runs()[command_id]
            if order.runs is not None and runs != order.runs:
                found.append(f"{name}: its program began {runs} times, not {order.runs}")
        return found

    def _send(self, order: Order) -> str:
        record = self._client.send_command(SendCommand(device_id=self._device_id, command_payload=order.payload))
        command_id = record.stable_id()
        self._sent[command_id] = order
        return command_id

    def _wait_ended(self) -> None:
        def ended() -> bool:
            records = self._client.device_commands(self._device_id).records
            return self._sent.keys() <= {record.id for record in records if record.status in FINAL_STATES}

        self._wait(ended, self._agent.look, "all commands ended", _ENDED_S)

    def _seen(self) -> int:
        """How many devices beside the real one have asked for something."""
        return sum(one.last_seen_at is not None for one in self._client.devices()) - 1

    def _wait(self, met: Callable[[], object], look: Callable[[], None], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not met():
            look()
            if time.monotonic() > deadline_s:
                raise AgentError(f"not within {timeout_s:g} s: {what}; look into {self._root / 'logs'}")
            time.sleep(_LOOK_S)
