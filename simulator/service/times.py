"""Times as the service writes them: RFC 3339 in UTC with milliseconds."""

from __future__ import annotations

from functools import lru_cache

from agent.wire.encoding import to_rfc3339


def show_time(ms: int) -> str:
    """Milliseconds since the epoch as text."""
    second, millis = divmod(ms, 1000)
    return f"{_show_second(second)}{millis:03d}Z"


@lru_cache(maxsize=512)
def _show_second(second: int) -> str:
    return to_rfc3339(second)[:-4]


def show_time_or_none(ms: int | None) -> str | None:
    """As :func:`show_time`; None stays None."""
    return None if ms is None else show_time(ms)
