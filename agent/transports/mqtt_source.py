"""Commands over MQTT: pushed by the gateway, acknowledged to the broker once the journal has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.core.listed import OPEN_STATUSES
from agent.core.values import Command, CommandPoll
from agent.errors import InvalidMessage, StorageError
from agent.transports.mqtt_connection import Arrival, MqttConnection
from agent.transports.records import oldest_first, read_records
from agent.wire import topics
from agent.wire.commands import CommandRecord
from agent.wire.json_text import parse_object

if TYPE_CHECKING:
    from agent.ports import Clock

_MALFORMED_KEPT: Final = 20

HOLD_S: Final = 10.0
"""While the first contact has no date, commands are held for so long until the time is known, seconds: without it
it cannot be known which of them were sent before. A gateway sends the time with its first notice."""


@dataclass(frozen=True, slots=True)
class FirstPush:
    """How the first contact over a connection goes.

    Attributes:
        is_due: the journal does not know yet when the first contact was.
        is_dated: the service's clock is known.
    """

    is_due: Callable[[], bool] = lambda: False
    is_dated: Callable[[], bool] = lambda: True


_NEVER_FIRST: Final = FirstPush()


@dataclass(slots=True)
class _Pending:
    """A command that waits for the journal, and the last message that brought it; the broker keeps that one."""

    command: Command
    arrival: Arrival


class MqttSource:
    """A :class:`~agent.ports.CommandSource` on ``v1/devices/{device_id}/commands/+``.

    A command stays pending, and is given by each :meth:`poll`, until :meth:`acknowledge`; only then does the broker get
    its PUBACK. After a crash in between the broker delivers it again, and the gateway sends what is open at each
    connection besides. A broker has only so many messages on their way at a time (version 5: 100), which bounds them.

    Args:
        connection: says when there is none, and takes the acknowledgements.
        device_id: whose commands.
        clock: measures how old the gateway's time is by now.
        max_bytes: a larger message is dropped with a sentence.
        first: how the first contact goes.
    """

    def __init__(
        self,
        connection: MqttConnection,
        device_id: str,
        clock: Clock,
        max_bytes: int,
        first: FirstPush = _NEVER_FIRST,
    ) -> None:
        self._connection = connection
        self._device_id = device_id
        self._clock = clock
        self._max_bytes = max_bytes
        self._first = first
        self._had_contact = False
        self._holding_since_s: float | None = None
        self._changed = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._malformed: list[str] = []
        self._time: tuple[float, float] | None = None
        self._interrupted = False

    # --- the runtime's side -------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether commands can arrive over MQTT."""
        return self._connection.is_up

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device.

        See :meth:`agent.ports.CommandSource.poll`: waits here until something comes, or the connection goes.

        Raises:
            Offline: there is no connection, and nothing waits.
        """
        is_first = self._is_first()
        with self._changed:
            holds = is_first and self._holds()
            if holds:
                self._changed.wait_for(lambda: self._interrupted or not self._holds(), min(wait_s, self._left_s()))
                holds = self._holds()
            else:
                self._changed.wait_for(lambda: self._has_news() or not self._connection.is_up, wait_s)
                holds = is_first and self._holds()
            self._interrupted = False
            if not (self._pending or self._malformed or self._connection.is_up):
                raise self._connection.trouble
            if holds:
                return CommandPoll(unchanged=True, pushed=True)
            commands = oldest_first(pending.command for pending in self._pending.values())
            malformed, self._malformed = tuple(self._malformed), []
            notice, self._time = self._time, None
        now_s = self._clock.now().monotonic_s
        server_time = None if notice is None else notice[0] + now_s - notice[1]
        return CommandPoll(commands, malformed=malformed, server_time=server_time, pushed=True)

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has these: the broker may forget them."""
        with self._changed:
            gone = [self._pending.pop(command_id, None) for command_id in command_ids]
        for pending in gone:
            if pending is not None:
                self._connection.acknowledge(pending.arrival)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """None: a command that was taken back is pushed again, with that status."""
        del command_ids
        return frozenset()

    def interrupt(self) -> None:
        """End a :meth:`poll` that waits."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """The connection belongs to whoever made it; nothing else is held."""

    # --- the connection's side ----------------------------------------------------------------------------------------

    def arrived(self, arrival: Arrival) -> None:
        """Take a message from the commands' topic."""
        try:
            command = self._read(arrival)
        except InvalidMessage as error:
            # It will not get better: were it not acknowledged, it would come again for ever.
            self._connection.acknowledge(arrival)
            self._log_failure(f"a message on {arrival.topic[:120]} is no command and is skipped: {error}")
            return
        with self._changed:
            pending = self._pending.get(command.id)
            # While one message with the command is unacknowledged, it comes again: no more need be kept.
            before = None if pending is None else pending.arrival
            self._pending[command.id] = _Pending(command if pending is None else pending.command, arrival)
            self._changed.notify_all()
        if before is not None and (before.session is not arrival.session or before.mid != arrival.mid):
            self._connection.acknowledge(before)

    def set_time(self, server_time: float) -> None:
        """The gateway's clock as it was just now, seconds since the epoch."""
        with self._changed:
            self._time = (server_time, self._clock.now().monotonic_s)
            self._changed.notify_all()

    def went_down(self) -> None:
        """The connection ended: nothing will come for now."""
        with self._changed:
            self._holding_since_s = None
            self._changed.notify_all()

    def _is_first(self) -> bool:
        if not self._had_contact:
            try:
                self._had_contact = not self._first.is_due()
            except StorageError:
                return True  # the journal says so in the log; until it can be read nothing is decided
        return not self._had_contact

    def _holds(self) -> bool:
        """Before the first contact has a date: what waits cannot be decided on yet. The lock is held."""
        if not self._connection.is_up:
            return False
        waiting = self._pending.values()
        if all((each.command.status or "").lower() in OPEN_STATUSES for each in waiting):
            return False
        if self._time is not None or self._first.is_dated():
            return False
        return self._left_s() > 0

    def _left_s(self) -> float:
        """How much of :data:`HOLD_S` is left; it begins with the first look, once in a connection."""
        now_s = self._clock.now().monotonic_s
        if self._holding_since_s is None:
            self._holding_since_s = now_s
        return max(0.0, self._holding_since_s + HOLD_S - now_s)

    def _has_news(self) -> bool:
        return bool(self._pending or self._malformed or self._time or self._interrupted)

    def _log_failure(self, sentence: str) -> None:
        with self._changed:
            if len(self._malformed) < _MALFORMED_KEPT:
                self._malformed.append(sentence)
            self._changed.notify_all()

    def _read(self, arrival: Arrival) -> Command:
        command_id = topics.parse(arrival.topic).command_id
        record = CommandRecord.receive(parse_object(arrival.payload, max_bytes=self._max_bytes))
        if record.id is None:
            record = record.model_copy(update={"id": command_id})
        elif record.id != command_id:
            raise InvalidMessage(f"it says that its id is {record.id[:80]!r}, and its topic says otherwise")
        commands, malformed = read_records([record], self._device_id)
        if malformed:
            raise InvalidMessage(malformed[0])
        return commands[0]
