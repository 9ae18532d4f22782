"""Registering a device for a user (specification, "Device registration"): the gateway does, and the simulator."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from agent.wire import paths
from agent.wire.base import JsonObject, Sent, Text
from agent.wire.device_client import DeviceClient, read_record
from agent.wire.devices import Device
from agent.wire.limits import IDENTIFIER_CHARACTERS

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


class RegistrationClient(DeviceClient):
    """A :class:`DeviceClient` that can register devices."""

    def register_device(self, registration: RegisterDevice, *, idempotency_key: str | None = None) -> Device:
        """``POST /onboarding/device``: link the device to the user's account.

        Raises:
            ServiceError: it was refused, or nobody answered.
        """
        answer = self._write("POST", paths.ONBOARDING_DEVICES, registration, idempotency_key=idempotency_key)
        return read_record(Device, answer, "device", registration.to_wire())
