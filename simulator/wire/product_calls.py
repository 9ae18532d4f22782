"""Calls for products, their vocabulary, dashboard, databases and rules (specification, "Products", "Database")."""

from __future__ import annotations

from collections.abc import Iterator

from agent.wire import paths
from agent.wire.base import JsonObject
from agent.wire.device_client import Calls, read_record
from agent.wire.runtime_data import RuntimeRecord
from simulator.wire.dashboards import Dashboard, NewDashboard
from simulator.wire.database import NewSchema, NewTable, RuntimeRecordChange, Schema, Table
from simulator.wire.products import CommandDefinition, NewProduct, Product, ProductChange
from simulator.wire.rules import NewRule, Rule, RuleChange


class ProductCalls(Calls):
    """Products and what belongs to one. Every call may raise :class:`~agent.errors.ServiceError`."""

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
