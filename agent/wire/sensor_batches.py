"""Answers about many readings: batches and buckets (docs/protocol.md). Apart, since most devices send one by one."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from agent.wire.base import LooseTime, Received


class SensorDataBucket(Received):
    """Readings of one interval, put together by ``agg``.

    Attributes:
        from_: where the interval begins, inclusive; seconds since the epoch.
        to: where it ends, exclusive.
        sensor_data: the aggregate of each reading.
        count: how many readings went in.
    """

    device_id: str | None = None
    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_", "start"))
    to: LooseTime = Field(default=None, validation_alias=AliasChoices("to", "end"))
    sensor_data: dict[str, Any] = Field(default_factory=dict)
    count: int | None = None


class BatchError(Received):
    """Why one reading of a batch was refused; ``index`` is its place in the array, from 0."""

    index: int
    error: str = ""
    message: str = ""


class BatchAnswer(Received):
    """The answer to an array of readings (extension ``batch-sensor-data``)."""

    accepted: int
    errors: tuple[BatchError, ...] = ()
