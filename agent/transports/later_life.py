"""Whether a plain server knows a later life of this device than its state directory.

So it is where an overlay forgets at each boot, or a backup was put back. Such a server lists commands for ever and says
nothing of their ends, so only what this device has stored there shows that it has lived on: a result in the table of
results, or a reading that came after the state was last written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agent.core.values import Command
from agent.errors import ErrorAnswer, InvalidMessage, RateLimited, Unauthorized, UnexpectedAnswer
from agent.store.journal import Journal
from agent.store.outbox import FoundOutbox
from agent.transports.discovery import Discovery
from agent.wire import paths
from agent.wire.client import DeviceClient, given
from agent.wire.lists import read_page
from agent.wire.models import SensorDataRecord

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
        journal: what is known here.
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
        journal: Journal,
        found: FoundOutbox,
        started_s: Callable[[], float | None],
        on_found: Callable[[str], object],
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._product_id = product_id
        self._discovery = discovery
        self._journal = journal
        self._found = found
        self._started_s = started_s
        self._on_found = on_found

    def check(self, commands: Sequence[Command]) -> None:
        """Compare; to be called before anything in the list is run.

        Raises:
            ServiceError: the server could not be asked; the same list may be had again.
            StorageError: the journal cannot be read.
        """
        ids = [command.id for command in commands]
        unknown = set(ids) - set(self._journal.known(ids))
        if not unknown:
            return
        table = self._discovery.dialect.results_table
        query = {"product_id": self._product_id, "device_id": self._device_id, "table_name": table}
        for record in self._first_page(paths.RUNTIME_DATA, query):
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
        begin_s, end_s = used_at.wall_s + _AFTER_S, started_s - _BEFORE_S
        query: dict[str, str | int | None] = {"device_id": self._device_id}
        newest_first = {**query, "order": "desc", "limit": _READINGS}
        for item in (*self._first_page(paths.SENSOR_DATA, newest_first), *self._first_page(paths.SENSOR_DATA, query)):
            try:
                record = SensorDataRecord.receive(item)
            except InvalidMessage:
                continue
            at_s = record.received_at or record.recorded_at
            is_ours = record.device_id in {None, self._device_id}
            # What waits here may have been stored by a process that ended before it knew.
            is_waiting = any(values.items() <= record.sensor_data.items() for values in waiting)
            if is_ours and at_s is not None and begin_s < at_s < end_s and not is_waiting:
                return True
        return False

    def _first_page(self, path: str, query: Mapping[str, str | int | None]) -> list[dict[str, Any]]:
        """Empty where this server has no such list."""
        try:
            answer = self._client.request("GET", path, params=given(query))
            items = read_page(answer.json(), answer.source).items
        except (RateLimited, Unauthorized):
            raise
        except (ErrorAnswer, UnexpectedAnswer) as error:
            _log.debug("state=unjudged %s", error)
            return []
        return [item for item in items if isinstance(item, dict)]
