"""How times in answers are written. Axis: ``time_format``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

from simulator.service.profile_layer.exchange import OK, Exchange

_OURS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OPAQUE: Final = frozenset(
    {"command_payload", "data_payload", "sensor_data", "metadata", "qr_info", "options", "source", "payload_schema"}
)
"""Members that belong to whoever sent them: nothing inside is a time of the service."""
_OTHERS: Final = frozenset({"from", "to", "start", "end", "time"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _milliseconds(at: datetime) -> int:
    passed = at - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


FORMATS: Final[Mapping[str, Callable[[datetime], str | int]]] = {
    "offset": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}+00:00",
    "short_offset": lambda at: f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}+00",
    "utc_word": lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC",
    "minutes": lambda at: f"{at:%Y-%m-%dT%H:%M}Z",
    "rfc1123": lambda at: format_datetime(at, usegmt=True),
    "epoch_s": lambda at: _milliseconds(at) // 1000,
    "epoch_ms": _milliseconds,
    "epoch_us": lambda at: _milliseconds(at) * 1000,
    "naive": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}",
}


def rewrite(exchange: Exchange) -> None:
    """After: every time of the service in the profile's form."""
    reply = exchange.reply
    if reply.status in OK and reply.is_json:
        reply.value = write_times(exchange, reply.value)


def write_times(exchange: Exchange, value: Any) -> Any:
    """A JSON value of the complete service with its times in the profile's form."""
    write = FORMATS.get(exchange.profile.time_format)
    return value if write is None else _rewrite(value, write)


def _rewrite(value: Any, write: Callable[[datetime], str | int]) -> Any:
    if isinstance(value, list):
        return [_rewrite(one, write) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: inner if name in _OPAQUE else _member(name, inner, write) for name, inner in value.items()}


def _member(name: str, value: Any, write: Callable[[datetime], str | int]) -> Any:
    if isinstance(value, str):
        is_time = (name.endswith("_at") or name in _OTHERS) and _OURS.fullmatch(value)
        return write(datetime.fromisoformat(value)) if is_time else value
    return _rewrite(value, write)
