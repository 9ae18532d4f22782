"""The typed client of the whole interface: one method for each endpoint of the specification and its extensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agent.errors import ErrorAnswer, RateLimited, Unauthorized, UnexpectedAnswer
from agent.wire.client import Query, Record, given, read_record
from agent.wire.encoding import to_rfc3339
from agent.wire.models import Device, JsonObject, RuntimeRecord, SensorDataRecord
from agent.wire.secret import Secret
from agent.wire.server import NO_EXTENSIONS
from gateway.client import OperatorClient
from simulator.login.tokens import TokenAnswer
from simulator.wire import paths
from simulator.wire.models import (
    Aggregate,
    CommandDefinition,
    Dashboard,
    DeviceAnalytics,
    NewDashboard,
    NewProduct,
    NewRule,
    NewSchema,
    NewTable,
    Order,
    Product,
    ProductChange,
    Rule,
    RuleChange,
    RuntimeRecordChange,
    ScanAnswer,
    ScanQr,
    Schema,
    SensorDataBucket,
    SignIn,
    Table,
)

_AWAY: Final = frozenset({502, 503, 504})


class ServiceClient(OperatorClient):
    """The whole interface of the service; arguments and behaviour are those of
    :class:`~agent.wire.client.DeviceClient`. Every call may raise :class:`~agent.errors.ServiceError`.
    """

    def offers(self) -> frozenset[str]:
        """The extensions that the service announces; whatever it answers in place of the document says that it has
        none. An error where it cannot be reached, is overloaded, or does not take the keys.
        """
        try:
            return self.discover().extensions
        except (RateLimited, Unauthorized):
            raise
        except UnexpectedAnswer:
            return NO_EXTENSIONS
        except ErrorAnswer as error:
            if error.status in _AWAY:
                raise
            return NO_EXTENSIONS

    def products(self, *, limit: int | None = None) -> Iterator[Product]:
        """``GET /products``: the products of the caller's manufacturer account."""
        return self._list(Product, paths.PRODUCTS, limit=limit)

    def create_product(self, product: NewProduct, *, idempotency_key: str | None = None) -> Product:
        """``POST /products``."""
        answer = self._write("POST", paths.PRODUCTS, product, idempotency_key=idempotency_key)
        return read_record(Product, answer, "product")

    def change_product(self, product_id: str, change: ProductChange) -> Product:
        """``PUT /products/{productId}``: only the fields to change."""
        answer = self._write("PUT", paths.product(product_id), change)
        return read_record(Product, answer, "product", {"product_id": product_id, **change.to_wire()})

    def delete_product(self, product_id: str) -> None:
        """``DELETE /products/{productId}``."""
        self._write("DELETE", paths.product(product_id))

    def product_commands(self, product_id: str) -> Iterator[CommandDefinition]:
        """``GET /products/{productId}/commands``: the product's command vocabulary."""
        return self._list(CommandDefinition, paths.product_commands(product_id))

    def dashboard(self, product_id: str) -> Dashboard:
        """``GET /products/{productId}/dashboard``."""
        return self._get(Dashboard, paths.product_dashboard(product_id), "dashboard")

    def put_dashboard(self, product_id: str, dashboard: NewDashboard) -> Dashboard:
        """``PUT /products/{productId}/dashboard``: replace it."""
        answer = self._write("PUT", paths.product_dashboard(product_id), dashboard)
        return read_record(Dashboard, answer, "dashboard", {**dashboard.to_wire(), "product_id": product_id})

    def schemas(self, product_id: str, *, limit: int | None = None) -> Iterator[Schema]:
        """``GET /products/{productId}/database/schemas``."""
        return self._list(Schema, paths.product_schemas(product_id), limit=limit)

    def create_schema(self, product_id: str, schema: NewSchema, *, idempotency_key: str | None = None) -> Schema:
        """``POST /products/{productId}/database/schemas``."""
        answer = self._write("POST", paths.product_schemas(product_id), schema, idempotency_key=idempotency_key)
        return read_record(Schema, answer, "schema", {"product_id": product_id, **schema.to_wire()})

    def create_table(self, table: NewTable, *, idempotency_key: str | None = None) -> Table:
        """``POST /database/tables``."""
        answer = self._write("POST", paths.TABLES, table, idempotency_key=idempotency_key)
        return read_record(Table, answer, "table", table.to_wire())

    def replace_runtime_record(self, record_id: str, data_payload: JsonObject) -> RuntimeRecord:
        """``PUT /database/runtime-data/{id}``: the new content replaces the old."""
        change = RuntimeRecordChange(data_payload=data_payload)
        answer = self._write("PUT", paths.runtime_record(record_id), change)
        return read_record(RuntimeRecord, answer, "record", {"id": record_id, **change.to_wire()})

    def delete_runtime_record(self, record_id: str) -> None:
        """``DELETE /database/runtime-data/{id}``."""
        self._write("DELETE", paths.runtime_record(record_id))

    def rules(self, *, product_id: str | None = None, limit: int | None = None) -> Iterator[Rule]:
        """``GET /rules``."""
        return self._list(Rule, paths.RULES, {"product_id": product_id}, limit)

    def rule(self, rule_id: str) -> Rule:
        """``GET /rules/{id}``."""
        return self._get(Rule, paths.rule(rule_id), "rule")

    def create_rule(self, rule: NewRule, *, idempotency_key: str | None = None) -> Rule:
        """``POST /rules``."""
        answer = self._write("POST", paths.RULES, rule, idempotency_key=idempotency_key)
        return read_record(Rule, answer, "rule", rule.to_wire())

    def change_rule(self, rule_id: str, change: RuleChange) -> Rule:
        """``PUT /rules/{id}``: only the fields to change."""
        answer = self._write("PUT", paths.rule(rule_id), change)
        return read_record(Rule, answer, "rule", {"id": rule_id, **change.to_wire()})

    def delete_rule(self, rule_id: str) -> None:
        """``DELETE /rules/{id}``."""
        self._write("DELETE", paths.rule(rule_id))

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
        query = {"from": _time_param(from_), "to": _time_param(to), "interval": interval_s}
        return self._get(DeviceAnalytics, paths.DEVICE_ANALYTICS, "analytics", query)

    def sign_in(self, email: str, password: Secret) -> TokenAnswer:
        """``POST /auth/signin``; a wrong pair raises :class:`~agent.errors.Unauthorized`."""
        answer = self._write("POST", paths.SIGN_IN, SignIn(email=email, password=password))
        return read_record(TokenAnswer, answer, "session")

    def _get(self, model: type[Record], path: str, word: str, query: Query | None = None) -> Record:
        """One record that is read."""
        return read_record(model, self.request("GET", path, params=given(query or {})), word)


def _range(device_id: str | None, from_: float | None, to: float | None, keys: Sequence[str]) -> dict[str, str | None]:
    return {
        "device_id": device_id,
        "from": _time_param(from_),
        "to": _time_param(to),
        "keys": ",".join(keys) or None,
    }


def _time_param(epoch_s: float | None) -> str | None:
    """A time as a query parameter."""
    return None if epoch_s is None else to_rfc3339(epoch_s)
