"""Calls for onboarding (specification, "Onboarding")."""

from __future__ import annotations

from collections.abc import Iterator

from agent.wire import paths
from agent.wire.calls import Calls, read_record
from agent.wire.devices import Device
from agent.wire.onboarding import RegisterDevice, ScanAnswer, ScanQr


class OnboardingCalls(Calls):
    """From the scanned label to the registered device and back. Every call may raise a ``ServiceError``."""

    def scan_qr(self, qr_data: str) -> ScanAnswer:
        """``POST /onboarding/scan-qr``: what this QR stands for; changes nothing."""
        answer = self._write("POST", paths.SCAN_QR, ScanQr(qr_data=qr_data))
        return read_record(ScanAnswer, answer, "scan")

    def register_device(self, registration: RegisterDevice, *, idempotency_key: str | None = None) -> Device:
        """``POST /onboarding/device``: link the device to the user's account."""
        answer = self._write("POST", paths.ONBOARDING_DEVICES, registration, idempotency_key=idempotency_key)
        return read_record(Device, answer, "device", registration.to_wire())

    def user_devices(self, user_id: str, *, limit: int | None = None) -> Iterator[Device]:
        """``GET /onboarding/user/{userId}/devices``."""
        return self._list(Device, paths.user_devices(user_id), limit=limit)

    def remove_device(self, device_id: str) -> Device | None:
        """``DELETE /onboarding/device/{deviceId}``; what the answer says of the device, None when it says nothing."""
        answer = self._write("DELETE", paths.onboarding_device(device_id))
        record = read_record(Device, answer, "device", {})
        return record if record.model_fields_set else None
