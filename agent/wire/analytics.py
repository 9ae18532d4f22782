"""Analytics (specification, "Other groups": ``GET /analytics/devices``; the body is docs/protocol.md's)."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from agent.wire.base import LooseTime, Received


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
