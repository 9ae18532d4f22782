"""The base class of command handlers: the whole interface for plug-in authors.

A handler is a class::

    class OpenDoor(Handler):
        name = "open_door"
        contract = Contract.ONCE

        class Payload(HandlerPayload):
            door: int

        def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
            return {"opened": payload.door}

It is found through the entry-point group ``agent.handlers``. What it returns becomes the ``result`` of the command;
:class:`HandlerFailed` and :class:`HandlerRejected` end it as ``failed`` and ``rejected``; any other exception ends it
as ``failed``.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import BaseModel, ConfigDict

from agent.core.commands import ATTEMPTS_MAX
from agent.core.values import Contract, JsonObject, Outcome, OutcomeStatus
from agent.errors import AgentError

if TYPE_CHECKING:
    from agent.app.agent import Controls


class HandlerPayload(BaseModel):
    """The base for a handler's ``Payload``: unknown members are refused, so that a typo is answered, not ignored."""

    # The cache of strings would cost a small device 256 KiB from its first command on.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, cache_strings=False)


class NoPayload(HandlerPayload):
    """The payload of a handler that takes nothing beside its name."""


class HandlerSettings(BaseModel):
    """The base for a handler's ``Settings``: unknown members are refused, so that a typo is found at the start."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class HandlerFailed(AgentError):
    """The work was tried and failed: the command ends as ``failed`` with this code and sentence."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


class HandlerRejected(HandlerFailed):
    """The work was not begun: the command ends as ``rejected`` with this code and sentence."""


class Verified:
    """How a command ended that a crash interrupted, as its handler found out; see :meth:`Handler.verify`.

    Attributes:
        outcome: how it ended; None when it was not done and may run.
    """

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome

    @classmethod
    def succeeded(cls, result: JsonObject | None = None) -> Self:
        """The command was done, with this result."""
        return cls(Outcome(OutcomeStatus.SUCCEEDED, result))

    @classmethod
    def failed(cls, code: str, message: str) -> Self:
        """The command was tried and failed, with this code and sentence."""
        return cls(Outcome(OutcomeStatus.FAILED, error=f"{code}: {message}"))

    @classmethod
    def not_done(cls) -> Self:
        """The command was certainly not done: it runs now."""
        return cls(None)


class AgentControls(Protocol):
    """What a handler may call of the agent that runs it."""

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        """Read sensors now: name -> named numbers, or a sentence saying why it could not be read.

        Raises:
            KeyError: no sensor has one of these names.
        """
        ...

    def set_interval(self, name: str, interval_s: float | None) -> float:
        """Set a sensor's period, or the poll interval with the name ``poll``; None goes back to the configuration's.

        It survives a restart. Returns the interval that is in force now, seconds.

        Raises:
            KeyError: nothing has this name.
            ValueError: the interval is out of its bounds; the text says which.
        """
        ...

    def identity(self) -> JsonObject:
        """The identity of this device: device id, agent version, machine, boot id, uptime."""
        ...

    def recall(self, name: str) -> str | None:
        """What :meth:`remember` stored under this name; None when nothing was."""
        ...

    def remember(self, name: str, value: str | None) -> None:
        """Store a short text that survives a crash and a restart, or forget it with None. One name, one value.

        Raises:
            StorageError: it is not stored.
        """
        ...

    def cancel_command(self, command_id: str, why: str) -> str:
        """Take another command back: one that waits never runs, one that runs is asked to end.

        Args:
            command_id: the service's id of it.
            why: who or what did, such as ``by command 17``; becomes part of its reason.

        Returns:
            How it was found: ``waiting``, ``running``, ``over`` or ``unknown``.

        Raises:
            StorageError: the journal fails.
        """
        ...

    def request_restart(self, reason: str) -> None:
        """End the agent's process in order once the running commands are journaled; the service manager starts it."""
        ...

    @property
    def upkeep(self) -> Controls:
        """Upkeep of the agent: its configuration, its log, its diagnostics."""
        ...


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The context of one run of a handler, beside its payload.

    Attributes:
        command_id: the service's id of this command.
        device_id: this device.
        attempt: 1 for the first run; more after a crash, for an idempotent handler.
        restarted: the process or boot that started this command is not this one (``restarts_device`` handlers).
        stopping: set when the handler shall end: timeout, cancel, or the agent stops.
        log: a logger that names the handler and the command.
        controls: what the handler may ask of the agent.
        report_progress: reports ``in_progress`` with a partial result; a sign of life, too. The report may be lost.
        heartbeat: a sign of life, for a handler with an inactivity timeout that has nothing to report.
        no_restart: of a ``restarts_device`` handler in this process: nothing is to be restarted, and what it returns is
            the result.
    """

    command_id: str
    device_id: str
    attempt: int
    restarted: bool
    stopping: threading.Event
    log: logging.LoggerAdapter[logging.Logger]
    controls: AgentControls
    report_progress: Callable[[JsonObject], None]
    heartbeat: Callable[[], None] = lambda: None
    no_restart: Callable[[], None] = lambda: None


class Handler(ABC):
    """Carries out the commands of one name; the base class of all handlers.

    Attributes, of the class, or set in ``__init__`` where the settings decide:
        name: what ``command`` in the payload says.
        contract: what it promises; decides what a crash does. The default is the safe one.
        timeout_s: how long one run may take, seconds. The configuration can change it.
        start_timeout_s: how long a command may wait for its lane, seconds; None: as long as it likes.
        inactivity_timeout_s: how long a run may go without a sign of life, seconds; None asks for none.
        stop_timeout_s: how long a run may take to end once ``context.stopping`` is set, seconds; then its lane is
            blocked.
        max_attempts: how often it may be started for one command when each run takes the agent down with it.
        lane: handlers with the same lane run one after the other; by default each handler is its own lane.
        needs: what its section of the configuration has to hold; without a section such a handler is off.
        in_safe_mode: of a built-in handler: it is there in safe mode, since it examines or repairs the device.
        Payload: pydantic model of the payload without the member that names the handler.
        Settings: pydantic model of this handler's section in the configuration, or None.
        settings: that section as ``Settings``.
    """

    name: str
    description: str = ""
    contract: Contract = Contract.ONCE
    timeout_s: float = 60.0
    start_timeout_s: float | None = None
    inactivity_timeout_s: float | None = None
    stop_timeout_s: float = 1.0
    max_attempts: int = ATTEMPTS_MAX
    lane: str | None = None
    needs: ClassVar[str] = ""
    in_safe_mode: ClassVar[bool] = False
    Payload: ClassVar[type[BaseModel]] = NoPayload
    Settings: ClassVar[type[BaseModel] | None] = None

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = self.Settings() if settings is None and self.Settings is not None else settings

    def check(self) -> None:  # noqa: B027 - most handlers have nothing to check
        """Find out at start whether this handler can work here.

        Raises:
            Exception: it cannot; the text says why. The handler is listed as unusable and the agent goes on.
        """

    def verifies(self) -> bool:
        """Whether :meth:`verify` can find anything out; by default whether a subclass has one."""
        return type(self).verify is not Handler.verify

    @abstractmethod
    def handle(self, payload: Any, context: CommandContext) -> JsonObject | None:
        """Do the work; ``payload`` is a valid :attr:`Payload`. Runs in a thread of its own."""

    def verify(self, payload: Any, context: CommandContext) -> Verified | None:
        """Find out how a command ended that a crash interrupted.

        Asked of a ``once`` handler, and of a ``restarts_device`` one whose restart did not come, instead of concluding
        the command as ``indeterminate``. Runs in the handler's lane within the same limits as :meth:`handle`. It must
        change nothing: it may be asked again.

        Returns:
            What it found; None when it does not know.
        """
        return None
