"""Requests of a virtual device over HTTP, and the meaning of answers: values in, bytes out, and back. No I/O.

The real agent's client is synchronous and holds a socket; a hundred thousand devices share one loop. So the requests
are built here, out of the same wire models, and the answers judged by the same rules. What every device says all day,
a poll and readings, is written without the models, to the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlencode

import httpx

from agent.core.listed import listed_state
from agent.core.values import Command, CommandPoll, Report
from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.commands import OPEN, CommandRecord, CommandResult, CommandResultPayload
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.extensions import (
    BATCH_SENSOR_DATA,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    IDEMPOTENCY_KEY,
    LONG_POLL,
    RECORDED_AT,
)
from agent.wire.json_text import encode_json
from agent.wire.limits import ANSWER_BYTES
from agent.wire.lists import Page, PageWalk, read_commands
from agent.wire.models import BatchAnswer, NewRuntimeRecord
from agent.wire.times import to_rfc3339
from simulator.fleet.device.answers import SOURCE, judge
from simulator.fleet.engine.ports import HttpAnswer
from simulator.fleet.faults import Body as SentBody
from simulator.fleet.outcomes import Attempt

IN_PROGRESS: Final = "in_progress"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_AUTO: Final = Dialect()
_PAGES_MAX: Final = 1000
_ERRORS: Final = ("errors", "error", "failed", "rejected", "failures")
_NO_EXPIRY: Final = "unreadable_expires_at: the command's expires_at is no time that this device can read"
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_~-]+")

HELD_POLL: Final = "http.long_poll"
"""What a poll that the service was asked to hold is measured as."""


class Operation(StrEnum):
    """What a request is for; the value is its name in the measurement."""

    POLL = "http.poll"
    READINGS = "http.sensor_data"
    REPORT = "http.report"
    ORDER = "http.send_command"
    """Not a device's: the operator sends a command."""


_POLL: Final = Operation.POLL
_READINGS: Final = Operation.READINGS


class Request(NamedTuple):
    """One request of a device.

    Attributes:
        target: path and query, percent-encoded.
        body: JSON text, or None.
        wait_s: how long the service was asked to hold the answer.
        keys: of the readings in it, for ``READINGS``.
        report: what is reported, for ``REPORT``.
        intended_s: when it was due, on the monotonic clock.
        ready_s: when the device was free to send it; not before ``intended_s``.
        attempt: whether it went out before.
        copies: of the body, which go out as well and which nobody waits for.
    """

    operation: Operation
    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    wait_s: float = 0.0
    keys: tuple[int, ...] = ()
    report: Report | None = None
    intended_s: float = 0.0
    ready_s: float = 0.0
    attempt: Attempt = Attempt.FIRST
    copies: tuple[SentBody, ...] = ()


class DatedReading(Protocol):
    """A reading that goes over the wire."""

    @property
    def key(self) -> int:
        """The key of the reading in its outbox."""
        ...

    @property
    def text(self) -> str:
        """The values, as :func:`values_text` writes them."""
        ...

    @property
    def recorded_ms(self) -> int | None:
        """Epoch milliseconds by the device's estimate of the service's clock; None leaves the time to the service."""
        ...


@dataclass(frozen=True, slots=True)
class TimedReading:
    """A reading that goes over the wire without an outbox; see :class:`DatedReading`."""

    key: int
    text: str
    recorded_ms: int | None


@dataclass(frozen=True, slots=True)
class HttpCodec:
    """Builds the requests of one device, in the dialect of one service.

    Attributes:
        device_id: the service's id of this device.
        product_id: whose table takes results on a plain server.
        offers: the extensions that the service has (its discovery document, or the scenario); empty for a plain
            server, which is sent nothing beyond the specification.
        dialect: what the scenario says of the service beside that.
    """

    device_id: str
    product_id: str
    offers: frozenset[str]
    dialect: Dialect = _AUTO
    _is_plain: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # An id that is written the same in a path, in JSON, and as it is: any that a service makes.
        object.__setattr__(self, "_is_plain", _UNRESERVED.fullmatch(self.device_id) is not None)

    def poll(self, wait_s: float, etag: str | None, due_s: float = 0.0) -> Request:
        """Ask for the open commands, held open for ``wait_s`` where the service can; ``due_s`` is when it was due."""
        held_s = wait_s if LONG_POLL in self.offers else 0.0
        device_id = self.device_id
        path = f"/devices/{device_id}/commands" if self._is_plain else paths.device_commands(device_id)
        headers: Mapping[str, str] = {"if-none-match": etag} if etag else _NO_HEADERS
        query = _poll_query(held_s, only_open=COMMAND_STATUS in self.offers)
        return Request(_POLL, "GET", path + query, None, headers, held_s, (), None, due_s, due_s)

    def readings(
        self,
        batch: Sequence[DatedReading],
        name: str,
        intended_s: float = 0.0,
        ready_s: float = 0.0,
        *,
        attempt: Attempt = Attempt.FIRST,
    ) -> Request:
        """Hand over readings; as one array where the service takes arrays, else only the first of them.

        Args:
            batch: one or more.
            name: begins the idempotency keys; unique among all devices and runs that talk to one service.
            intended_s: as in :class:`Request`.
            ready_s: as in :class:`Request`.
            attempt: as in :class:`Request`.
        """
        if len(batch) == 1 or BATCH_SENSOR_DATA not in self.offers:
            reading = batch[0]
            keys: tuple[int, ...] = (reading.key,)
            body = self._reading(reading)
        else:
            keys = tuple([reading.key for reading in batch])
            body = f"[{','.join([self._reading(reading) for reading in batch])}]"
        headers: Mapping[str, str] = _NO_HEADERS
        if IDEMPOTENCY_KEY in self.offers:
            headers = {"idempotency-key": _once_key(name, keys)}
        return Request(
            _READINGS, "POST", paths.SENSOR_DATA, body.encode(), headers, 0.0, keys, None, intended_s, ready_s, attempt
        )

    def report(self, report: Report, intended_s: float = 0.0, ready_s: float = 0.0) -> Request | None:
        """A command's progress or result; None for progress on a plain server, and where nothing takes results."""
        headers: Mapping[str, str] = _NO_HEADERS
        place = self.result_place
        if place is ResultPlace.NONE:
            return None
        if place is ResultPlace.ENDPOINT:
            result = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
            target = paths.command_result(self.device_id, report.command_id)
            body = encode_json(result.to_wire())
        elif report.status == IN_PROGRESS:
            return None
        else:
            target, body = paths.RUNTIME_DATA, encode_json(self._result_row(report).to_wire())
            if IDEMPOTENCY_KEY in self.offers:
                headers = {"idempotency-key": f"result-{report.command_id}"}
        return Request(
            Operation.REPORT,
            "POST",
            target,
            body,
            headers,
            report=report,
            intended_s=intended_s,
            ready_s=ready_s,
        )

    @property
    def result_place(self) -> ResultPlace:
        """The destination of results: by the scenario, else the endpoint where it is announced, else the table."""
        if self.dialect.results is not None:
            return self.dialect.results
        return ResultPlace.ENDPOINT if COMMAND_RESULTS in self.offers else ResultPlace.TABLE

    def state_of(self, status: str | None) -> str | None:
        """The state of a listed command, as far as this service can be taken at its word."""
        only_open = self.dialect.command_lists is CommandLists.OPEN
        return listed_state(status, has_states=COMMAND_STATUS in self.offers, only_open=only_open)

    @property
    def sends_time(self) -> bool:
        """Whether readings go out with the time at which they were made."""
        return sends_time(self.offers, self.dialect)

    def _dated(self, reading: DatedReading) -> str:
        """The values, with the time among them where the scenario names a reading for it."""
        name = self.dialect.recorded_at_reading
        if reading.recorded_ms is None or name is None:
            return reading.text
        time = f"{encode_json(name).decode()}:{reading.recorded_ms / 1000!r}"
        return f"{reading.text[:-1]},{time}}}" if reading.text != "{}" else f"{{{time}}}"

    def _result_row(self, report: Report) -> NewRuntimeRecord:
        payload = CommandResultPayload(
            command_id=report.command_id,
            status=report.status,  # type: ignore[arg-type]  # checked by the model
            result=report.result,
            error=report.error,
            started_at=_time(report.started_at),
            finished_at=_time(report.finished_at),
        )
        return NewRuntimeRecord(
            product_id=self.product_id,
            device_id=self.device_id,
            table_name=self.dialect.results_table,
            data_payload=payload.to_wire(),
        )

    def _reading(self, reading: DatedReading) -> str:
        """:class:`agent.wire.models.PostSensorData` as JSON text."""
        device_id = self.device_id
        name = f'"{device_id}"' if self._is_plain else encode_json(device_id).decode()
        if reading.recorded_ms is None or RECORDED_AT not in self.offers:
            return f'{{"device_id":{name},"sensor_data":{self._dated(reading)}}}'
        return f'{{"device_id":{name},"sensor_data":{reading.text},"recorded_at":"{time_text(reading.recorded_ms)}"}}'


def sends_time(offers: frozenset[str], dialect: Dialect) -> bool:
    """Whether readings go out with the time at which they were made."""
    return RECORDED_AT in offers or dialect.recorded_at_reading is not None


def values_text(values: Mapping[str, float]) -> str:
    """Named numbers as JSON text.

    Raises:
        InvalidMessage: one of them is not finite, or a name is no text for the wire.
    """
    numbers = values.values()
    total = sum(numbers)
    if total - total != 0 or not _PLAIN_NUMBERS.issuperset(map(type, numbers)):
        return encode_json(dict(values)).decode()
    return _shape(tuple(values)) % tuple(numbers)


_PLAIN_NUMBERS: Final = frozenset({float, int})


@lru_cache(maxsize=1024)
def _shape(names: tuple[str, ...]) -> str:
    """The JSON text of an object with these names and a place for each number."""
    members = [encode_json(name).decode().replace("%", "%%") + ":%r" for name in names]
    return "{" + ",".join(members) + "}"


@lru_cache(maxsize=64)
def _poll_query(held_s: float, *, only_open: bool) -> str:
    query: dict[str, str | int] = {"status": OPEN} if only_open else {}
    if held_s > 0:
        query["wait"] = round(held_s)
    return f"?{urlencode(query)}" if query else ""


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    return to_rfc3339(second)[:-4]


def time_text(epoch_ms: int) -> str:
    """As :func:`agent.wire.times.to_rfc3339`; many devices read in the same second."""
    second, millisecond = divmod(epoch_ms, 1000)
    return f"{_second_text(second)}{millisecond:03d}Z"


def _once_key(name: str, keys: tuple[int, ...]) -> str:
    if len(keys) == 1:
        return f"{name}-{keys[0]}"
    return hashlib.sha256("\n".join([f"{name}-{key}" for key in keys]).encode()).hexdigest()


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """A judged list of commands: what the core decides on, and the version for the next conditional request."""

    poll: CommandPoll
    etag: str | None


class PagedPoll:
    """One poll on its way through the pages of its list, by the readers of the real agent's client.

    Args:
        codec: whose list.
        request: for its first page.
        base_url: of the service; links to other pages are followed below it.
    """

    __slots__ = ("_base", "_codec", "_pages", "_request", "_walk")

    def __init__(self, codec: HttpCodec, request: Request, base_url: str = "http://service.invalid") -> None:
        self._codec = codec
        self._request = request
        self._base = base_url.rstrip("/")
        path = paths.device_commands(codec.device_id)
        status = {"status": OPEN} if COMMAND_STATUS in codec.offers else {}
        self._walk = PageWalk(path, status, httpx.URL(self._base + path), pages_max=_PAGES_MAX)
        self._pages: list[tuple[Answer, Page]] = []

    @property
    def has_begun(self) -> bool:
        """Whether at least one page of the list was read."""
        return bool(self._pages)

    def take(self, answer: HttpAnswer) -> Listing | None:
        """The whole list, when this was its last page; else None, and :meth:`next_page` is to be asked for.

        One bad record never hides the others.

        Raises:
            ServiceError: the answer is an error, or not the service's.
        """
        good = judge(answer)
        page = self._walk.take(good)
        self._pages.append((good, page))
        self._walk.proceed(good, page)
        return self.listing() if self._walk.done else None

    def next_page(self, due_s: float) -> Request:
        """The request for the page after those that came."""
        walk = self._walk
        target = str(walk.target).removeprefix(self._base)
        if walk.params:
            target = f"{target}?{urlencode(walk.params)}"
        return Request(_POLL, "GET", target, intended_s=due_s, ready_s=due_s)

    def listing(self, *, is_whole: bool = True) -> Listing:
        """The commands of the pages that came, oldest first; of a list that broke off nothing is concluded from what
        is missing.
        """
        found = read_commands(iter(self._pages), self._codec.dialect.reading, ANSWER_BYTES)
        commands: list[Command] = []
        malformed = list(found.malformed)
        for record in found.records:
            try:
                command = command_of(record, self._codec.device_id)
                state = self._codec.state_of(command.status)
                commands.append(command if state == command.status else replace(command, status=state))
            except InvalidMessage as error:
                malformed.append(str(error))
        commands.sort(key=lambda command: command.created_at or 0.0)
        is_whole = is_whole and found.incomplete is None
        poll = CommandPoll(
            tuple(commands),
            unchanged=found.unchanged,
            malformed=tuple(malformed),
            server_time=found.server_time,
            held=self._request.wait_s > 0,
            pushed=not is_whole,
        )
        return Listing(poll, found.etag if is_whole else None)


def read_refusals(good: Answer, request: Request) -> dict[int, str]:
    """The readings of a batch that the service refused, by key with the reason; empty for a single reading.

    Raises:
        UnexpectedAnswer: it does not say which readings it left out.
    """
    if len(request.keys) == 1:
        return {}
    batch = _read_batch(good)
    if batch is None:
        return {}
    if batch.accepted + len(batch.errors) != len(request.keys):
        raise UnexpectedAnswer(
            f"{SOURCE} took {batch.accepted} of {len(request.keys)} readings and named {len(batch.errors)} errors",
            good.status,
        )
    return {request.keys[fault.index]: f"{fault.error}: {fault.message}" for fault in batch.errors}


def _read_batch(good: Answer) -> BatchAnswer | None:
    """The answer to a batch; None where its body holds nothing to read: the status alone means that all were taken.

    Raises:
        UnexpectedAnswer: it counts errors without naming them.
    """
    try:
        value = good.json()
    except UnexpectedAnswer:
        return None
    try:
        return BatchAnswer.receive(value)
    except InvalidMessage as error:
        if isinstance(value, dict) and any(value.get(name) for name in _ERRORS):
            raise UnexpectedAnswer(f"{SOURCE} answered a batch with {error}", good.status) from None
        return None


def command_of(record: CommandRecord, device_id: str) -> Command:
    """The record as the core decides on it.

    Raises:
        InvalidMessage: it is another device's, or has no payload that could be one.
    """
    if record.device_id not in {None, device_id}:
        raise InvalidMessage("a command for another device is in this device's list: it is skipped")
    return Command(
        id=record.stable_id(),
        payload=record.command_payload,
        created_at=record.created_at,
        expires_at=record.expires_at,
        status=record.status,
        size_bytes=record.payload_size_bytes(),
        fault=record.fault,
    )


def _time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else to_rfc3339(epoch_s)
