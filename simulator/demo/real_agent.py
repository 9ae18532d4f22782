"""The demo's real agent: the program ``device-agent run`` on this machine, its configuration, and its counters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import yaml

from agent.errors import UnexpectedAnswer
from simulator.children import ChildProcess, program_path
from simulator.demo.folder import DemoFolder
from simulator.demo.proofs import OutboxCounters
from simulator.fleet.audit.readings import ReadingFact
from simulator.gateway.broker import Broker
from simulator.keys import write_secret

SENSOR: Final = "board"
WITNESS: Final = "witness"
INTERVAL_S: Final = 1.0
GROUP_WINDOW_S: Final = 0.5
_STATUS_TIMEOUT_S: Final = 60.0
_STOP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Witnessed:
    """One reading of the witness sensor, as its own file has it.

    Attributes:
        at_s: when it was made, epoch seconds.
    """

    fact: ReadingFact
    at_s: float


class RealAgent:
    """The agent as a device runs it.

    Args:
        folder: where everything of it goes.
        child: its process, already with those that are ended in any case.
        broker: where it meets the gateway; it knows no other address.
        device_id: who it is.
    """

    def __init__(self, folder: DemoFolder, child: ChildProcess, broker: Broker, device_id: str) -> None:
        self._folder = folder.agent
        self._child = child
        self._effects = self._folder / "effects.jsonl"
        self._witness = self._folder / "witness.jsonl"
        self.config_path = self._folder / "config.yaml"
        _copy_programs(self._folder)
        self.config_path.write_text(yaml.safe_dump(self._configuration(broker, device_id), sort_keys=False))

    @staticmethod
    def child(folder: DemoFolder) -> ChildProcess:
        """The process, not started."""
        return ChildProcess("device-agent", folder.logs / "agent.log")

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._child.running

    def take_token(self, token: str) -> None:
        """Keep its device token, the only secret that a device has."""
        write_secret(self._folder / "token", token)

    def require_running(self) -> None:
        """Return when the process is there.

        Raises:
            ChildFailed: it has ended; the text shows the end of its log.
        """
        self._child.wait_until(lambda: self._child.running, "its work was done", 0.0)

    def start(self) -> None:
        """Start it, for the first time or again.

        Raises:
            ChildFailed: it could not be started.
        """
        self._child.start([str(program_path("device-agent")), "run", "--config", str(self.config_path)])

    def kill(self) -> None:
        """SIGKILL, the process alone: nothing of it can tidy up."""
        self._child.kill()

    def stop(self) -> int | None:
        """SIGTERM; its exit code."""
        return self._child.end(_STOP_S)

    def runs(self) -> Counter[str]:
        """Command id -> how often one of its programs began, by the programs' own file."""
        return Counter(str(line["command_id"]) for line in _lines(self._effects))

    def witnessed(self) -> tuple[Witnessed, ...]:
        """Every reading that the witness sensor made, by its own file."""
        return tuple(
            Witnessed(
                ReadingFact(line["sequence"], {"witness_sequence": line["sequence"], "witness_check": line["check"]}),
                line["at"],
            )
            for line in _lines(self._witness)
        )

    def outbox(self) -> OutboxCounters:
        """The outbox in ``device-agent status --json``, while the agent runs and after.

        Raises:
            UnexpectedAnswer: the program failed or did not print these counters.
        """
        program = [str(program_path("device-agent")), "status", "--config", str(self.config_path), "--json"]
        try:
            ended = subprocess.run(program, capture_output=True, timeout=_STATUS_TIMEOUT_S, check=False)
            return _outbox(json.loads(ended.stdout)["store"]["outbox"])
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError, TypeError) as error:
            raise UnexpectedAnswer(f"'{' '.join(program)}' did not print the outbox's counters: {error!r}") from None

    def _configuration(self, broker: Broker, device_id: str) -> dict[str, Any]:
        python = [sys.executable, "-I", "-S"]
        effect = [*python, str(self._folder / "programs" / "effect.py"), str(self._effects)]
        witness = [*python, str(self._folder / "programs" / "witness.py"), str(self._witness)]
        return {
            "mqtt": {
                "host": "127.0.0.1",
                "port": broker.port,
                "tls": False,
                "receipt_timeout_s": 5,
                "reconnect_max_s": 2,
                **({} if broker.speaks_v5 else {"version": "3.1.1"}),
            },
            "device": {"device_id": device_id},
            "auth": {"mode": "bearer", "token_file": str(self._folder / "token")},
            "state_dir": str(self._folder / "state"),
            "commands": {"poll": {"fast_s": 0.5, "slow_s": 2, "idle_s": 10, "spread_s": 0}},
            "executables": {
                "open_valve": {"argv": [*effect], "contract": "once", "timeout_s": 60},
                "self_test": {"argv": [*effect], "contract": "idempotent", "timeout_s": 60},
            },
            "sensors": [
                {"name": SENSOR, "type": "system", "interval_s": INTERVAL_S},
                {"name": WITNESS, "type": "program", "interval_s": INTERVAL_S, "settings": {"argv": witness}},
            ],
            "outbox": {"group_window_s": GROUP_WINDOW_S},
        }


def _copy_programs(folder: Path) -> None:
    target = folder / "programs"
    target.mkdir()
    with as_file(files("simulator.demo") / "programs") as source:
        for program in ("effect.py", "witness.py"):
            shutil.copyfile(source / program, target / program)
    (folder / "state").mkdir(mode=0o700)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; the last one only when it is whole."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _outbox(outbox: Mapping[str, Any]) -> OutboxCounters:
    return OutboxCounters(
        accepted=int(outbox["accepted"]),
        delivered=int(outbox["delivered"]),
        waiting=int(outbox["rows"]),
        set_aside=int(outbox["set_aside"]),
        dropped=int(outbox["dropped"]),
    )
