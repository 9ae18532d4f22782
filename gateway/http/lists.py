"""Which part of a device's commands a request asks for: state, order, page, and how long it may be held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.wire import paths
from agent.wire.command_states import OPEN, CommandStatus
from agent.wire.limits import LONG_POLL_MAX_S, PAGE_DEFAULT, PAGE_MAX
from gateway.http.answers import invalid

PARAMETERS: Final = frozenset({"status", "wait", "limit", "cursor", "order"})


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which part of the list of commands is asked for.

    Attributes:
        status: ``open``, a single state, or None for all.
        wait_s: how long the answer may be held, seconds.
        limit: so many at most.
        cursor: the id of the last command of the page before; None on the first page.
        ascending: oldest first.
    """

    status: str | None
    wait_s: float
    limit: int
    cursor: str | None
    ascending: bool

    @classmethod
    def read(cls, query: dict[str, str]) -> ListQuery:
        """Out of the query.

        Raises:
            Fault: 400.
        """
        status = query.get("status")
        if status is not None and status != OPEN and status not in list(CommandStatus):
            raise invalid("status", f"must be open or one of: {', '.join(CommandStatus)}")
        order = query.get("order", "asc" if status == OPEN else "desc")
        if order not in {"asc", "desc"}:
            raise invalid("order", "must be asc or desc")
        limit = query.get("limit", str(PAGE_DEFAULT))
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= PAGE_MAX):
            raise invalid("limit", f"must be a whole number from 1 to {PAGE_MAX}")
        return cls(status, _wait_s(query.get("wait")), int(limit), query.get("cursor"), order == "asc")

    def page(self, records: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], str | None]:
        """The page, and the cursor of the next one: the id of this one's last command."""
        begin = 0
        if self.cursor is not None:
            ids = [record.get("id") for record in records]
            if self.cursor not in ids:
                raise invalid("cursor", "is not of this list, or its command has gone: begin with the first page")
            begin = ids.index(self.cursor) + 1
        page = records[begin : begin + self.limit]
        return page, str(page[-1].get("id")) if begin + self.limit < len(records) else None

    def next_link(self, device_id: str, cursor: str) -> bytes:
        """``Link: rel="next"``."""
        order = "asc" if self.ascending else "desc"
        status = "" if self.status is None else f"status={self.status}&"
        query = f"{status}limit={self.limit}&order={order}&cursor={paths.segment(cursor)}"
        return f'<{paths.device_commands(device_id)}?{query}>; rel="next"'.encode()


def _wait_s(text: str | None) -> float:
    try:
        wait_s = 0.0 if text is None else float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= LONG_POLL_MAX_S:
        raise invalid("wait", f"must be a number of seconds from 0 to {LONG_POLL_MAX_S}")
    return wait_s
