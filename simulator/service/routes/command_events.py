"""Commands as they are sent: server-sent events for a gateway (WHATWG HTML, section 9.2; extension ``command-events``).

A stream keeps no queue: it is woken after a commit and reads what is new from the storage, page by page, as fast as its
caller takes it. So a slow caller costs no memory and misses nothing, and ``Last-Event-ID`` goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from agent.wire import extensions, paths
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import ServiceError, Unavailable, invalid
from simulator.service.routes.event_streams import (
    HEARTBEAT,
    HEARTBEAT_S,
    MEDIA_TYPE,
    head_answer,
    last_event_id,
    last_event_id_parameter,
    stream_answer,
)
from simulator.service.service import Service
from simulator.service.storage import commands
from simulator.service.waiting import STREAMS_MAX, wait_for_disconnect

STREAM_S: Final = 900.0
"""A stream ends after so long, and its caller comes back with credentials that are checked anew."""
PAGE: Final = 50
"""Commands that are read at once: what a stream holds in memory at most."""


@dataclass(slots=True)
class _Place:
    """The last command that a stream has sent; ``seq`` 0 when there is none."""

    seq: int
    command_id: str | None = None


async def stream_command_events(call: Call) -> Answer:
    """Commands from now on, or from ``Last-Event-ID`` on."""
    service, account = call.service, call.caller.manufacturer_seq
    last_id = last_event_id(call)
    if call.scope["method"] == "HEAD":
        return head_answer()
    place = await service.look_up(lambda c: _find_place(c, account, last_id))
    return await stream_answer(_stream(call, place, account))


def _find_place(connection: Connection, account: int, last_id: str | None) -> _Place:
    if last_id is None:
        newest = commands.newest(connection, account)
        return _Place(0) if newest is None else _Place(*newest)
    seq = commands.place_of(connection, account, last_id)
    if seq is None:
        raise invalid("Last-Event-ID", "is no command of this account: connect without it, and list what is open")
    return _Place(seq, last_id)


async def _stream(call: Call, place: _Place, account: int) -> AsyncGenerator[bytes]:
    """The stream, once it has joined those that are woken: its first piece is empty and is sent once it has."""
    service = call.service
    loop = asyncio.get_running_loop()
    ends = loop.time() + STREAM_S
    news = service.feed.join(account)
    gone = asyncio.ensure_future(wait_for_disconnect(call.receive))
    try:
        yield b""
        yield b": commands as they are sent\nretry: 1000\n\n"
        while not gone.done() and not service.feed.closing and loop.time() < ends:
            news.clear()
            text = await _read_events(service, account, place) if await _still_open(call) else None
            if text is None:
                return
            if text:
                yield text
            elif not await _wait(news, gone, min(HEARTBEAT_S, max(ends - loop.time(), 0))):
                yield HEARTBEAT
    finally:
        service.feed.leave(news)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone


async def _still_open(call: Call) -> bool:
    """Whether the caller's account is still there, and the state the same; else its caller comes back."""
    try:
        await call.check_epoch()
    except ServiceError:
        return False
    return True


async def _read_events(service: Service, account: int, place: _Place) -> bytes | None:
    """The next events; empty when there are none, None when the storage fails: the caller comes back with its place."""

    def read(connection: Connection) -> tuple[_Place, bytes]:
        after = place.seq
        if place.command_id is not None and commands.was_renumbered(connection, after, place.command_id):
            after = 0
        sent = commands.list_sent(connection, account, after, PAGE)
        events = [b"id: %s\nevent: command\ndata: %s\n\n" % (one.id.encode(), to_json(one)) for _, one in sent]
        return (_Place(sent[-1][0], sent[-1][1].id) if sent else place), b"".join(events)

    try:
        reached, events = await service.read(read)
    except SQLAlchemyError as exc:
        service.failure_log.report("an event stream could not read the storage and ends", exc)
        return None
    except Unavailable:  # as above, and logged already
        return None
    place.seq, place.command_id = reached.seq, reached.command_id
    return events


async def _wait(news: asyncio.Event, gone: asyncio.Future[None], timeout_s: float) -> bool:
    """Until there is news or the caller has gone; False when nothing happened in time."""
    waiting = asyncio.ensure_future(news.wait())
    both: set[asyncio.Future[Any]] = {waiting, gone}
    try:
        done, _ = await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.COMMAND_EVENTS,
        stream_command_events,
        "stream_command_events",
        "Commands of all devices as they are sent, as server-sent events: `id` and `event: command`, the command "
        f"record as `data`, a comment at least every {HEARTBEAT_S:.0f} s. It ends after {STREAM_S / 60:.0f} minutes: "
        "come back with `Last-Event-ID`",
        "commands",
        (
            Reply(200, "Events without end", media_type=MEDIA_TYPE),
            Reply(400, "`validation_error`: `Last-Event-ID` is no command of this account", ERROR),
            Reply(429, f"`too_many_streams`: the account has {STREAMS_MAX} of them open", ERROR),
        ),
        parameters=(
            last_event_id_parameter("`id` of the last event that was taken: all commands sent since come first"),
        ),
        extension=extensions.COMMAND_EVENTS,
    ),
)
