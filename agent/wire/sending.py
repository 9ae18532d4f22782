"""Sending commands and reading their results in a table (specification, "Command", "Database").

The gateway's rollout does, and the simulator; a device does neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from agent.wire import paths
from agent.wire.base import JsonObject, Sent, Text
from agent.wire.commands import CommandRecord
from agent.wire.device_client import given, read_record
from agent.wire.limits import TTL_MAX_S
from agent.wire.registration import RegistrationClient
from agent.wire.runtime_data import RuntimeRecord


class SendCommand(Sent):
    """``POST /commands/send`` (specification, "Command").

    Attributes:
        ttl_seconds: how long the command waits for its device; the service's default is 3600.
    """

    device_id: Text
    command_payload: JsonObject
    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_MAX_S)] | None = None


class SendingClient(RegistrationClient):
    """A :class:`~agent.wire.device_client.DeviceClient` that sends commands too."""

    def send_command(self, command: SendCommand, *, idempotency_key: str | None = None) -> CommandRecord:
        """``POST /commands/send``.

        Raises:
            ServiceError: it was refused, or nobody answered.
        """
        answer = self._write("POST", paths.SEND_COMMAND, command, idempotency_key=idempotency_key)
        return read_record(CommandRecord, answer, "command", command.to_wire())

    def runtime_data(
        self,
        *,
        product_id: str | None = None,
        device_id: str | None = None,
        table_name: str | None = None,
        data: Mapping[str, str | int] | None = None,
        order: str | None = None,
        limit: int | None = None,
    ) -> Iterator[RuntimeRecord]:
        """``GET /database/runtime-data``.

        Args:
            product_id: only this product's.
            device_id: only this device's.
            table_name: only this table's.
            data: only records whose column has this value, ``data.<column>=``.
            order: ``asc`` or ``desc`` by creation.
            limit: how many at most.
        """
        query = {"product_id": product_id, "device_id": device_id, "table_name": table_name, "order": order}
        columns = {f"data.{column}": value for column, value in (data or {}).items()}
        return self._list(RuntimeRecord, paths.RUNTIME_DATA, {**given(query), **columns}, limit)
