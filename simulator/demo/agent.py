"""The demo's real agent: ``device-agent run`` with programs that write down outside of it what they did."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from simulator.children import ChildProcess, program_path

WITNESS: Final = "witness"
UNCOMMITTED_S: Final = 2.0
"""A reading that was made so shortly before a kill may not have been committed yet."""
_EFFECT: Final = 'echo "{\\"command_id\\": \\"$COMMAND_ID\\"}" >> "$1"; sleep 3; echo "{}"'
"""A handler: it is in the ledger before its work begins, so a run that a SIGKILL cuts short is counted as well."""


class RealAgent:
    """The agent as a device runs it, and the books that its programs keep.

    Args:
        folder: where its configuration, books and state go.
        child: its process.
        ready: a configuration that reaches the gateway, as ``fleet-simulator up`` writes it.
    """

    def __init__(self, folder: Path, child: ChildProcess, ready: Path) -> None:
        self._child = child
        self.effects = folder / "effects.jsonl"
        self.witness = folder / "witness.jsonl"
        self._killed_at_s = self._back_at_s = 0.0
        self.config_path = folder / "config.yaml"
        (folder / "state").mkdir(parents=True, mode=0o700)
        effect = ["/bin/sh", "-c", _EFFECT, "effect", str(self.effects)]
        witness = [sys.executable, "-I", "-S", str(Path(__file__).with_name("witness.py")), str(self.witness)]
        configuration: dict[str, Any] = yaml.safe_load(ready.read_text())
        self.device_id = str(configuration["device"]["device_id"])
        configuration |= {
            "state_dir": str(folder / "state"),
            "commands": {"poll": {"fast_s": 0.5, "idle_s": 10, "spread_s": 0}},
            "executables": {
                "open_valve": {"argv": effect, "contract": "once", "timeout_s": 60},
                "self_test": {"argv": effect, "contract": "idempotent", "timeout_s": 60},
            },
            "sensors": [
                {"name": "board", "type": "system", "interval_s": 1},
                {"name": WITNESS, "type": "program", "interval_s": 1, "settings": {"argv": witness}},
            ],
        }
        # Without aliases for what stands there twice.
        self.config_path.write_text(json.dumps(configuration, indent=2) + "\n")

    def start(self) -> None:
        """Start it, for the first time or again.

        Raises:
            NotStarted: it could not be started.
        """
        self._back_at_s = time.time()
        self._child.start([str(program_path("device-agent")), "run", "--config", str(self.config_path)])

    def look(self) -> None:
        """Raise :class:`~simulator.children.ChildFailed` when it has ended."""
        self._child.look()

    def kill(self) -> None:
        """SIGKILL, the process alone: nothing of it can tidy up."""
        self._killed_at_s = time.time()
        self._child.kill()

    def runs(self) -> Counter[str]:
        """Command id -> how often a program began for it, by the program's own file."""
        return Counter(str(line["command_id"]) for line in _lines(self.effects))

    def measured(self) -> dict[int, float]:
        """What the numbered sensor measured, by its own file: number -> value."""
        return {one["sequence"]: one["check"] for one in _lines(self.witness)}

    def taken_by_kill(self, stored: Collection[int]) -> set[int]:
        """The numbers that the kill may have taken, where these are stored: see :func:`last_uncommitted`."""
        times = {one["sequence"]: one["at"] for one in _lines(self.witness)}
        return last_uncommitted(times, self._killed_at_s, self._back_at_s, stored)


def last_uncommitted(times: Mapping[int, float], killed_s: float, back_s: float, stored: Collection[int]) -> set[int]:
    """The readings that a kill may have taken: made shortly before it, or by a program that outlived the agent.

    The outbox commits in order. So these are the last ones before the agent was back; one that is missing before a
    stored one is lost.

    Args:
        times: number of each reading -> when it was made, seconds since the epoch.
        killed_s: when the agent was killed.
        back_s: when it was started again.
        stored: the numbers that the service has.
    """
    before = {number for number, at in times.items() if at < back_s}
    newest = max((number for number in before if number in stored), default=0)
    return {number for number in before if number > newest and times[number] >= killed_s - UNCOMMITTED_S}


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; the last one only when it is whole."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
