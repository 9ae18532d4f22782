"""The scripted scenario: a real agent under strace lives through three processes while a small service is its world."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from simulator.demo import programs
from tests.fault.disk import Operation
from tests.fault.plugin_folder import make_plugin_folder
from tests.fault.processes import environment
from tests.fault.small_service import Happening, SmallService
from tests.fault.trace import read_traces, strace
from tests.fault.verdict import UNKNOWN

_ROOT: Final = Path(__file__).resolve().parents[2]
_WITHIN_S: Final = 120.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Event:
    """One thing of the recording.

    Attributes:
        kind: ``disk``, ``promise`` (what the agent took for safe), ``effect`` (a handler's line), ``world``.
    """

    at_s: float
    kind: str
    what: Operation | dict[str, Any] | Happening


@dataclass(frozen=True, slots=True)
class Recording:
    """All events in the order of time, and how to start an agent on what they leave."""

    events: tuple[Event, ...]
    plugins: Path


class Scenario:
    """Records itself: :meth:`record`.

    Args:
        folder: where everything goes.
        program: strace's path.
    """

    def __init__(self, folder: Path, program: str) -> None:
        self._folder = folder
        self._program = program
        self._plugins = make_plugin_folder(folder / "plugins")
        self._state = folder / "state"
        self._effects = folder / "effects.jsonl"
        self._promises = folder / "promises.jsonl"
        self._config = folder / "agent.yaml"
        self._traces: list[Path] = []
        self._numbers = iter(range(1000))

    def record(self) -> Recording:
        """Play it.

        Raises:
            RuntimeError: the agent did not do what the script waits for.
        """
        self._state.mkdir(mode=0o700)
        with SmallService() as service:
            write_config(self._config, self._state, service.base_url, self._effects)
            with self._agent() as agent:
                self._first_life(service)
                self._wait(lambda: agent.poll() is not None, "the power cycle")
            with self._agent():
                self._second_life(service)
            with self._agent():
                self._third_life(service)
            happenings = service.happenings
        steps = read_traces(self._traces, self._state, [self._effects, self._promises])
        events = [Event(each.at_s, "world", each) for each in happenings]
        for step in steps:
            if isinstance(step.what, tuple):
                path, line = step.what
                events.append(Event(step.at_s, "promise" if path == str(self._promises) else "effect", line))
            else:
                events.append(Event(step.at_s, "disk", step.what))
        events.sort(key=lambda event: event.at_s)
        return Recording(tuple(events), self._plugins)

    # --- the script -----------------------------------------------------------------------------------------------

    def _first_life(self, service: SmallService) -> None:
        """A new device: every contract, a large payload, a setting, then a power cycle in the middle of work."""
        self._send(service, "repeatable", "only_once")
        self._wait_for_ends(service)
        self._send(service, "only_once", text="x" * 30_000)
        self._send(service, "program")
        service.send(self._id("set"), {"command": "set_interval", "name": "a", "interval_s": 0.2})
        self._wait_for_ends(service)
        self._send(service, "repeatable", seconds=0.5)
        self._be_in_the_middle(service)
        self._send(service, "power_cycle")

    def _second_life(self, service: SmallService) -> None:
        """Recovery; the service is down for a while, so that readings and a result wait; then a batch drains."""
        self._wait_for_ends(service)
        stored = len(service.world.readings)
        service.is_down = True
        self._wait(lambda: self._promised_readings() > 20, "readings in the outbox")
        service.is_down = False
        self._send(service, "repeatable", "only_once", text="y" * 5_000)
        self._wait_for_ends(service)
        self._wait(lambda: len(service.world.readings) > stored + 20, "the backlog at the service")
        service.send(self._id("no"), {"command": UNKNOWN})
        self._wait_for_ends(service)

    def _third_life(self, service: SmallService) -> None:
        """After a stop in order: the log is begun anew; the script ends in the middle of work."""
        self._send(service, "repeatable", "only_once", text="z" * 20_000)
        self._wait_for_ends(service)
        self._send(service, "repeatable", "only_once", "program")
        self._wait_for_ends(service)

    def _be_in_the_middle(self, service: SmallService) -> None:
        """Until the agent has committed something while a handler that must run once had begun and not ended.

        However slow the machine is, the recording has a moment that shows what becomes of such a command.
        """
        since: dict[str, int] = {}

        def is_caught() -> bool:
            begun = {line["command_id"] for line in _lines(self._effects)} & set(sent)
            states = [promise["commands"] for promise in _lines(self._promises)]
            for command_id in begun:
                later = states[since.setdefault(command_id, len(states)) :]
                # The first of them may have been synced before the handler began; the second was not.
                if sum(commands.get(command_id, [""])[0] == "started" for commands in later) > 1:
                    return True
            if not service.list_open():  # it ended before anything else was committed: once more
                sent.append(self._send_one(service, "only_once", seconds=0.5))
            return False

        sent = [self._send_one(service, "only_once", seconds=0.5)]
        self._wait(is_caught, "a commit in the middle of a handler")

    def _send(self, service: SmallService, *handlers: str, seconds: float = 0.0, text: str = "") -> None:
        for handler in handlers:
            self._send_one(service, handler, seconds=seconds, text=text)

    def _send_one(self, service: SmallService, handler: str, *, seconds: float = 0.0, text: str = "") -> str:
        command_id = self._id(handler)
        payload: dict[str, Any] = {"command": handler, "seconds": seconds, "number": next(self._numbers)}
        service.send(command_id, {**payload, "text": text} if handler != "program" else payload)
        return command_id

    def _id(self, handler: str) -> str:
        return f"{handler}-{next(self._numbers)}"

    def _wait_for_ends(self, service: SmallService) -> None:
        self._wait(lambda: not service.list_open(), "the end of all commands")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + _WITHIN_S
        while not is_so():
            if time.monotonic() > until_s:
                log = (self._folder / "agent.log").read_text(errors="replace")
                raise RuntimeError(f"the recording waited in vain for {what}: {log[-2000:]}")
            time.sleep(_LOOK_S)

    def _promised_readings(self) -> int:
        promises = _lines(self._promises)
        return len(promises[-1]["readings"]) if promises else 0

    # --- the agent ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _agent(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process of the agent under strace, stopped in order at the end unless it has ended."""
        self._traces.append(self._folder / f"trace-{len(self._traces)}.txt")
        argv = [sys.executable, "-m", "tests.fault.recorded_agent", "run", "--config", str(self._config)]
        variables = _variables(self._plugins, self._effects, self._promises)
        traced = strace(self._program, self._traces[-1], argv, environment(**variables), self._folder / "agent.log")
        try:
            yield traced
            # strace is no one to ask: the signal goes to what it traces.
            for pid in _children_of(traced.pid):
                os.kill(pid, signal.SIGTERM)
            traced.wait(_WITHIN_S)
        finally:
            if traced.poll() is None:
                os.killpg(traced.pid, signal.SIGKILL)
                traced.wait()


def write_config(path: Path, state: Path, base_url: str, effects: Path) -> None:
    """An agent that reads and polls often; its keys go beside the file."""
    (path.parent / "api_key").write_text("mk_recording\n")
    (path.parent / "secret_key").write_text("msk_recording\n")
    for name in ("api_key", "secret_key"):
        (path.parent / name).chmod(0o600)
    program = [sys.executable, "-I", "-S", str(Path(programs.__file__).with_name("effect.py")), str(effects)]
    configuration = {
        "service": {"base_url": base_url, "timeout_s": 5},
        "device": {"device_id": "recorded"},
        "auth": {
            "mode": "key_pair",
            "allow_secret_key_on_device": True,
            "api_key_file": str(path.parent / "api_key"),
            "secret_key_file": str(path.parent / "secret_key"),
        },
        "state_dir": str(state),
        "commands": {"poll": {"fast_s": 0.05, "slow_s": 0.1, "idle_s": 0.2, "spread_s": 0}, "first_contact": "all"},
        "executables": {"program": {"argv": program, "contract": "once"}},
        "sensors": [{"name": name, "type": "sequence", "interval_s": 0.1} for name in ("a", "b")],
        "outbox": {"group_window_s": 0.05},
        # Being killed is what this agent is for.
        "safe_mode": {"starts": 0},
    }
    path.write_text(yaml.safe_dump(configuration))


def _variables(plugins: Path, effects: Path, promises: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(plugins), str(_ROOT)]),
        "FAULT_EFFECTS": str(effects),
        "FAULT_PROMISES": str(promises),
    }


def _children_of(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file that is being written: whole ones only."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
