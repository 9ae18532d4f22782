"""A package of handlers and a sensor for agents that are killed: every effect goes into a file outside of the agent.

One line is one ``write`` to a file opened with ``O_APPEND``, so a SIGKILL leaves whole lines, and a line is there from
the moment that the call began. ``FAULT_EFFECTS`` names the file.
"""

from __future__ import annotations

import json
import os
import signal
import time

from agent import CommandContext, Contract, Handler, HandlerPayload, Sensor, SensorSettings


def write_down(path: str, line: dict[str, object]) -> None:
    """Append one line with one call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


class _Work(HandlerPayload):
    seconds: float = 0.0
    number: int = 0
    text: str = ""


class _Written(Handler):
    """Writes down that it begins and that it has ended."""

    Payload = _Work

    def handle(self, payload: _Work, context: CommandContext) -> dict[str, object] | None:
        self.note("begin", context)
        context.stopping.wait(payload.seconds)
        self.note("end", context)
        return {"number": payload.number, "text": payload.text}

    def note(self, what: str, context: CommandContext) -> None:
        line = {
            "command_id": context.command_id,
            "handler": self.name,
            "what": what,
            "attempt": context.attempt,
            "at": time.time(),
        }
        write_down(os.environ["FAULT_EFFECTS"], line)


class Repeatable(_Written):
    """May run again."""

    name = "repeatable"
    contract = Contract.IDEMPOTENT


class OnlyOnce(_Written):
    """Must not run twice."""

    name = "only_once"
    contract = Contract.ONCE


class PowerCycle(_Written):
    """Takes its own process down, as a reboot does; the process that comes after says so."""

    name = "power_cycle"
    contract = Contract.RESTARTS_DEVICE

    def handle(self, payload: _Work, context: CommandContext) -> dict[str, object] | None:
        if context.restarted:
            self.note("after", context)
            return {"number": payload.number}
        self.note("begin", context)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class Sequence(Sensor):
    """1, 2, 3 ... of this process: a hole in what is stored is a reading that was lost."""

    type = "sequence"
    Settings = SensorSettings

    def __init__(self, settings: SensorSettings) -> None:
        super().__init__(settings)
        # Microseconds since the epoch are whole numbers in a double until the year 2255.
        self._life = time.time_ns() // 1000
        self._number = 0

    def read(self) -> dict[str, float]:
        self._number += 1
        return {"life": self._life, "number": self._number}
