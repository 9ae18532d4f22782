"""What a virtual device says over HTTP, and what the answers mean: values in, bytes out, and back. No I/O.

The real agent's client is synchronous and holds a socket; a hundred thousand devices share one loop. So the requests
are built here, out of the same wire models, and the answers judged by the same rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from agent.core.values import Command, CommandPoll, Report
from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer, raise_for_status
from agent.wire.commands import OPEN, RESULTS_TABLE, CommandRecord, CommandResult, CommandResultPayload
from agent.wire.database import NewRuntimeRecord
from agent.wire.extensions import BATCH_SENSOR_DATA, COMMAND_RESULTS, IDEMPOTENCY_KEY, LONG_POLL
from agent.wire.json_text import encode_json
from agent.wire.lists import read_page
from agent.wire.secret import redact
from agent.wire.sensor_batches import BatchAnswer
from agent.wire.sensor_data import PostSensorData
from agent.wire.times import to_rfc3339
from simulator.fleet.engine.pool import HttpAnswer

IN_PROGRESS: Final = "in_progress"
_SOURCE: Final = "the service"
_GOOD_JSON: Final = re.compile(rb"[ \t\r\n]*[\[{]")


class Operation(Enum):
    """What a request is for."""

    POLL = auto()
    READINGS = auto()
    REPORT = auto()


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that a device wants to make.

    Attributes:
        target: path and query, percent-encoded.
        body: JSON text, or None.
        wait_s: how long the service was asked to hold the answer.
        keys: of the readings in it, for ``READINGS``.
        report: what is reported, for ``REPORT``.
    """

    operation: Operation
    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    keys: tuple[int, ...] = ()
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class TimedReading:
    """A reading as it goes over the wire.

    Attributes:
        key: the outbox's.
        recorded_ms: epoch milliseconds on the service's clock as the device knows it; None lets the service say.
    """

    key: int
    idempotency_key: str
    values: Mapping[str, float]
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

    def poll(self, wait_s: float, etag: str | None) -> Ask:
        """Ask for the open commands, held open for ``wait_s`` where the service can."""
        held_s = wait_s if LONG_POLL in self.offers else 0.0
        query: dict[str, str | int] = {"status": OPEN}
        if held_s > 0:
            query["wait"] = round(held_s)
        target = f"{paths.device_commands(self.device_id)}?{urlencode(query)}"
        headers = {"if-none-match": etag} if etag else {}
        return Ask(Operation.POLL, "GET", target, headers=headers, wait_s=held_s)

    def readings(self, batch: Sequence[TimedReading]) -> Ask:
        """Hand over readings; as one array where the service takes arrays, else only the first of them."""
        if len(batch) == 1 or BATCH_SENSOR_DATA not in self.offers:
            batch = batch[:1]
            body: Any = self._reading(batch[0])
            key = batch[0].idempotency_key
        else:
            body = [self._reading(reading) for reading in batch]
            names = "\n".join(reading.idempotency_key for reading in batch)
            key = hashlib.sha256(names.encode()).hexdigest()
        return Ask(
            Operation.READINGS,
            "POST",
            paths.SENSOR_DATA,
            encode_json(body),
            self._once(key),
            keys=tuple(reading.key for reading in batch),
        )

    def report(self, report: Report) -> Ask | None:
        """Tell how a command goes or ended; None for progress on a plain server, which has no place for it."""
        if COMMAND_RESULTS in self.offers:
            result = CommandResult(status=report.status, result=report.result, error=report.error)  # type: ignore[arg-type]  # checked by the model
            target = paths.command_result(self.device_id, report.command_id)
            return Ask(Operation.REPORT, "POST", target, encode_json(result.to_wire()), report=report)
        if report.status == IN_PROGRESS:
            return None
        payload = CommandResultPayload(
            command_id=report.command_id,
            status=report.status,  # type: ignore[arg-type]  # checked by the model
            result=report.result,
            error=report.error,
            started_at=_time(report.started_at),
            finished_at=_time(report.finished_at),
        )
        record = NewRuntimeRecord(
            product_id=self.product_id,
            device_id=self.device_id,
            table_name=RESULTS_TABLE,
            data_payload=payload.to_wire(),
        )
        headers = self._once(f"result-{report.command_id}")
        return Ask(Operation.REPORT, "POST", paths.RUNTIME_DATA, encode_json(record.to_wire()), headers, report=report)

    def _reading(self, reading: TimedReading) -> dict[str, Any]:
        recorded = None if reading.recorded_ms is None else to_rfc3339(reading.recorded_ms / 1000)
        body = PostSensorData(device_id=self.device_id, sensor_data=dict(reading.values), recorded_at=recorded)
        return body.to_wire()

    def _once(self, key: str) -> dict[str, str]:
        return {"idempotency-key": key} if IDEMPOTENCY_KEY in self.offers else {}


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
    for item in read_page(good.json(), _SOURCE).items:
        try:
            command = _command(CommandRecord.receive(item), device_id)
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
        raise UnexpectedAnswer(f"{_SOURCE} answered a batch with {error}", good.status) from None
    if batch.accepted + len(batch.errors) != len(ask.keys):
        raise UnexpectedAnswer(
            f"{_SOURCE} took {batch.accepted} of {len(ask.keys)} readings and named {len(batch.errors)} errors",
            good.status,
        )
    return {ask.keys[fault.index]: f"{fault.error}: {fault.message}" for fault in batch.errors}


def judge(answer: HttpAnswer) -> Answer:
    """A good answer as the agent's client has it.

    Raises:
        ServiceError: the class that belongs to the status, or what it is instead of the service's answer.
    """
    headers = httpx.Headers(dict(answer.headers))
    plain = 200 <= answer.status < 300 and (not answer.body or _GOOD_JSON.match(answer.body))  # noqa: PLR2004
    if not plain:
        response = httpx.Response(answer.status, headers=headers, content=answer.body)
        raise_for_status(response, answer.body, source=_SOURCE, redact=redact)
    return Answer(answer.status, headers, answer.body, _SOURCE)


def _command(record: CommandRecord, device_id: str) -> Command:
    if record.device_id not in {None, device_id}:
        raise InvalidMessage("a command for another device is in this device's list: it is skipped")
    return Command(
        id=record.stable_id(),
        payload=record.command_payload,
        created_at=record.created_at,
        expires_at=record.expires_at,
        status=record.status,
        size_bytes=record.payload_size_bytes(),
    )


def _time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else to_rfc3339(epoch_s)
