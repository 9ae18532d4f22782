"""Whether a plain server knows a later life of this device than its state directory.

So it is where an overlay forgets at each boot, or a backup was put back.

Such a server lists commands for ever and says nothing of their ends, so only what this device has stored there shows
that it has lived on: a result in the table of results, or a reading that came after the state was last written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent.errors import ErrorAnswer, InvalidMessage, RateLimited, Unauthorized, UnexpectedAnswer
from agent.transports.discovery import Discovery
from agent.wire import paths
from agent.wire.client import DeviceClient, given
from agent.wire.lists import read_page
from agent.wire.models import SensorDataRecord

if TYPE_CHECKING:
    from agent.core.values import Command, JournalEntry
    from agent.store.outbox import FoundOutbox

_log = logging.getLogger(__name__)

# The state is written soon after the answer, and the service's time is known to a second or two.
_AFTER_S: Final = 2.5
_BEFORE_S: Final = 2.0
_READINGS: Final = 100


class LaterLife:
    """Asks a plain server once, when its first list has a command that the journal does not know.

    Args:
        client: whom to ask.
        device_id: whose readings and results.
        product_id: whose table holds the results; None asks without it.
        discovery: the name of that table.
        known: the journal's entries of these commands.
        found: the outbox as the earlier process left it.
        started_s: when this process began, epoch seconds by the service's clock; None while nobody can say.
        on_found: called with why the state is older than what the server knows.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        product_id: str | None,
        discovery: Discovery,
        *,
        known: Callable[[Sequence[str]], Mapping[str, JournalEntry]],
        found: FoundOutbox,
        started_s: Callable[[], float | None],
        on_found: Callable[[str], object],
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._product_id = product_id
        self._discovery = discovery
        self._known = known
        self._found = found
        self._started_s = started_s
        self._on_found = on_found

    def look(self, commands: Sequence[Command]) -> None:
        """Compare; to be called before anything in the list is run.

        Raises:
            ServiceError: the server could not be asked; the same list may be had again.
            StorageError: the journal cannot be read.
        """
        ids = [command.id for command in commands]
        unknown = set(ids) - set(self._known(ids))
        if not unknown:
            return
        table = self._discovery.dialect.results_table
        query = {"product_id": self._product_id, "device_id": self._device_id, "table_name": table}
        for record in self._ask(paths.RUNTIME_DATA, query):
            payload = record.get("data_payload")
            if isinstance(payload, dict) and payload.get("command_id") in unknown:
                self._on_found(f"the service has a result of command {payload['command_id']}, which is not known here")
                return
        if self._has_later_reading():
            self._on_found("the service has readings of this device that came after its state was last written")

    def _has_later_reading(self) -> bool:
        started_s, used_at, waiting = self._started_s(), self._found.used_at, self._found.waiting
        if started_s is None or used_at is None or waiting is None:
            return False
        query: dict[str, str | int | None] = {"device_id": self._device_id}
        newest_first = {**query, "order": "desc", "limit": _READINGS}
        for item in (*self._ask(paths.SENSOR_DATA, newest_first), *self._ask(paths.SENSOR_DATA, query)):
            try:
                record = SensorDataRecord.receive(item)
            except InvalidMessage:
                continue
            at_s = record.received_at or record.recorded_at
            if record.device_id not in {None, self._device_id} or at_s is None:
                continue
            is_between = used_at.wall_s + _AFTER_S < at_s < started_s - _BEFORE_S
            # What waits here may have been stored by a process that ended before it knew.
            if is_between and not any(values.items() <= record.sensor_data.items() for values in waiting):
                return True
        return False

    def _ask(self, path: str, query: Mapping[str, str | int | None]) -> Iterable[dict[str, Any]]:
        """The first page; empty where this server has no such list."""
        try:
            answer = self._client.connection.request("GET", path, params=given(query))
            items = read_page(answer.json(), answer.source).items
        except (RateLimited, Unauthorized):
            raise
        except (ErrorAnswer, UnexpectedAnswer) as error:
            _log.debug("state=unjudged %s", error)
            return ()
        return (item for item in items if isinstance(item, dict))
