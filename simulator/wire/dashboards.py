"""Dashboards and analytics (specification, "Dashboard" and "Other groups"; the bodies are docs/protocol.md's)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, Field

from agent.wire.base import Items, JsonObject, LooseTime, Received, Sent, Text, WireTime


class WidgetPosition(Sent):
    """Where a widget stands, in grid cells."""

    x: Annotated[int, Field(ge=0)]
    y: Annotated[int, Field(ge=0)]
    w: Annotated[int, Field(ge=1)]
    h: Annotated[int, Field(ge=1)]


class NewWidget(Sent):
    """A widget of a dashboard that is put.

    Attributes:
        source: what it shows, such as ``{"reading": "temperature_c"}``.
    """

    id: Text
    type: Text
    title: str | None = None
    source: JsonObject | None = None
    position: WidgetPosition | None = None
    options: JsonObject | None = None


class NewDashboard(Sent):
    """``PUT /products/{productId}/dashboard``.

    ``product_id`` and ``updated_at`` are taken, so that what was read can be put back, and ignored by the service.
    """

    name: str | None = None
    widgets: Items[NewWidget] = ()
    product_id: str | None = None
    updated_at: WireTime | None = None


class Widget(Received):
    """A widget of a dashboard."""

    id: str = ""
    type: str = ""
    title: str | None = None
    source: Any = None
    position: JsonObject | None = None
    options: JsonObject | None = None


class Dashboard(Received):
    """A product's dashboard; without widgets before the first PUT."""

    product_id: str | None = None
    name: str | None = None
    widgets: tuple[Widget, ...] = ()
    updated_at: LooseTime = None


class ProductCount(Received):
    """Devices of one product."""

    product_id: str = ""
    total: int = 0
    online: int = 0
    offline: int = 0
    never_seen: int = 0


class IntervalCount(Received):
    """How many in one interval that begins at ``from_``, seconds since the epoch."""

    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_"))
    count: int = 0


class DeviceAnalytics(Received):
    """Devices, messages and commands over a span of time.

    Attributes:
        interval: length of one interval, seconds.
        messages: readings stored per interval.
        commands: commands sent per interval.
    """

    total: int = 0
    online: int = 0
    offline: int = 0
    never_seen: int = 0
    by_product: tuple[ProductCount, ...] = ()
    messages: tuple[IntervalCount, ...] = ()
    commands: tuple[IntervalCount, ...] = ()
    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_"))
    to: LooseTime = None
    interval: float | None = None
