"""Dashboards (specification, "Dashboard" and "Products")."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from agent.wire import paths
from simulator.service.answers import Answer, WriteResult, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid, invalid_all
from simulator.service.records import DashboardRecord
from simulator.service.storage import products
from simulator.wire.dashboards import NewDashboard

_TAG: Final = "dashboards"


async def show_dashboard(call: Call) -> Answer:
    """The product's dashboard; an empty one before the first PUT."""
    call.query(frozenset())
    account, product_id = call.caller.manufacturer_seq, call.path("product_id")
    return ok(
        await call.service.look_up(lambda c: products.read_dashboard(c, products.find(c, account, product_id))),
    )


async def put_dashboard(call: Call) -> Answer:
    """Replace the product's dashboard."""
    dashboard = await call.message(NewDashboard)
    if not dashboard.model_fields_set & {"name", "widgets"}:
        raise invalid("body", "give name, widgets or both: this replaces the whole dashboard")
    _check_ids(dashboard)
    account, product_id, now_ms = call.caller.manufacturer_seq, call.path("product_id"), call.service.clock.now_ms()

    def put(connection: Connection) -> WriteResult:
        return WriteResult(
            ok(products.put_dashboard(connection, products.find(connection, account, product_id), dashboard, now_ms))
        )

    return await call.write(put)


def _check_ids(dashboard: NewDashboard) -> None:
    seen: set[str] = set()
    faults = []
    for index, widget in enumerate(dashboard.widgets):
        if widget.id in seen:
            faults.append((f"widgets.{index}.id", "occurs twice in this dashboard"))
        seen.add(widget.id)
    if faults:
        raise invalid_all(faults)


_NOT_FOUND: Final = Reply(404, "`product_not_found`", ERROR)
_INVALID: Final = Reply(400, "`validation_error`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.PRODUCT_DASHBOARD,
        show_dashboard,
        "show_dashboard",
        "The product's dashboard; an empty one before the first PUT",
        _TAG,
        (Reply(200, "The dashboard", DashboardRecord), _INVALID, _NOT_FOUND),
    ),
    Endpoint(
        "PUT",
        paths.PRODUCT_DASHBOARD,
        put_dashboard,
        "put_dashboard",
        "Replace the product's dashboard; `product_id` and `updated_at` are passed over, so what was read can be put",
        _TAG,
        (Reply(200, "The dashboard", DashboardRecord), _INVALID, _NOT_FOUND),
        body=(NewDashboard,),
    ),
)
