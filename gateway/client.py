"""The client for what no device does: registering devices, sending commands, reading tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints

from agent.wire import paths
from agent.wire.client import DeviceClient, read_record
from agent.wire.limits import IDENTIFIER_CHARACTERS, TTL_MAX_S
from agent.wire.models import CommandRecord, Device, JsonObject, RuntimeRecord, Sent, Text

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=IDENTIFIER_CHARACTERS)]
"""The id of a user or a device."""


class RegisterDevice(Sent):
    """``POST /onboarding/device``.

    Attributes:
        device_name: for people; the service makes one up when it is missing.
        qr_info: what the scan answered as ``qr_info``.
    """

    user_id: Identifier
    product_id: Text
    device_identifier: Identifier
    device_name: str | None = None
    qr_info: JsonObject | None = None


class SendCommand(Sent):
    """``POST /commands/send`` (specification, "Command").

    Attributes:
        ttl_seconds: how long the command waits for its device; the service's default is 3600.
    """

    device_id: Text
    command_payload: JsonObject
    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_MAX_S)] | None = None


class OperatorClient(DeviceClient):
    """A :class:`DeviceClient` with the calls that no device makes."""

    def register_device(self, registration: RegisterDevice, *, idempotency_key: str | None = None) -> Device:
        """``POST /onboarding/device``: link the device to the user's account."""
        answer = self._write("POST", paths.ONBOARDING_DEVICES, registration, idempotency_key=idempotency_key)
        return read_record(Device, answer, "device", registration.to_wire())

    def send_command(self, command: SendCommand, *, idempotency_key: str | None = None) -> CommandRecord:
        """``POST /commands/send``."""
        answer = self._write("POST", paths.SEND_COMMAND, command, idempotency_key=idempotency_key)
        return read_record(CommandRecord, answer, "command", command.to_wire())

    def runtime_data(self, **query: str | int) -> Iterator[RuntimeRecord]:
        """``GET /database/runtime-data``, all pages; the query is one of the specification."""
        return self._list(RuntimeRecord, paths.RUNTIME_DATA, query, None)
