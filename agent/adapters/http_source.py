"""Commands over HTTP: conditional requests, held open where the service offers it (extension ``long-poll``)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.adapters.discovery import Discovery
from agent.adapters.records import read_records
from agent.core.values import CommandPoll
from agent.errors import ServiceError
from agent.wire.command_list import OPEN, CommandStatus
from agent.wire.connection import Interrupted
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import LONG_POLL


class HttpSource:
    """A :class:`~agent.ports.CommandSource` on ``GET /devices/{deviceId}/commands``.

    It asks for ``status=open``. A plain server may ignore that and list everything for ever: the journal decides what
    is new.

    Args:
        client: only its interruptible requests are used here.
        device_id: whose commands.
        discovery: what the service offers; None never lets it hold a poll.
    """

    def __init__(self, client: DeviceClient, device_id: str, discovery: Discovery | None) -> None:
        self._client = client
        self._device_id = device_id
        self._discovery = discovery
        self._etag: str | None = None
        self._unacknowledged: str | None = None
        self._missing: ServiceError | None = None

    def poll(self, wait_s: float) -> CommandPoll:
        """See :meth:`agent.ports.CommandSource.poll`.

        Where pages of a list are missing, those that came are returned first and the error is raised by the next call.
        """
        missing, self._missing = self._missing, None
        if missing is not None:
            raise missing
        held = wait_s > 0 and self._discovery is not None and self._discovery.offers(LONG_POLL)
        answer = self._client.device_commands(
            self._device_id, status=OPEN, wait_s=wait_s if held else 0.0, etag=self._etag
        )
        if answer.unchanged:
            return CommandPoll(unchanged=True, server_time=answer.server_time, held=held)
        commands, malformed = read_records(answer.records, self._device_id)
        # Only what is in the journal may be left out next time.
        self._unacknowledged = answer.etag
        self._missing = None if isinstance(answer.incomplete, Interrupted) else answer.incomplete
        return CommandPoll(
            commands=commands,
            malformed=(*answer.malformed, *malformed, *answer.notes.values()),
            server_time=answer.server_time,
            held=held,
        )

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The last list is committed: from now on only another one is news.

        The service itself is told nothing: over HTTP the result is what takes a command off its list.
        """
        del command_ids
        self._etag = self._unacknowledged

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """See :meth:`agent.ports.CommandSource.canceled`: one more list, of the canceled ones."""
        answer = self._client.device_commands(self._device_id, status=CommandStatus.CANCELED)
        commands, _ = read_records(answer.records, self._device_id)
        # A service that ignores the filter lists others, too.
        listed = {command.id for command in commands if command.status == CommandStatus.CANCELED}
        return frozenset(listed.intersection(command_ids))

    def interrupt(self) -> None:
        """End a held poll."""
        self._client.interrupt()

    def close(self) -> None:
        """The client belongs to whoever made it; nothing else is held."""
