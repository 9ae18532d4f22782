"""Whether a plain server knows a later life of this device than its state directory.

So it is where an overlay forgets at each boot, or a backup was put back. Such a server lists commands for ever and says
nothing of their ends, so only what this device has stored there shows that it has lived on: a result in the table of
results, or a reading that came after the state was last written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.config.model import DeviceConfig
from agent.core.values import Command
from agent.errors import ErrorAnswer, InvalidMessage, RateLimited, Unauthorized, UnexpectedAnswer
from agent.store.journal import Journal
from agent.store.outbox import FoundOutbox
from agent.wire import paths
from agent.wire.answers import read_page
from agent.wire.client import DeviceClient, given
from agent.wire.models import SensorDataRecord

_log = logging.getLogger(__name__)

# The state is written soon after the answer, and the service's time is known to a second or two.
_AFTER_S: Final = 2.5
_BEFORE_S: Final = 2.0
_READINGS: Final = 100


def find_later_life(
    commands: Sequence[Command],
    client: DeviceClient,
    device: DeviceConfig,
    table: str,
    journal: Journal,
    outbox: FoundOutbox,
    started_s: float | None,
) -> str | None:
    """Why the state is older than what the server knows; None when nothing speaks for that.

    The server is asked only when its list has a command that the journal does not know.

    Args:
        commands: the first list, of which nothing was run yet.
        client: whom to ask.
        device: whose readings and results.
        table: the one that holds results.
        journal: what is known here.
        outbox: as the earlier process left it.
        started_s: when this process began, epoch seconds by the service's clock; None while nobody can say.

    Raises:
        ServiceError: the server could not be asked; the same list may be had again.
        StorageError: the journal cannot be read.
    """
    ids = [command.id for command in commands]
    unknown = set(ids) - set(journal.known(ids))
    if not unknown:
        return None
    query = {"product_id": device.product_id, "device_id": device.device_id, "table_name": table}
    for record in _first_page(client, paths.RUNTIME_DATA, query):
        payload = record.get("data_payload")
        if isinstance(payload, dict) and payload.get("command_id") in unknown:
            return f"the service has a result of command {payload['command_id']}, which is not known here"
    if started_s is None or outbox.used_at is None or outbox.waiting is None:
        return None
    begin_s, end_s = outbox.used_at.wall_s + _AFTER_S, started_s - _BEFORE_S
    own = {"device_id": device.device_id}
    for item in (
        *_first_page(client, paths.SENSOR_DATA, {**own, "order": "desc", "limit": _READINGS}),
        *_first_page(client, paths.SENSOR_DATA, own),
    ):
        try:
            stored = SensorDataRecord.receive(item)
        except InvalidMessage:
            continue
        at_s = stored.received_at or stored.recorded_at
        is_ours = stored.device_id in {None, device.device_id}
        # What waits here may have been stored by a process that ended before it knew.
        is_waiting = any(values.items() <= stored.sensor_data.items() for values in outbox.waiting)
        if is_ours and at_s is not None and begin_s < at_s < end_s and not is_waiting:
            return "the service has readings of this device that came after its state was last written"
    return None


def _first_page(client: DeviceClient, path: str, query: Mapping[str, str | int | None]) -> list[dict[str, Any]]:
    """Empty where this server has no such list."""
    try:
        answer = client.request("GET", path, params=given(query))
        items = read_page(answer.json(), answer.source).items
    except (RateLimited, Unauthorized):
        raise
    except (ErrorAnswer, UnexpectedAnswer) as error:
        _log.debug("state=unjudged %s", error)
        return []
    return [item for item in items if isinstance(item, dict)]
