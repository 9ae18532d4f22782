"""Dashboards: one for each product, stored as the JSON object that was put."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Row, insert, select, update

from agent.wire.base import JsonObject
from simulator.service.storage.tables import dashboards
from simulator.service.times import show_time
from simulator.wire.dashboards import NewDashboard


def read(connection: Connection, product: Row[Any]) -> JsonObject:
    """The product's dashboard; an empty one before the first was put."""
    row = connection.execute(select(dashboards).where(dashboards.c.product_seq == product.seq)).one_or_none()
    if row is None:
        return {"product_id": product.id, "name": None, "widgets": [], "updated_at": None}
    return {"product_id": product.id, **from_json(row.dashboard), "updated_at": show_time(row.updated_at)}


def put(connection: Connection, product: Row[Any], dashboard: NewDashboard, now_ms: int) -> JsonObject:
    """Replace the product's dashboard."""
    text = to_json(dashboard.model_dump(include={"name", "widgets"})).decode()
    values = {"dashboard": text, "updated_at": now_ms}
    mine = dashboards.c.product_seq == product.seq
    if connection.execute(update(dashboards).where(mine).values(values)).rowcount == 0:
        named = {"product_seq": product.seq, "manufacturer_seq": product.manufacturer_seq}
        connection.execute(insert(dashboards).values({**named, **values}))
    return read(connection, product)
