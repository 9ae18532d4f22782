"""Commands over HTTP: what is beyond the specification is used where the service offers it, and for as long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.core.values import Command, CommandPoll
from agent.errors import ServiceError
from agent.transports.discovery import Discovery
from agent.transports.records import read_records
from agent.wire.client import DeviceClient
from agent.wire.commands import OPEN, CommandStatus
from agent.wire.connection import Interrupted
from agent.wire.dialect import CommandLists
from agent.wire.extensions import COMMAND_STATUS, LONG_POLL


class HttpSource:
    """A :class:`~agent.ports.CommandSource` on ``GET /devices/{deviceId}/commands``.

    ``status=open`` is asked for only where the service offers ``command-status``. A plain server may list everything
    for ever, or each command once: the journal decides what is new.

    Args:
        client: only its interruptible requests are used here.
        device_id: whose commands.
        discovery: what the service offers, and what was found out about it.
        may_hold: whether the service may hold a poll where it offers that.
        check_first: is given the first list that was asked for without a state, before it is handed out; may raise.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        discovery: Discovery,
        *,
        may_hold: bool = True,
        check_first: Callable[[Sequence[Command]], object] | None = None,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._discovery = discovery
        self._may_hold = may_hold
        self._check_first = check_first
        self._etag: str | None = None
        self._unacknowledged: str | None = None
        self._listed: frozenset[str] = frozenset()
        self._missing: ServiceError | None = None

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Where pages of a list are missing, those that came are returned first and the error is raised by the next call.
        """
        missing, self._missing = self._missing, None
        if missing is not None:
            raise missing
        has_states = self._discovery.offers(COMMAND_STATUS)
        held = self._may_hold and wait_s > 0 and self._discovery.offers(LONG_POLL)
        answer = self._client.device_commands(
            self._device_id, status=OPEN if has_states else None, wait_s=wait_s if held else 0.0, etag=self._etag
        )
        if answer.unchanged:
            return CommandPoll(unchanged=True, held=held)
        commands, malformed = read_records(answer.records, self._device_id)
        if self._check_first is not None and not has_states:
            self._check_first(commands)
        self._check_first = None
        # Only what is in the journal may be left out next time.
        self._unacknowledged = answer.etag
        self._missing = None if isinstance(answer.incomplete, Interrupted) else answer.incomplete
        self._listed = frozenset(command.id for command in commands)
        for kind, sentence in answer.notes.items():
            self._discovery.note(kind, sentence)
        return CommandPoll(
            commands=tuple(replace(each, status=self._discovery.state_of(each.status)) for each in commands),
            malformed=(*answer.malformed, *malformed),
            held=held,
            is_whole=answer.is_whole,
            omitted=answer.omitted,
        )

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The last list is committed: from now on only another one is news.

        Nothing is sent to the service: over HTTP the result is what takes a command off its list.
        """
        del command_ids
        self._etag = self._unacknowledged

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back; none where the service cannot be asked.

        See :meth:`agent.ports.CommandSource.canceled`: one more list where the service offers ``command-status``.

        Where the configuration says that lists hold open commands alone, what left the last one was taken back.
        """
        if not self._discovery.offers(COMMAND_STATUS):
            is_open = self._discovery.dialect.command_lists is CommandLists.OPEN and self._missing is None
            return frozenset(command_ids) - self._listed if is_open else frozenset()
        answer = self._client.device_commands(self._device_id, status=CommandStatus.CANCELED)
        # A service that ignores the filter lists others, too.
        listed = {record.id for record in answer.records if record.status == CommandStatus.CANCELED}
        return frozenset(command_ids) & listed

    def interrupt(self) -> None:
        """End a held poll."""
        self._client.interrupt()
