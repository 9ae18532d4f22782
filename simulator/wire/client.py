"""The typed client of the whole interface: one method for each endpoint of the specification and its extensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.wire import paths
from agent.wire.device_client import read_record, time_param
from agent.wire.devices import Device
from agent.wire.secret import Secret
from agent.wire.sending import SendingClient
from agent.wire.sensor_data import SensorDataRecord
from simulator.login.tokens import TokenAnswer
from simulator.wire.dashboards import DeviceAnalytics
from simulator.wire.messages import Aggregate, Order, ScanAnswer, ScanQr, SensorDataBucket, SignIn
from simulator.wire.product_calls import ProductCalls
from simulator.wire.token_calls import TokenCalls


class ServiceClient(ProductCalls, TokenCalls, SendingClient):
    """The whole interface of the service; arguments and behaviour are those of
    :class:`~agent.wire.device_client.DeviceClient`.
    """

    def sensor_data(
        self,
        device_id: str | None = None,
        *,
        from_: float | None = None,
        to: float | None = None,
        keys: Sequence[str] = (),
        order: Order | None = None,
        limit: int | None = None,
    ) -> Iterator[SensorDataRecord]:
        """``GET /sensor-data``: stored readings.

        Args:
            device_id: only this device's.
            from_: recorded at or after, seconds since the epoch.
            to: recorded before, seconds since the epoch.
            keys: only these named readings.
            order: by ``recorded_at``.
            limit: how many at most, over all pages.
        """
        query = _range(device_id, from_, to, keys)
        return self._list(SensorDataRecord, paths.SENSOR_DATA, {**query, "order": order}, limit)

    def sensor_data_buckets(
        self,
        device_id: str,
        *,
        agg: Aggregate,
        interval_s: int,
        from_: float | None = None,
        to: float | None = None,
        keys: Sequence[str] = (),
        order: Order | None = None,
        limit: int | None = None,
    ) -> Iterator[SensorDataBucket]:
        """``GET /sensor-data`` with ``agg`` and ``interval``: one bucket per interval; else as :meth:`sensor_data`."""
        query = _range(device_id, from_, to, keys)
        return self._list(
            SensorDataBucket,
            paths.SENSOR_DATA,
            {**query, "order": order, "agg": agg, "interval": interval_s},
            limit,
        )

    def scan_qr(self, qr_data: str) -> ScanAnswer:
        """``POST /onboarding/scan-qr``: what this QR stands for; changes nothing."""
        answer = self._write("POST", paths.SCAN_QR, ScanQr(qr_data=qr_data))
        return read_record(ScanAnswer, answer, "scan")

    def user_devices(self, user_id: str, *, limit: int | None = None) -> Iterator[Device]:
        """``GET /onboarding/user/{userId}/devices``."""
        return self._list(Device, paths.user_devices(user_id), limit=limit)

    def remove_device(self, device_id: str) -> Device | None:
        """``DELETE /onboarding/device/{deviceId}``; what the answer says of the device, None when it says nothing."""
        answer = self._write("DELETE", paths.onboarding_device(device_id))
        record = read_record(Device, answer, "device", {})
        return record if record.model_fields_set else None

    def device_analytics(
        self, *, from_: float | None = None, to: float | None = None, interval_s: int | None = None
    ) -> DeviceAnalytics:
        """``GET /analytics/devices``; times in seconds since the epoch."""
        query = {"from": time_param(from_), "to": time_param(to), "interval": interval_s}
        return self._get(DeviceAnalytics, paths.DEVICE_ANALYTICS, "analytics", query)

    def sign_in(self, email: str, password: Secret) -> TokenAnswer:
        """``POST /auth/signin``; a wrong pair raises :class:`~agent.errors.Unauthorized`."""
        answer = self._write("POST", paths.SIGN_IN, SignIn(email=email, password=password))
        return read_record(TokenAnswer, answer, "session")


def _range(device_id: str | None, from_: float | None, to: float | None, keys: Sequence[str]) -> dict[str, str | None]:
    return {
        "device_id": device_id,
        "from": time_param(from_),
        "to": time_param(to),
        "keys": ",".join(keys) or None,
    }
