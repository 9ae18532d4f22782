"""The service's stream of commands (extension ``command-events``): each arrives as soon as it is sent.

Server-sent events: WHATWG HTML, section 9.2.6, bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from agent.errors import InvalidMessage, Refused, ServiceError, StorageError, UnexpectedAnswer
from agent.ports import Clock
from agent.runtime.service import Actor
from agent.wire import paths
from agent.wire.commands import CommandRecord
from agent.wire.connection import Interrupted
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import COMMAND_EVENTS
from agent.wire.limits import BODY_BYTES
from gateway.backend import Backend
from gateway.core.budget import Grant, Kind
from gateway.service.commands import CommandRequests, to_stored
from gateway.service.meter import Meter
from gateway.service.offer import UNKNOWN_LOOK_S, Offer
from gateway.service.worker import RetryGate
from gateway.store.service import StoreWriter

_log = logging.getLogger(__name__)

LAST_EVENT: Final = "commands.last_event_id"

# The service says something every 15 s.
_SILENCE_S: Final = 35.0
# A stream that ends sooner than this has failed, whatever it says.
_SHORT_S: Final = 5.0
_NOT_OFFERED_S: Final = 600.0


class EventService(Actor):
    """Holds the stream open; while it is, the poller only reconciles.

    Args:
        client: of its own, since :meth:`interrupt` ends its stream.
        offer: what the service offers.
        backend: takes the commands.
        commands: the poller.
        store: remembers the place in the stream.
        fetches: whether a device's commands are fetched here.
        meter: the key's budget.
        clock: for waiting.
        gate: for back-off and log lines.
        service_now: the service's clock, seconds since the epoch; None when it is not known.
    """

    def __init__(
        self,
        client: DeviceClient,
        offer: Offer,
        *,
        backend: Backend,
        commands: CommandRequests,
        store: StoreWriter,
        fetches: Callable[[str], bool],
        meter: Meter,
        clock: Clock,
        gate: RetryGate,
        service_now: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__("events")
        self._service_now = service_now
        self._client = client
        self._offer = offer
        self._backend = backend
        self._commands = commands
        self._store = store
        self._fetches = fetches
        self._meter = meter
        self._clock = clock
        self._gate = gate
        self._due_s = 0.0
        self._is_connected = False
        self._last_id: str | None = None

    def begin(self) -> None:
        """Find the place where an earlier process left the stream."""
        try:
            self._last_id = self._store.call(lambda store: store.setting(LAST_EVENT))
        except StorageError as error:
            _log.warning("events=place_unknown it begins with what is sent from now on: %s", error)

    def receive(self, message: Any) -> None:
        """What the service offers has changed: look now."""
        del message
        self._due_s = 0.0

    def due_at(self) -> float:
        """When to connect again."""
        return max(self._due_s, self._gate.not_before_s)

    def step(self) -> None:
        """Hold the stream until it ends."""
        try:
            if not self._offer.knows(COMMAND_EVENTS):
                self._set_connected(is_connected=False)
                self._due_s = self._now_s() + (_NOT_OFFERED_S if self._offer.is_known else UNKNOWN_LOOK_S)
                return
            answer = self._meter.ask(Kind.UPKEEP)
            if not isinstance(answer, Grant):
                self._due_s = answer.until_s
                return
            with self._meter.spend(answer):
                self._hold()
        except Interrupted:
            return
        except (ServiceError, InvalidMessage, StorageError) as error:
            self._set_connected(is_connected=False)
            self._gate.failed(error)

    def interrupt(self) -> None:
        """End the stream from another thread."""
        self._client.interrupt()

    def _hold(self) -> None:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        began_s = self._now_s()
        try:
            with self._client.connection.stream(paths.COMMAND_EVENTS, headers=headers, silence_s=_SILENCE_S) as chunks:
                for event in read_events(chunks):
                    self._set_connected(is_connected=True)
                    self._gate.succeeded()
                    if event is not None and event.name == "command":
                        self._take(event)
        except Refused as error:
            if self._last_id is None:
                raise
            # The place is not known any more, as after a reset of the service: what is open is listed anyway.
            _log.warning("events=place_lost the stream begins anew: %s", error)
            self._remember(None)
        if self._now_s() - began_s < _SHORT_S:
            raise UnexpectedAnswer("the service ends its stream of command events at once: commands are polled")

    def _take(self, event: Event) -> None:
        """Store a command, then the place: after a crash in between the command comes again and is a duplicate."""
        try:
            # Not into the parser's own cache: it keeps 16,384 strings, and those of commands never come again.
            record = CommandRecord.receive(from_json(event.data, cache_strings=False), self._client.reading)
        except (ValueError, InvalidMessage) as error:
            self._gate.report("event", f"events=malformed an event is no command and is skipped: {error}")
        else:
            if record.device_id is not None and self._fetches(record.device_id):
                for command in to_stored([record], record.device_id, self._offer.state_of)[0]:
                    self._backend.take_pushed(command, self._service_now())
                # A poll marks it as delivered at the service, and shows whether it is still open.
                self._commands.hint(record.device_id)
        self._remember(event.id or None)

    def _remember(self, event_id: str | None) -> None:
        self._last_id = event_id
        self._store.call(lambda store: store.put_setting(LAST_EVENT, event_id))

    def _set_connected(self, *, is_connected: bool) -> None:
        if is_connected is self._is_connected:
            return
        self._is_connected = is_connected
        self._commands.stream_changed(is_connected=is_connected)
        state = "connected commands come as they are sent" if is_connected else "off commands are polled"
        _log.info("events=%s", state)

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s


_MOST_BYTES: Final = 4 * BODY_BYTES


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the service's stream of server-sent events.

    Attributes:
        id: where to go on after a break; empty when the service gave none.
        name: ``message`` unless the service named it.
    """

    id: str
    name: str
    data: str


def read_events(chunks: Iterable[bytes]) -> Iterator[Event | None]:
    """The events of a stream; None for each comment, which shows that the service is there.

    Raises:
        UnexpectedAnswer: a line or an event beyond 1 MiB.
    """
    last_id, name, size = "", "", 0
    data: list[str] = []
    for line in _lines(chunks):
        size += len(line)
        if size > _MOST_BYTES:
            raise UnexpectedAnswer("the stream of events sends an event beyond 1 MiB: it is given up")
        if not line:
            if data:
                yield Event(last_id, name or "message", "\n".join(data))
            name, data, size = "", [], 0
        elif line.startswith(b":"):
            size = 0 if not data else size
            yield None
        else:
            field, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id" and "\0" not in value:
                last_id = value


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; the last one only when it is whole. A lone CR is not taken for a line's end."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > _MOST_BYTES:
            raise UnexpectedAnswer("the stream of events sends a line beyond 1 MiB: it is given up")
