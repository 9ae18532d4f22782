"""``/_emulator/events``: what changes, once a second at most, as server-sent events (WHATWG HTML, section 9.2).

While nobody listens nothing is done. While somebody does, one task looks once a second at what was stored since, for
all listeners together: what it costs does not grow with their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic_core import to_json
from sqlalchemy import Connection, func, select
from typing_extensions import TypedDict

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.clock import ClockMode
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import TooManyStreams
from simulator.service.failure_log import already_logged
from simulator.service.routes.event_streams import HEARTBEAT, HEARTBEAT_S, MEDIA_TYPE, head_answer, stream_answer
from simulator.service.service import Service
from simulator.service.storage.tables import commands, devices, readings
from simulator.service.times import show_time
from simulator.service.waiting import hold
from simulator.watched import start_task

log = logging.getLogger(__name__)

PATH: Final = f"{CONTROL_PREFIX}events"
PERIOD_S: Final = 1.0
DEVICES_MAX: Final = 500
"""Devices that one event names; ``more`` says that there are others."""
LISTENERS_MAX: Final = 64
_DEVICE: Final = frozenset({"device_id"})


class RatesRecord(TypedDict):
    """So many in a second, over the time since the last event; requests are None where none are logged."""

    requests: float | None
    readings: float
    commands: float


class ChangesRecord(TypedDict):
    """What has changed since the last event.

    Attributes:
        device_ids: devices with new readings, changed commands, or seen again.
        more: there are further ones.
        registered: how many devices are registered, in all accounts.
        registrations: another number than before: some were registered or removed meanwhile.
        rates: of what came.
        time: of the service's clock.
        frozen: whether that clock stands.
    """

    device_ids: list[str]
    more: bool
    registered: int
    registrations: int
    rates: RatesRecord
    time: str
    frozen: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """How far was looked: row numbers, and seconds of real time."""

    reading: int
    command: int
    request: int
    at_s: float


@dataclass(eq=False, slots=True)
class _Listener:
    """One stream: the news that it has not sent yet; only the latest event counts, with all devices since."""

    changed: set[str] = field(default_factory=set)
    more: bool = False
    latest: ChangesRecord | None = None
    news: asyncio.Future[None] | None = None

    def take(self, record: ChangesRecord) -> None:
        self.changed.update(record["device_ids"])
        self.more = self.more or record["more"] or len(self.changed) > DEVICES_MAX
        self.latest = record
        if self.news is not None and not self.news.done():
            self.news.set_result(None)


class Changes:
    """Looks at what changes, for whoever listens."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listeners: set[_Listener] = set()
        self._changed: set[int] = set()
        self._seen_ms = 0
        self._somebody = asyncio.Event()
        self.registrations = 0
        """Goes up when devices were registered or removed since the last look."""
        self._registered: tuple[int, int] | None = None
        self.turn = 0
        """Goes up with each look. What was read after one is true until the next, which says what changed since."""
        self._closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look for the length of the block."""
        task = start_task(self._look(), "console-changes", self._service.fail)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def close(self) -> None:
        """End all streams of events."""
        self._closing = True
        for listener in self._listeners:
            if listener.news is not None and not listener.news.done():
                listener.news.set_result(None)

    @property
    def is_followed(self) -> bool:
        """Whether changes are looked for at all."""
        return bool(self._listeners)

    def _note(self, device_seq: int) -> None:
        """The commands of a device have changed."""
        self._changed.add(device_seq)

    async def _look(self) -> None:
        waiters = self._service.waiters
        while True:
            await self._somebody.wait()
            waiters.on_change = self._note
            self._changed.clear()
            try:
                place = await self._begin()
                while self._listeners:
                    await asyncio.sleep(PERIOD_S)
                    place = await self._tell(place)
            except Exception as exc:
                if not already_logged(exc):
                    log.exception("what changes could not be read; it is tried again")
                await asyncio.sleep(PERIOD_S)
            finally:
                waiters.on_change = None
            if not self._listeners:
                self._somebody.clear()

    async def _begin(self) -> _Place:
        self._seen_ms = self._service.clock.now_ms()
        return await self._service.look_up(self._read_place)

    def _read_place(self, connection: Connection) -> _Place:
        last = [connection.execute(select(func.max(table.c.seq))).scalar() or 0 for table in (readings, commands)]
        return _Place(last[0], last[1], self._service.requests.last_seq, time.monotonic())

    async def _tell(self, before: _Place) -> _Place:
        """One event for all listeners; how far was looked."""
        service = self._service
        now_ms = service.clock.now_ms()
        noted = self._changed | service.presence.seen_since(self._seen_ms)
        self._changed.clear()
        self._seen_ms = now_ms

        def look(connection: Connection) -> tuple[_Place, list[str], bool, tuple[int, int]]:
            place = self._read_place(connection)
            new = select(readings.c.device_seq).where(readings.c.seq > before.reading).distinct()
            seqs = noted | set(connection.execute(new.limit(DEVICES_MAX + 1)).scalars())
            named = list(seqs)[:DEVICES_MAX]
            ids = connection.execute(select(devices.c.id).where(devices.c.seq.in_(named))).scalars()
            count_and_last = select(func.count(), func.max(devices.c.seq)).where(devices.c.removed_at.is_(None))
            registered = tuple(connection.execute(count_and_last).one())
            return place, list(ids), len(seqs) > len(named), registered

        place, ids, more, registered = await service.look_up(look)
        self.turn += 1
        if registered != self._registered:
            self._registered = registered
            self.registrations += 1
        record: ChangesRecord = {
            "device_ids": ids,
            "more": more,
            "registered": registered[0],
            "registrations": self.registrations,
            "rates": _rates(before, place, has_requests=service.requests.keep > 0),
            "time": show_time(now_ms),
            "frozen": service.clock.mode is ClockMode.FROZEN,
        }
        for listener in self._listeners:
            listener.take(record)
        return place

    async def stream(self, call: Call) -> Answer:
        """Events until the caller goes."""
        wanted = call.query(_DEVICE).get("device_id")
        if len(self._listeners) >= LISTENERS_MAX:
            text = f"{LISTENERS_MAX} pages follow the events already: close some of them."
            raise TooManyStreams("too_many_streams", text, retry_after_s=5)
        if call.scope["method"] == "HEAD":
            return head_answer()
        return await stream_answer(self._events(call, wanted))

    async def _events(self, call: Call, wanted: str | None) -> AsyncGenerator[bytes]:
        listener = _Listener()
        self._listeners.add(listener)
        self._somebody.set()
        try:
            yield b""
            yield b"retry: 1000\n\n"
            while not self._closing:
                listener.news = asyncio.get_running_loop().create_future()
                if listener.latest is None and not await hold(listener.news, call.receive, HEARTBEAT_S):
                    return
                record = _for_one(listener, wanted)
                yield HEARTBEAT if record is None else b"event: changes\ndata: %b\n\n" % to_json(record)
        finally:
            self._listeners.discard(listener)

    def endpoints(self) -> Sequence[Endpoint]:
        """The path."""
        return (
            Endpoint(
                "GET",
                PATH,
                self.stream,
                "stream_changes",
                "What changes, as server-sent events: `event: changes` once a second, with the devices that have new "
                "readings or changed commands, how much came in a second, and the service's clock",
                "control",
                (
                    Reply(200, "Events without end", ChangesRecord, media_type=MEDIA_TYPE),
                    Reply(400, "The query is not valid", ERROR),
                    Reply(429, f"`too_many_streams`: {LISTENERS_MAX} follow it", ERROR),
                ),
                parameters=(Parameter("device_id", "Name this device only, when it changes", {"type": "string"}),),
                public=True,
            ),
        )


def _for_one(listener: _Listener, wanted: str | None) -> ChangesRecord | None:
    """What the listener has not sent yet; None when there is nothing new."""
    latest, changed, more = listener.latest, listener.changed, listener.more
    listener.latest, listener.changed, listener.more = None, set(), False
    if latest is None:
        return None
    ids = sorted(changed)[:DEVICES_MAX] if wanted is None else [one for one in changed if one == wanted]
    return {**latest, "device_ids": ids, "more": more}


def _rates(before: _Place, now: _Place, *, has_requests: bool) -> RatesRecord:
    elapsed_s = max(now.at_s - before.at_s, 0.001)

    def rate(one: int, other: int) -> float:
        return round(max(0, other - one) / elapsed_s, 1)

    return {
        "requests": rate(before.request, now.request) if has_requests else None,
        "readings": rate(before.reading, now.reading),
        "commands": rate(before.command, now.command),
    }
