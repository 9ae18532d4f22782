"""Builds the HTTP requests of devices, and parses the answers. No I/O.

The real agent's client is synchronous and holds a socket; here a hundred thousand devices share one loop. So requests
are built here from the same wire models, and answers parsed by the same rules. Only polls and readings, the hot path,
are written without the models, to the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from agent.core.commands import listed_state
from agent.core.values import IN_PROGRESS, Command, CommandPoll, Report
from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer, Page, PageWalk, read_commands
from agent.wire.encoding import encode_json, to_rfc3339
from agent.wire.limits import ANSWER_BYTES
from agent.wire.models import OPEN, BatchAnswer, CommandResult, CommandResultPayload, NewRuntimeRecord
from agent.wire.server import (
    BATCH_SENSOR_DATA,
    COMMAND_RESULTS,
    COMMAND_STATUS,
    COMMAND_TTL,
    IDEMPOTENCY_KEY,
    LONG_POLL,
    RECORDED_AT,
    CommandLists,
    Dialect,
    ResultPlace,
)
from gateway.client import SendCommand
from simulator.fleet.device.answers import SHORT_BYTES, SOURCE, essence, judge
from simulator.fleet.engine.http_answers import Headers, HttpAnswer
from simulator.fleet.outcomes import Attempt

IDEMPOTENCY_HEADER: Final = "idempotency-key"
_PAGES_MAX: Final = 1000
_OK, _REDIRECT = 200, 300
_TAKEN: Final = frozenset({200, 201})
_JSON_BEGINS: Final = frozenset({b"", b"{", b"["})
_ERRORS: Final = ("errors", "error", "failed", "rejected", "failures")

HELD_POLL: Final = "http.long_poll"
"""The operation of a poll that the service was asked to hold."""


class Operation(StrEnum):
    """The kind of a request; the value is its name in the measurement."""

    POLL = "http.poll"
    READINGS = "http.sensor_data"
    REPORT = "http.report"
    SEND_COMMAND = "http.send_command"
    """By the operator, not by a device."""
    SCAN = "http.scan_qr"
    REGISTER = "http.register"
    """As the scan, of an onboarding storm."""


_READINGS: Final = Operation.READINGS


@dataclass(slots=True)
class Request:
    """One request of a device.

    Attributes:
        operation: its kind, in the measurement.
        target: path and query, percent-encoded; over MQTT the topic.
        body: JSON text, or None.
        keys: of its readings, for ``READINGS``.
        report: its content, for ``REPORT``.
        intended_s: when it was due, on the monotonic clock.
        ready_s: when the device was free to send it; not before ``intended_s``.
        attempt: whether it went out before.
        held_s: how long the service was asked to hold the answer.
        copies: how many duplicates go out with it, whose answers do not matter (the fault ``duplicates``).
    """

    operation: StrEnum
    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[int, ...] = ()
    report: Report | None = None
    intended_s: float = 0.0
    ready_s: float = 0.0
    attempt: Attempt = Attempt.FIRST
    held_s: float = 0.0
    copies: int = 0


@dataclass(slots=True)
class Reading:
    """A reading that goes over the wire.

    Attributes:
        key: its number.
        text: the values, as :func:`values_text` writes them.
        recorded_ms: the time that it carries, epoch milliseconds; None leaves the time to the service.
    """

    key: int
    text: str
    recorded_ms: int | None = None


class HttpMessages:
    """Builds the requests of all devices in the dialect of one service.

    Args:
        offers: the extensions that the service has (its discovery document, or the scenario); empty for a plain
            server, which is sent nothing beyond the specification.
        dialect: further properties of the service, from the scenario.

    Attributes:
        sends_time: readings carry the time at which they were made.
        takes_arrays: several readings go in one request.
        open_only: the query of a poll that asks for open commands alone; empty where the service has no such filter.
        result_place: the destination of results: the scenario's, else the endpoint where it is announced, else the
            table.
    """

    def __init__(self, offers: frozenset[str], dialect: Dialect | None = None) -> None:
        self.offers = offers
        self.dialect = dialect = dialect or Dialect()
        self.sends_time = RECORDED_AT in offers or dialect.recorded_at_reading is not None
        self.takes_arrays = BATCH_SENSOR_DATA in offers
        announced = ResultPlace.ENDPOINT if COMMAND_RESULTS in offers else ResultPlace.TABLE
        self.result_place = announced if dialect.results is None else dialect.results
        self._holds_polls = LONG_POLL in offers
        self._keeps_keys = IDEMPOTENCY_KEY in offers
        self._empty_listing = lru_cache(maxsize=256)(self._read_empty)
        self.open_only = {"status": OPEN} if COMMAND_STATUS in offers else {}

    def held_s(self, wait_s: float) -> float:
        """How long the service holds a poll that may wait so long."""
        return wait_s if self._holds_polls else 0.0

    def poll_target(self, device_id: str, wait_s: float = 0.0) -> str:
        """The target of a poll for open commands, which the service holds for ``wait_s`` where it can."""
        held_s = self.held_s(wait_s)
        query = {**self.open_only, **({"wait": round(held_s)} if held_s > 0 else {})}
        path = paths.device_commands(device_id)
        return f"{path}?{urlencode(query)}" if query else path

    def readings(self, device_id: str, batch: Sequence[Reading], name: str) -> Request:
        """A request with readings: an array of all where the service takes arrays, else only the first.

        Args:
            device_id: whose.
            batch: one or more.
            name: begins the idempotency keys; unique among all devices and runs that talk to one service.
        """
        if len(batch) == 1 or not self.takes_arrays:
            keys: tuple[int, ...] = (batch[0].key,)
            body = self._reading(device_id, batch[0])
            idempotency_key = f"{name}-{keys[0]}"
        else:
            keys = tuple([reading.key for reading in batch])
            body = f"[{','.join([self._reading(device_id, reading) for reading in batch])}]"
            idempotency_key = hashlib.sha256("\n".join([f"{name}-{key}" for key in keys]).encode()).hexdigest()
        headers = {IDEMPOTENCY_HEADER: idempotency_key} if self._keeps_keys else {}
        return Request(_READINGS, "POST", paths.SENSOR_DATA, body.encode(), headers, keys=keys)

    def report(self, device_id: str, product_id: str, report: Report) -> Request | None:
        """A command's progress or result; None for progress on a plain server, and where nothing takes results."""
        headers: Mapping[str, str] = {}
        if self.result_place is ResultPlace.ENDPOINT:
            result = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
            target = paths.command_result(device_id, report.command_id)
            body = result.to_wire()
        elif self.result_place is ResultPlace.NONE or report.status == IN_PROGRESS:
            return None
        else:
            payload = CommandResultPayload(
                command_id=report.command_id,
                status=report.status,  # type: ignore[arg-type]  # checked by the model
                result=report.result,
                error=report.error,
                started_at=None if report.started_at is None else to_rfc3339(report.started_at),
                finished_at=None if report.finished_at is None else to_rfc3339(report.finished_at),
            )
            table, content = self.dialect.results_table, payload.to_wire()
            row = NewRuntimeRecord(product_id=product_id, device_id=device_id, table_name=table, data_payload=content)
            target, body = paths.RUNTIME_DATA, row.to_wire()
            if self._keeps_keys:
                headers = {IDEMPOTENCY_HEADER: f"result-{report.command_id}"}
        return Request(Operation.REPORT, "POST", target, encode_json(body), headers, report=report)

    def send_command(
        self, device_id: str, payload: Mapping[str, Any], ttl_s: float, due_s: float, idempotency_key: str
    ) -> Request:
        """A command from the operator to a device.

        Args:
            device_id: of the receiver.
            payload: of the command.
            ttl_s: its time to live; left out where the service takes none.
            due_s: as in :class:`Request`.
            idempotency_key: left out where the service takes none.
        """
        seconds = round(ttl_s) if COMMAND_TTL in self.offers else None
        order = SendCommand(device_id=device_id, command_payload=dict(payload), ttl_seconds=seconds)
        headers = {IDEMPOTENCY_HEADER: idempotency_key} if self._keeps_keys else {}
        body = encode_json(order.to_wire())
        operation = Operation.SEND_COMMAND
        return Request(operation, "POST", paths.SEND_COMMAND, body, headers, intended_s=due_s, ready_s=due_s)

    def empty_listing(self, answer: HttpAnswer) -> Listing | None:
        """The list in a short answer without commands, parsed once for equal answers; None for any other answer."""
        status, headers, body = answer
        return self._empty_listing(status, essence(headers), body) if len(body) <= SHORT_BYTES else None

    def _read_empty(self, status: int, headers: Headers, body: bytes) -> Listing | None:
        try:
            listing = PagedPoll(self, "any").take(HttpAnswer(status, headers, body))
        except ServiceError:
            return None
        is_empty = listing is not None and not (listing.poll.commands or listing.poll.malformed)
        return listing if is_empty else None

    def state_of(self, status: str | None) -> str | None:
        """The state of a listed command, as far as this service reports states."""
        only_open = self.dialect.command_lists is CommandLists.OPEN
        return listed_state(status, has_states=COMMAND_STATUS in self.offers, only_open=only_open)

    def _reading(self, device_id: str, reading: Reading) -> str:
        """:class:`agent.wire.models.PostSensorData` as JSON text."""
        text, recorded_ms = reading.text, reading.recorded_ms
        time = ""
        if recorded_ms is not None and RECORDED_AT in self.offers:
            time = f',"recorded_at":"{time_text(recorded_ms)}"'
        elif recorded_ms is not None and self.dialect.recorded_at_reading is not None:
            member = f"{json_name(self.dialect.recorded_at_reading)}:{recorded_ms / 1000!r}"
            text = f"{text[:-1]},{member}}}" if text != "{}" else f"{{{member}}}"
        return f'{{"device_id":{json_name(device_id)},"sensor_data":{text}{time}}}'


@cache
def json_name(text: str) -> str:
    """A name as JSON text; that of each device and of each value is asked for again and again."""
    return encode_json(text).decode()


def values_text(values: Mapping[str, float]) -> str:
    """Named numbers as JSON text; they are finite, as signals give them."""
    return _shape(tuple(values)) % tuple(values.values())


@lru_cache(maxsize=1024)
def _shape(names: tuple[str, ...]) -> str:
    """The JSON text of an object with these names and a place for each number."""
    return "{" + ",".join([json_name(name).replace("%", "%%") + ":%r" for name in names]) + "}"


def time_text(epoch_ms: int) -> str:
    """As :func:`agent.wire.encoding.to_rfc3339`; many devices read in the same second."""
    second, millisecond = divmod(epoch_ms, 1000)
    return f"{_second_text(second)}{millisecond:03d}Z"


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    return to_rfc3339(second)[:-4]


# --- lists of commands ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """A judged list of commands.

    Attributes:
        poll: what the core decides on.
        etag: the list's version, for the next conditional request.
        server_time: the service's clock, seconds since the epoch; None when the answer has no ``Date``.
    """

    poll: CommandPoll
    etag: str | None
    server_time: float | None


class PagedPoll:
    """One poll through all pages of its list, parsed as by the real agent's client.

    Args:
        messages: of the service.
        device_id: whose list.
        base_url: of the service, below which the links to other pages lie.
        is_held: the service was asked to hold the first page.

    Attributes:
        has_begun: at least one page of the list was read.
    """

    __slots__ = ("_base", "_device_id", "_messages", "_pages", "_walk", "is_held")

    def __init__(
        self,
        messages: HttpMessages,
        device_id: str,
        base_url: str = "http://service.invalid",
        *,
        is_held: bool = False,
    ) -> None:
        self._messages = messages
        self._device_id = device_id
        self.is_held = is_held
        self._base = base_url.rstrip("/")
        path = paths.device_commands(device_id)
        self._walk = PageWalk(path, messages.open_only, httpx.URL(self._base + path), pages_max=_PAGES_MAX)
        self._pages: list[tuple[Answer, Page]] = []

    @property
    def has_begun(self) -> bool:
        return bool(self._pages)

    def take(self, answer: HttpAnswer) -> Listing | None:
        """Add a page: the whole list if it was the last one; else None, and :meth:`next_target` has to be requested.

        A bad record does not hide the others.

        Raises:
            ServiceError: the answer is an error, or not the service's.
        """
        good = judge(answer)
        page = self._walk.take(good)
        self._pages.append((good, page))
        self._walk.proceed(good, page)
        return self.listing() if self._walk.done else None

    def next_target(self) -> str:
        """The target of the next page."""
        walk = self._walk
        target = str(walk.target).removeprefix(self._base)
        return f"{target}?{urlencode(walk.params)}" if walk.params else target

    def listing(self, *, is_whole: bool = True) -> Listing:
        """The commands of the pages read so far, oldest first. Not ``is_whole``: a command that is missing may still be
        open.
        """
        messages = self._messages
        found = read_commands(iter(self._pages), messages.dialect, ANSWER_BYTES)
        commands: list[Command] = []
        malformed = list(found.malformed)
        for record in found.records:
            try:
                command = record.to_command(self._device_id)
            except InvalidMessage as error:
                malformed.append(str(error))
            else:
                commands.append(replace(command, status=messages.state_of(command.status)))
        commands.sort(key=lambda command: command.created_at or 0.0)
        is_whole = is_whole and found.is_whole
        poll = CommandPoll(
            tuple(commands),
            unchanged=found.unchanged,
            malformed=tuple(malformed),
            held=self.is_held,
            pushed=not is_whole,
        )
        return Listing(poll, found.etag if is_whole else None, self._pages[-1][0].server_time)


# --- answers to readings ----------------------------------------------------------------------------------------------


def read_settled(answer: HttpAnswer, keys: Sequence[int]) -> tuple[dict[int, str], float | None]:
    """Parse the answer: ({refused key: reason}, service time). A 2xx without readable body means all stored.

    Raises:
        ServiceError: the answer is an error, or does not say which readings it left out.
    """
    count, (status, headers, body) = len(keys), answer
    if count <= 1 and status in _TAKEN and body[:1] in _JSON_BEGINS:
        body = b""  # the status says it all
    if _OK <= status < _REDIRECT and len(body) <= SHORT_BYTES:
        places, server_time = _read_settled(status, essence(headers), body, count)
    else:  # an error says more in its headers
        places, server_time = _read_settled.__wrapped__(status, headers, body, count)
    return ({keys[place]: why for place, why in places.items()} if places else {}), server_time


@lru_cache(maxsize=256)
def _read_settled(status: int, headers: Headers, body: bytes, count: int) -> tuple[dict[int, str], float | None]:
    good = judge(HttpAnswer(status, headers, body))
    return read_refusals(good, count), good.server_time


def read_refusals(good: Answer, count: int) -> dict[int, str]:
    """The refused readings of a batch of ``count``: the reason by position."""
    if count <= 1:
        return {}
    try:
        value = good.json()
    except UnexpectedAnswer:
        return {}
    try:
        batch = BatchAnswer.receive(value)
    except InvalidMessage as error:
        if isinstance(value, dict) and any(value.get(name) for name in _ERRORS):
            raise UnexpectedAnswer(f"{SOURCE} answered a batch with {error}", good.status) from None
        return {}
    if batch.accepted + len(batch.errors) != count:
        raise UnexpectedAnswer(
            f"{SOURCE} took {batch.accepted} of {count} readings and named {len(batch.errors)} errors", good.status
        )
    return {fault.index: f"{fault.error}: {fault.message}" for fault in batch.errors}
