"""Open commands in memory: what the service lists, and what its stream of events brings.

The service is asked about devices that are there, and about no others: one that hands each command out once keeps it
until its device comes. The service has the truth: after a restart everything is read again.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import logging
import math
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from httpx_sse import ServerSentEvent
from pydantic_core import from_json

from agent.core.commands import FINAL_STATUSES, listed_state
from agent.errors import Forbidden, InvalidMessage, NotFound, RateLimited, Refused, ServiceError, Unauthorized
from agent.health import REPEAT_AFTER_S, FailureLog
from agent.wire.answers import CommandList
from agent.wire.encoding import parse_time, to_rfc3339
from agent.wire.models import OPEN, CommandRecord, CommandStatus, JsonObject
from agent.wire.server import COMMAND_EVENTS, COMMAND_STATUS, CommandLists
from gateway.quota import Kind
from gateway.service import Service, Unavailable
from gateway.tokens import Tokens

_log = logging.getLogger(__name__)

OPEN_MAX: Final = 1_000
"""The newest open commands of one device that are kept; a server that lists everything for ever has no limit."""
THERE_S: Final = 90.0
"""How long a device counts as there after a request over HTTP."""
_ENDED_MAX: Final = 1_000
_SLOWEST: Final = 12  # times poll_s, for a device without news
_STREAM_RETRY_S: Final = 1.0
_STREAM_RETRY_MAX_S: Final = 30.0
_NO_STREAM_LOOK_S: Final = 5.0
_UNREADABLE: Final = "unreadable"
_AHEAD_S: Final = 10.0
_LONG_AGO: Final = "1970-01-01T00:00:00.000Z"


@dataclass(slots=True)
class _Device:
    """The commands of one device, and when the service is asked for them next.

    Attributes:
        open: id -> record, oldest first.
        ended: commands whose result was taken.
        has_news: the stream has named a new command, and the list has not been read since.
        there_until_s: monotonic; infinite while the device is connected to the broker.
        due_s: when to ask about it again, monotonic.
    """

    open: dict[str, JsonObject] = field(default_factory=dict)
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)
    etag: str | None = None
    read_s: float = -math.inf
    has_news: bool = False
    is_unknown: bool = False
    there_until_s: float = -math.inf
    watchers: set[asyncio.Event] = field(default_factory=set)
    due_s: float = math.inf
    interval_s: float = 0.0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class Commands:
    """The open commands of all devices, for one event loop.

    Attributes:
        service: is asked.
        tokens: which devices are served, and which of them are new.
        poll_s: how often to ask about a device without a stream, seconds.
        reconcile_s: how often with one, seconds.
        on_change: called with a device's id when its open commands have changed.
        is_streaming: the service's stream stands.
    """

    service: Service
    tokens: Tokens
    poll_s: float
    reconcile_s: float
    on_change: Callable[[str], object] = lambda _device_id: None
    is_streaming: bool = False

    def __post_init__(self) -> None:
        self._failure_log = FailureLog(_log, time.monotonic, REPEAT_AFTER_S)
        self._devices: dict[str, _Device] = {}
        self._due: list[tuple[float, str]] = []
        self._earlier = asyncio.Event()
        self._last_id = ""

    # --- for the fronts -----------------------------------------------------------------------------------------------

    async def open(self, device_id: str) -> tuple[JsonObject, ...]:
        """The device's open commands, as :meth:`known` has them; the service is asked when what is known is too old.

        Raises:
            NotFound: the service does not know the device.
            ServiceError: it could not be asked, and nothing is known.
        """
        device = self._device(device_id)
        if device.has_news or time.monotonic() - device.read_s >= self._fresh_s(device):
            try:
                await self._read(device_id, device, Kind.COMMANDS)
            except NotFound:
                raise
            except ServiceError:
                if device.read_s == -math.inf:
                    raise
        if device.is_unknown:
            raise NotFound(404, "device_not_found", "the service does not know this device")
        return self.known(device_id)

    def known(self, device_id: str) -> tuple[JsonObject, ...]:
        """The commands without a final result, as far as they are known: oldest first, none that has expired."""
        device = self._devices.get(device_id)
        now_s = self.service.now()
        return tuple(each for each in device.open.values() if not _has_expired(each, now_s)) if device else ()

    @contextmanager
    def watch(self, device_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the device's open commands change; the device is there meanwhile."""
        changed = asyncio.Event()
        device = self._device(device_id)
        device.watchers.add(changed)
        self.came(device_id, THERE_S)
        try:
            yield changed
        finally:
            device.watchers.discard(changed)
            device.there_until_s = max(device.there_until_s, time.monotonic() + THERE_S)

    def came(self, device_id: str, for_s: float = math.inf, *, soon: bool = False) -> None:
        """The device is there, for so long or until it leaves."""
        device = self._device(device_id)
        now_s = time.monotonic()
        was_away = device.there_until_s <= now_s
        device.there_until_s = max(device.there_until_s, now_s + for_s)
        if was_away or soon:
            device.interval_s = self.poll_s
            self._schedule(device_id, device, now_s if soon else now_s + min(self._fresh_s(device), self.poll_s))

    def left(self, device_id: str) -> None:
        """The device is not connected to the broker any more."""
        device = self._devices.get(device_id)
        if device is not None:
            device.there_until_s = time.monotonic() + (THERE_S if device.watchers else 0.0)

    def concluded(self, device_id: str, command_id: str) -> None:
        """The service has the final result of this command."""
        device = self._device(device_id)
        device.ended[command_id] = None
        if len(device.ended) > _ENDED_MAX:
            device.ended.popitem(last=False)
        if device.open.pop(command_id, None) is not None:
            self._changed(device_id, device)

    def has_concluded(self, device_id: str, command_id: str) -> bool:
        """Whether the command's final result went through this gateway."""
        device = self._devices.get(device_id)
        return device is not None and command_id in device.ended

    async def listed(self, device_id: str, status: str | None) -> list[JsonObject]:
        """All commands that the service lists, or those of one state, newest first."""
        asked = status if self.service.offers(COMMAND_STATUS) else None
        found = await self.service.commands(device_id, status=asked)
        records = self._records(device_id, found.records)
        return [each for each in reversed(records) if status is None or each["status"] == status]

    async def canceled(self, device_id: str, command_ids: Collection[str]) -> list[JsonObject]:
        """The records of those of these commands that the service has canceled."""
        if not self.service.offers(COMMAND_STATUS):
            return []
        try:
            found = await self.listed(device_id, CommandStatus.CANCELED)
        except (Refused, NotFound):
            return []  # a service that cannot list by state
        return [each for each in found if each["id"] in command_ids]

    def busy_devices(self) -> list[str]:
        return [device_id for device_id, device in self._devices.items() if device.open]

    def forget_unserved(self) -> None:
        """Drop what is known of devices that have no token any more, and of those that have long been away."""
        now_s = time.monotonic()
        for device_id, device in list(self._devices.items()):
            is_away = device.there_until_s < now_s - self.reconcile_s and not device.open and not device.ended
            if not device.watchers and (is_away or not self.tokens.serves(device_id)):
                del self._devices[device_id]

    def figures(self) -> dict[str, int]:
        now_s = time.monotonic()
        return {
            "devices_there": sum(each.there_until_s > now_s for each in list(self._devices.values())),
            "open_commands": sum(len(each.open) for each in list(self._devices.values())),
            "held_polls": sum(len(each.watchers) for each in list(self._devices.values())),
        }

    # --- the service's lists ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Ask about each device that is there when its turn comes, the longest due first; for a task of its own."""
        tasks: set[asyncio.Task[None]] = set()
        while True:
            self._earlier.clear()
            wait_s = self._due[0][0] - time.monotonic() if self._due else math.inf
            if wait_s > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._earlier.wait(), None if wait_s == math.inf else wait_s)
                continue
            due_s, device_id = heapq.heappop(self._due)
            device = self._devices.get(device_id)
            if device is None or device.due_s != due_s:
                continue  # it was scheduled anew meanwhile
            device.due_s = math.inf
            if device.there_until_s <= time.monotonic():
                continue
            kind = Kind.COMMANDS if device.has_news or device.read_s == -math.inf else Kind.POLLS
            wait_s = self.service.quota.wait_s(kind)
            if wait_s > 0:
                self._schedule(device_id, device, due_s)
                await asyncio.sleep(min(wait_s, 5.0))
                continue
            task = asyncio.ensure_future(self._look(device_id, device, kind))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _look(self, device_id: str, device: _Device, kind: Kind) -> None:
        wait_s = 0.0
        try:
            if not self.tokens.serves(device_id):
                return
            is_news = await self._read(device_id, device, kind)
            device.interval_s = self.poll_s if is_news else min(2 * device.interval_s, _SLOWEST * self.poll_s)
        except (RateLimited, Unavailable) as error:
            wait_s = error.retry_after_s or self.poll_s
        except NotFound as error:
            text = (
                f"commands=unknown_device the service does not know {device_id[:80]} ({error}): register it, or take "
                "its token back; if this is said of every device, check service.base_url"
            )
            self._failure_log.report("unknown_device", text)
        except (ServiceError, sqlite3.Error) as error:
            self._failure_log.report("failed", f"commands=failed {error}")
        self._schedule(device_id, device, time.monotonic() + (wait_s or self._fresh_s(device)))

    async def _read(self, device_id: str, device: _Device, kind: Kind) -> bool:
        """Read the device's list; whether it brought a new command."""
        asked_s = time.monotonic()
        async with device.reading:
            if device.read_s >= asked_s:
                return False  # another one has read it meanwhile
            has_states = self.service.offers(COMMAND_STATUS)
            began_s = self.service.now()
            had_news, device.has_news = device.has_news, False
            try:
                found = await self.service.commands(
                    device_id, status=OPEN if has_states else None, etag=device.etag, kind=kind
                )
            except NotFound:
                device.is_unknown = True
                raise
            except ServiceError:
                device.has_news = device.has_news or had_news
                raise
            device.is_unknown = False
            is_first, device.read_s = device.read_s == -math.inf, time.monotonic()
            if found.unchanged:
                return False
            return self._take(device_id, device, found, to_rfc3339(began_s), is_first=is_first)

    def _take(self, device_id: str, device: _Device, found: CommandList, at: str, *, is_first: bool) -> bool:
        for sentence in (*found.malformed, *found.notes.values()):
            self._failure_log.report("malformed", f"commands=malformed device={device_id[:80]} {sentence}")
        lists = self.service.dialect.command_lists
        is_truth = lists is CommandLists.OPEN or (lists is None and self.service.offers(COMMAND_STATUS))
        # The first reading of a list that may hold finished commands too does not tell how old its commands are.
        holds_history = not is_truth and lists is not CommandLists.ONCE
        is_history = is_first and holds_history and self.tokens.is_new(device_id)
        listed = {each["id"]: each for each in self._records(device_id, found.records)}
        now_open = {} if is_truth and found.is_whole else dict(device.open)
        for command_id, record in listed.items():
            if record["status"] in FINAL_STATUSES or command_id in device.ended:
                now_open.pop(command_id, None)
            else:
                known = device.open.get(command_id)
                seen = _LONG_AGO if is_history and not self._is_dated(record) else at
                now_open[command_id] = {**record, "listed_at": seen if known is None else known["listed_at"]}
        while len(now_open) > OPEN_MAX:
            text = f"commands=too_many device={device_id[:80]} only the newest {OPEN_MAX} of its open commands count"
            self._failure_log.report("too_many", text)
            del now_open[next(iter(now_open))]
        device.etag = found.etag if found.is_whole else None
        return self._replace(device_id, device, now_open)

    def _is_dated(self, record: JsonObject) -> bool:
        """Whether the command's time says how old it is; a time after the service's own clock does not."""
        created_at = record["created_at"]
        return created_at not in {None, _UNREADABLE} and parse_time(created_at) <= self.service.now() + _AHEAD_S

    def _replace(self, device_id: str, device: _Device, now_open: dict[str, JsonObject]) -> bool:
        is_news = bool(now_open.keys() - device.open.keys())
        is_change = is_news or device.open.keys() != now_open.keys()
        device.open = now_open
        if is_change:
            self._changed(device_id, device)
        return is_news

    def _records(self, device_id: str, records: Iterable[CommandRecord]) -> list[JsonObject]:
        """Records as devices get them: in our service's shape, whatever server they came from; oldest first."""
        has_states = self.service.offers(COMMAND_STATUS)
        only_open = self.service.dialect.command_lists is CommandLists.OPEN
        found = []
        for record in sorted(records, key=lambda each: each.created_at or 0.0):
            if record.device_id is not None and record.device_id != device_id:
                self._failure_log.report("foreign", "commands=malformed a command of another device is in a list")
                continue
            members: JsonObject = {
                "id": record.stable_id(),
                "device_id": device_id,
                "command_payload": record.command_payload,
                "status": listed_state(record.status, has_states=has_states, only_open=only_open),
                "status_reason": record.status_reason,
                "result": record.result,
            }
            for name in ("created_at", "delivered_at", "completed_at", "expires_at"):
                at = getattr(record, name)
                members[name] = None if at is None else to_rfc3339(at)
            # Not None: a device would run a command without an expiry at any time.
            members |= dict.fromkeys(record.unreadable_times, _UNREADABLE)
            found.append(members)
        return found

    # --- the service's stream -----------------------------------------------------------------------------------------

    async def stream(self) -> None:
        """Hold the service's stream of commands, where it has one; for a task of its own."""
        wait_s = _STREAM_RETRY_S
        while True:
            if COMMAND_EVENTS not in (self.service.offered or ()):
                await asyncio.sleep(_NO_STREAM_LOOK_S)
                continue
            began_s, least_s, level = time.monotonic(), 0.0, logging.INFO
            try:
                await self._hold()
                text = "it ended"
            except Refused as error:
                # The service no longer knows this event id, for example after a reset.
                self._last_id, text = "", str(error)
            except (RateLimited, Unavailable) as error:
                least_s, text = error.retry_after_s or 0.0, str(error)
            except (Unauthorized, Forbidden) as error:
                text, level = f"{error}; check the key files of auth", logging.WARNING
            except (ServiceError, sqlite3.Error) as error:
                text = str(error)
            self.is_streaming = False
            wait_s = _STREAM_RETRY_S if time.monotonic() - began_s > 60 else min(2 * wait_s, _STREAM_RETRY_MAX_S)
            self._failure_log.report("stream", f"events=off commands are polled meanwhile: {text}", level=level)
            self._all_are_due()
            await asyncio.sleep(max(wait_s, least_s))

    async def _hold(self) -> None:
        async with self.service.command_events(self._last_id) as events:
            self.is_streaming = True
            _log.info("events=connected commands come as they are sent")
            if not self._last_id:
                self._all_are_due()  # for commands that were sent before the stream was open
            async for event in events:
                self._last_id = event.id or self._last_id
                if event.event == "command":
                    self._pushed(event)

    def _pushed(self, event: ServerSentEvent) -> None:
        """Read the list of the command's device: next, if the device is there; else when it comes.

        Fetch the list instead of using the event: only listing marks the command delivered; otherwise it may expire
        while it runs.
        """
        try:
            device_id = CommandRecord.receive(
                from_json(event.data, cache_strings=False), self.service.dialect
            ).device_id
        except (ValueError, InvalidMessage) as error:
            self._failure_log.report("event", f"events=malformed an event is no command and is skipped: {error}")
            return
        if device_id is None or not self.tokens.serves(device_id):
            return
        device = self._device(device_id)
        device.has_news, device.etag = True, None
        if device.there_until_s > time.monotonic():
            self._schedule(device_id, device, 0.0)

    def _all_are_due(self) -> None:
        now_s = time.monotonic()
        for device_id, device in self._devices.items():
            device.read_s = min(device.read_s, now_s - self.poll_s)
            if device.there_until_s > now_s:
                self._schedule(device_id, device, now_s)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _device(self, device_id: str) -> _Device:
        return self._devices.setdefault(device_id, _Device(interval_s=self.poll_s))

    def _fresh_s(self, device: _Device) -> float:
        """How long a list that was read counts as new enough."""
        return self.reconcile_s if self.is_streaming else max(self.poll_s, device.interval_s)

    def _schedule(self, device_id: str, device: _Device, due_s: float) -> None:
        if due_s < device.due_s:
            device.due_s = due_s
            heapq.heappush(self._due, (due_s, device_id))
            self._earlier.set()

    def _changed(self, device_id: str, device: _Device) -> None:
        for event in device.watchers:
            event.set()
        self.on_change(device_id)


def tag_of(records: Sequence[JsonObject]) -> str:
    """An ``ETag``, in quotes, that changes when a command comes, ends or changes its state."""
    text = "\n".join(f"{each['id']} {each['status']}" for each in records)
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


def seconds_left(record: JsonObject, now_s: float) -> float | None:
    """Seconds until a command expires; None when it never does, or its time is unreadable (its device refuses it)."""
    expires_at = record.get("expires_at")
    return None if expires_at in {None, _UNREADABLE} else parse_time(expires_at) - now_s


def _has_expired(record: JsonObject, now_s: float) -> bool:
    left_s = seconds_left(record, now_s)
    return left_s is not None and left_s <= 0
