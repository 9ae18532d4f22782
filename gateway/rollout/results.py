"""The end of a command, read where this service keeps results: in its list of commands, or in a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from agent.core.values import JsonObject
from agent.errors import ConfigurationError
from agent.wire.command_states import FINAL_STATES, RESULT_STATES, CommandStatus
from agent.wire.commands import CommandRecord
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.extensions import COMMAND_RESULTS, COMMAND_STATUS, LIST_PARAMETERS
from agent.wire.sending import SendingClient
from gateway.rollout.book import Row
from gateway.rollout.plan import DeviceState

_TABLE_EVERY_S: Final = 10.0
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command has ended.

    Attributes:
        state: one of :data:`~gateway.rollout.plan.OVER`.
        reason: why it did not succeed; None where nobody says.
    """

    state: DeviceState
    reason: str | None = None


class Results(Protocol):
    """Where results are read."""

    def end_of(self, row: Row) -> CommandEnd | None:
        """How this device's command has ended; None while it has not.

        Raises:
            ServiceError: it could not be asked; ``NotFound`` when the service does not know the device.
        """
        ...


class ListedResults:
    """Of each device the list of its commands, newest first; looking changes nothing there.

    Args:
        client: for the requests.
    """

    def __init__(self, client: SendingClient) -> None:
        self._client = client

    def end_of(self, row: Row) -> CommandEnd | None:
        """See :class:`Results`."""
        for part in self._client.device_command_parts(row.device_id):
            for record in part.records:
                if record.id == row.command_id:
                    return _end_of_record(record)
        return None


class TableResults:
    """The table of results, read whole at most every ten seconds.

    Args:
        client: for the requests.
        table: its name.
        is_filtered: the service lists the records of one table alone when asked to.
        monotonic: seconds on the monotonic clock.
    """

    def __init__(
        self,
        client: SendingClient,
        table: str,
        *,
        is_filtered: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._table = table
        self._is_filtered = is_filtered
        self._monotonic = monotonic
        self._read_at_s = float("-inf")
        # Commands of this rollout alone: the table holds those of all times.
        self._asked: set[tuple[str, str]] = set()
        self._ends: dict[tuple[str, str], CommandEnd] = {}

    def end_of(self, row: Row) -> CommandEnd | None:
        """See :class:`Results`."""
        asked = (row.device_id, row.command_id or "")
        self._asked.add(asked)
        if self._monotonic() - self._read_at_s >= _TABLE_EVERY_S:
            self._read()
        return self._ends.get(asked)

    def _read(self) -> None:
        for record in self._client.runtime_data(table_name=self._table if self._is_filtered else None):
            payload = record.data_payload
            status, command_id = payload.get("status"), payload.get("command_id")
            if not isinstance(status, str) or not isinstance(command_id, str) or record.device_id is None:
                continue
            asked = (record.device_id, command_id)
            if status in RESULT_STATES and record.table_name in {None, self._table} and asked in self._asked:
                self._ends[asked] = _end_of_status(CommandStatus(status), payload.get("error"))
        self._read_at_s = self._monotonic()


def results_of(client: SendingClient, offers: frozenset[str], dialect: Dialect) -> Results:
    """Where this service shows how a command has ended.

    Args:
        client: for the requests.
        offers: the extensions of the service.
        dialect: what the configuration says of it.

    Raises:
        ConfigurationError: it shows that nowhere, so that no wave could be judged.
    """
    place = dialect.results
    if place is None:
        place = ResultPlace.ENDPOINT if COMMAND_RESULTS in offers else ResultPlace.TABLE
    if place is ResultPlace.NONE:
        fault = "service.dialect.results is none: without results no wave can be judged, so nothing was sent"
        raise ConfigurationError([fault], "rollout")
    if place is ResultPlace.TABLE:
        return TableResults(client, dialect.results_table, is_filtered=LIST_PARAMETERS in offers)
    if COMMAND_STATUS in offers or dialect.command_lists is CommandLists.EVERYTHING:
        return ListedResults(client)
    fault = (
        "this service may hand a command out with the list that shows its result, so the list cannot be read here; if "
        "it lists all commands for ever, set service.dialect.command_lists to everything"
    )
    raise ConfigurationError([fault], "rollout")


def _end_of_record(record: CommandRecord) -> CommandEnd | None:
    status = (record.status or "").lower()
    if status not in FINAL_STATES:
        return None
    return _end_of_status(CommandStatus(status), record.error or record.status_reason or _said(record.result))


def _said(result: JsonObject | None) -> object:
    return None if result is None else result.get("error") or result.get("message")


def _end_of_status(status: CommandStatus, reason: object) -> CommandEnd:
    text = reason[:_REASON_CHARACTERS] if isinstance(reason, str) and reason else None
    if status is CommandStatus.SUCCEEDED:
        return CommandEnd(DeviceState.SUCCEEDED)
    if status in RESULT_STATES:
        return CommandEnd(DeviceState.FAILED, text or status.value)
    return CommandEnd(DeviceState.SILENT, text or status.value)
