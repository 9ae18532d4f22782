"""What a virtual device says over HTTP, and what the answers mean: values in, bytes out, and back. No I/O.

The real agent's client is synchronous and holds a socket; a hundred thousand devices share one loop. So the requests
are built here, out of the same wire models, and the answers judged by the same rules. What every device says all day,
a poll and readings, is written without the models, to the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlencode

from agent.core.values import Command, CommandPoll, Report
from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.commands import OPEN, RESULTS_TABLE, CommandRecord, CommandResult, CommandResultPayload
from agent.wire.database import NewRuntimeRecord
from agent.wire.extensions import BATCH_SENSOR_DATA, COMMAND_RESULTS, IDEMPOTENCY_KEY, LONG_POLL
from agent.wire.json_text import encode_json
from agent.wire.lists import read_page
from agent.wire.sensor_batches import BatchAnswer
from agent.wire.times import to_rfc3339
from simulator.fleet.device.answers import SOURCE, HttpAnswer, judge
from simulator.fleet.models.interference import Body as SentBody
from simulator.fleet.outcomes import Attempt

IN_PROGRESS: Final = "in_progress"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
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


class Ask(NamedTuple):
    """One request that a device wants to make.

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


class Dated(Protocol):
    """A reading that goes over the wire."""

    @property
    def key(self) -> int:
        """The outbox's."""
        ...

    @property
    def text(self) -> str:
        """Its values, as :func:`values_text` writes them."""
        ...

    @property
    def recorded_ms(self) -> int | None:
        """Epoch milliseconds on the service's clock as the device knows it; None lets the service say."""
        ...


@dataclass(frozen=True, slots=True)
class TimedReading:
    """A reading that goes over the wire without an outbox; see :class:`Dated`."""

    key: int
    text: str
    recorded_ms: int | None


@dataclass(frozen=True, slots=True)
class Speaker:
    """How one device talks to one service.

    Attributes:
        device_id: the service's id of this device.
        product_id: whose table takes results on a plain server.
        offers: the extensions that the service has (its discovery document); empty for a plain server.
    """

    device_id: str
    product_id: str
    offers: frozenset[str]
    _is_plain: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # An id that is written the same in a path, in JSON, and as it is: any that a service makes.
        object.__setattr__(self, "_is_plain", _UNRESERVED.fullmatch(self.device_id) is not None)

    def poll(self, wait_s: float, etag: str | None, due_s: float = 0.0) -> Ask:
        """Ask for the open commands, held open for ``wait_s`` where the service can; ``due_s`` is when it was due."""
        held_s = wait_s if LONG_POLL in self.offers else 0.0
        device_id = self.device_id
        path = f"/devices/{device_id}/commands" if self._is_plain else paths.device_commands(device_id)
        headers: Mapping[str, str] = {"if-none-match": etag} if etag else _NO_HEADERS
        return Ask(_POLL, "GET", path + _poll_query(held_s), None, headers, held_s, (), None, due_s, due_s)

    def readings(
        self,
        batch: Sequence[Dated],
        name: str,
        intended_s: float = 0.0,
        ready_s: float = 0.0,
        *,
        attempt: Attempt = Attempt.FIRST,
    ) -> Ask:
        """Hand over readings; as one array where the service takes arrays, else only the first of them.

        Args:
            batch: one or more.
            name: begins the idempotency keys; unique among all devices and runs that talk to one service.
            intended_s: as in :class:`Ask`.
            ready_s: as in :class:`Ask`.
            attempt: as in :class:`Ask`.
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
        return Ask(
            _READINGS, "POST", paths.SENSOR_DATA, body.encode(), headers, 0.0, keys, None, intended_s, ready_s, attempt
        )

    def report(self, report: Report, intended_s: float = 0.0, ready_s: float = 0.0) -> Ask | None:
        """Tell how a command goes or ended; None for progress on a plain server, which has no place for it."""
        headers: Mapping[str, str] = _NO_HEADERS
        if COMMAND_RESULTS in self.offers:
            result = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
            target = paths.command_result(self.device_id, report.command_id)
            body = encode_json(result.to_wire())
        elif report.status == IN_PROGRESS:
            return None
        else:
            target, body = paths.RUNTIME_DATA, encode_json(self._result_row(report).to_wire())
            if IDEMPOTENCY_KEY in self.offers:
                headers = {"idempotency-key": f"result-{report.command_id}"}
        return Ask(
            Operation.REPORT,
            "POST",
            target,
            body,
            headers,
            report=report,
            intended_s=intended_s,
            ready_s=ready_s,
        )

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
            table_name=RESULTS_TABLE,
            data_payload=payload.to_wire(),
        )

    def _reading(self, reading: Dated) -> str:
        """:class:`agent.wire.sensor_data.PostSensorData` as JSON text."""
        device_id = self.device_id
        name = f'"{device_id}"' if self._is_plain else encode_json(device_id).decode()
        if reading.recorded_ms is None:
            return f'{{"device_id":{name},"sensor_data":{reading.text}}}'
        return f'{{"device_id":{name},"sensor_data":{reading.text},"recorded_at":"{time_text(reading.recorded_ms)}"}}'


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
def _poll_query(held_s: float) -> str:
    query: dict[str, str | int] = {"status": OPEN}
    if held_s > 0:
        query["wait"] = round(held_s)
    return f"?{urlencode(query)}"


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
    """A judged answer to a poll: what the core decides on, and the version for the next conditional request."""

    poll: CommandPoll
    etag: str | None


def read_listing(answer: HttpAnswer, ask: Ask, device_id: str) -> Listing:
    """The commands in a poll's answer, oldest first; one bad record never hides the others.

    Raises:
        ServiceError: the answer is an error, or not the service's.
    """
    good = judge(answer)
    held = ask.wait_s > 0
    if good.is_unchanged:
        return Listing(CommandPoll(unchanged=True, server_time=good.server_time, held=held), good.etag)
    commands: list[Command] = []
    malformed: list[str] = []
    for item in read_page(good.json(), SOURCE).items:
        try:
            command = command_of(CommandRecord.receive(item), device_id)
        except InvalidMessage as error:
            malformed.append(str(error))
        else:
            commands.append(command)
    commands.sort(key=lambda command: command.created_at or 0.0)
    poll = CommandPoll(tuple(commands), malformed=tuple(malformed), server_time=good.server_time, held=held)
    return Listing(poll, good.etag)


def read_refusals(good: Answer, ask: Ask) -> dict[int, str]:
    """The readings of a batch that the service refused, by key with the reason; empty for a single reading.

    Raises:
        UnexpectedAnswer: it does not say which readings it left out.
    """
    if len(ask.keys) == 1:
        return {}
    try:
        batch = BatchAnswer.receive(good.json())
    except InvalidMessage as error:
        raise UnexpectedAnswer(f"{SOURCE} answered a batch with {error}", good.status) from None
    if batch.accepted + len(batch.errors) != len(ask.keys):
        raise UnexpectedAnswer(
            f"{SOURCE} took {batch.accepted} of {len(ask.keys)} readings and named {len(batch.errors)} errors",
            good.status,
        )
    return {ask.keys[fault.index]: f"{fault.error}: {fault.message}" for fault in batch.errors}


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
