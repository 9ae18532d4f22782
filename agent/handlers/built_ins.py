"""The handlers that the agent brings along, as far as it must know them before the first command for one comes.

Only then is a handler imported (:class:`LateHandler`), since most devices never use most of them. One that has a
section in the configuration is created when the agent starts, as an installed one is: its settings have to be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from agent.core.values import Contract
from agent.frozen import dataclass


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """What its class says, which ``tests/unit/agent/handlers/test_built_ins.py`` holds it to.

    Attributes:
        target: where the class is, ``module:attribute``.
        contract, timeout_s, description, lane: as in :class:`~agent.handlers.base.Handler`, without settings.
        mends: it is there in safe mode: it looks at a device, or mends it.
        needs: what its section must say first; without it the handler is off. Empty when it needs none.
    """

    target: str
    contract: Contract
    timeout_s: float
    description: str
    lane: str | None = None
    mends: bool = False
    needs: str = ""


BUILT_INS: Final[Mapping[str, BuiltIn]] = {
    "cancel": BuiltIn(
        "agent.handlers.cancel:Cancel",
        Contract.IDEMPOTENT,
        30.0,
        "Takes another command back: one that waits never runs, one that runs is ended.",
        lane="cancel",
        mends=True,
    ),
    "collect_diagnostics": BuiltIn(
        "agent.handlers.collect_diagnostics:CollectDiagnostics",
        Contract.IDEMPOTENT,
        60.0,
        "Writes a bundle without secrets: status, configuration, log, store, plug-ins, system.",
        mends=True,
    ),
    "identify": BuiltIn(
        "agent.handlers.identify:Identify",
        Contract.IDEMPOTENT,
        90.0,
        "Answers with the device's identity and blinks its LED when one is configured.",
        mends=True,
    ),
    "log_level": BuiltIn(
        "agent.handlers.log_level:LogLevel",
        Contract.IDEMPOTENT,
        10.0,
        "Sets the log level for a time; it goes back by itself.",
        mends=True,
    ),
    "ping": BuiltIn(
        "agent.handlers.ping:Ping",
        Contract.IDEMPOTENT,
        10.0,
        "Answers with the echo, the device's time and the agent's uptime.",
        mends=True,
    ),
    "read_sensors": BuiltIn(
        "agent.handlers.read_sensors:ReadSensors",
        Contract.IDEMPOTENT,
        60.0,
        "Reads sensors now and answers with their readings.",
    ),
    "reboot": BuiltIn(
        "agent.handlers.reboot:Reboot",
        Contract.RESTARTS_DEVICE,
        730.0,
        "Restarts the device through its helper; succeeds once it is back.",
        mends=True,
    ),
    "restart_agent": BuiltIn(
        "agent.handlers.restart_agent:RestartAgent",
        Contract.RESTARTS_DEVICE,
        60.0,
        "Restarts the agent; succeeds once it is back.",
        mends=True,
    ),
    "run": BuiltIn(
        "agent.handlers.run:Run",
        Contract.ONCE,
        60.0,
        "Runs a program that the configuration lists.",
    ),
    "set_interval": BuiltIn(
        "agent.handlers.set_interval:SetInterval",
        Contract.IDEMPOTENT,
        10.0,
        "Sets how often a sensor is read, or with the name 'poll' how often commands are asked for.",
    ),
    "update_config": BuiltIn(
        "agent.handlers.update_config:UpdateConfig",
        Contract.RESTARTS_DEVICE,
        120.0,
        "Changes the configuration; kept only if the agent stays well with it, else taken back.",
        mends=True,
    ),
    "write_file": BuiltIn(
        "agent.handlers.write_file:WriteFile",
        Contract.IDEMPOTENT,
        30.0,
        "Writes a file below the folders that the configuration names.",
        needs="it needs a folder in commands.handlers.write_file.settings.folders",
    ),
}

MENDING: Final = frozenset(name for name, built_in in BUILT_INS.items() if built_in.mends)
"""The built-ins that are there in safe mode."""


class LateHandler:
    """Stands for a built-in handler and becomes it when something of it is first used, usually by a command.

    Args:
        create: imports and makes the handler; called once.
    """

    def __init__(self, create: Callable[[], object]) -> None:
        self._create = cache(create)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._create(), name)

    def verifies(self) -> bool:
        """None of them has a look at the world."""
        return False
