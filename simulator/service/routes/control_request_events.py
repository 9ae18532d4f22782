"""``/_emulator/requests/events``: requests as they end, as server-sent events (WHATWG HTML, section 9.2).

A stream keeps no queue: it reads from the log, as fast as its caller takes it. What leaves the log before a slow caller
has taken it is a ``gap`` event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from pydantic_core import to_json
from typing_extensions import TypedDict

from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.logged_requests import Selection, judge
from simulator.service.request_log.store import READERS_MAX, RequestLog
from simulator.service.routes.control_requests import (
    FILTER_PARAMETERS,
    FILTERS,
    HEADER,
    PATH,
    log_of,
    read_selection,
    show_entry,
)
from simulator.service.routes.event_streams import (
    HEARTBEAT,
    HEARTBEAT_S,
    MEDIA_TYPE,
    head_answer,
    last_event_id,
    last_event_id_parameter,
    stream_answer,
)
from simulator.service.waiting import hold

_DIGITS_MAX: Final = 19
PAGE: Final = 20
"""Requests that are sent at once: some 600 KiB at most."""


class GapRecord(TypedDict):
    """So many requests have left the log before they could be sent."""

    missed: int


async def stream_requests(call: Call) -> Answer:
    """Requests from now on, or from ``Last-Event-ID`` on."""
    query = call.query(FILTERS, prefix=HEADER)
    log = log_of(call.service)
    selection = await read_selection(call, query)
    if call.scope["method"] == "HEAD":
        return head_answer()
    return await stream_answer(_stream(call, log, selection, _first_place(call, log)))


def _first_place(call: Call, log: RequestLog) -> int:
    """After which request to begin; an id that the log never gave out is of a service before this one."""
    last_id = last_event_id(call)
    if last_id is None or not last_id.isdecimal():
        return log.last_seq
    seq = int(last_id[:_DIGITS_MAX])
    return seq if seq <= log.last_seq else 0


async def _stream(call: Call, log: RequestLog, selection: Selection, place: int) -> AsyncGenerator[bytes]:
    log.join()
    try:
        yield b""
        yield b": requests as they end\nretry: 1000\n\n"
        while not log.closing:
            news = log.news()
            try:
                place, events = await _read_events(call, log, selection, place)
                if events:
                    yield events
                elif place == log.last_seq:
                    if not await hold(news, call.receive, HEARTBEAT_S):
                        return
                    if not news.done():
                        yield HEARTBEAT
            finally:
                news.cancel()
    finally:
        log.leave()


async def _read_events(call: Call, log: RequestLog, selection: Selection, place: int) -> tuple[int, bytes]:
    """The place that was reached, and the events up to it."""
    events = []
    entries = list(log.after(place))[:PAGE]
    missed = log.gap(place)
    if missed:
        place = log.last_dropped
        gap: GapRecord = {"missed": missed}
        events.append(b"id: %d\nevent: gap\ndata: %b\n\n" % (place, to_json(gap)))
    for judged in await judge(call.service, entries, selection):
        if judged.fits:
            text = to_json(show_entry(call.service, judged.entry))
            events.append(b"id: %d\nevent: request\ndata: %b\n\n" % (judged.entry.seq, text))
    return entries[-1].seq if entries else max(place, log.last_seq), b"".join(events)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        f"{PATH}/events",
        stream_requests,
        "stream_requests",
        "Requests as they end, as server-sent events: `id` and `event: request`, the logged request as `data`, "
        f"a comment every {HEARTBEAT_S:.0f} s. `event: gap` with `missed` comes for what has left the log unsent",
        "control",
        (
            Reply(200, "Events without end", media_type=MEDIA_TYPE),
            Reply(400, "A filter cannot be used, or names nothing that exists", ERROR),
            Reply(409, "`request_log_off`: the service keeps no requests", ERROR),
            Reply(429, f"`too_many_streams`: {READERS_MAX} readers follow it", ERROR),
        ),
        parameters=(
            *FILTER_PARAMETERS,
            last_event_id_parameter("`id` of the last event that was taken: what ended since comes first"),
        ),
        public=True,
    ),
)
