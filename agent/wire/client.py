"""The typed client of the service, for a device and its gateway; the operator's calls are the simulator's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer, portal_text
from agent.wire.base import JsonObject, Received, Sent
from agent.wire.connection import Connection
from agent.wire.json_text import encode_json
from agent.wire.limits import BATCH_MAX, LONG_POLL_MAX_S, PAGE_MAX
from agent.wire.lists import CommandList, read_commands
from agent.wire.models import BatchAnswer, CommandResult, Device, NewRuntimeRecord, PostSensorData
from agent.wire.server import Dialect, ServerProfile, read_announcement

Record = TypeVar("Record", bound=Received)
Query = Mapping[str, str | int | None]

_ERRORS: Final = ("errors", "error", "failed", "rejected", "failures")
_ENVELOPES: Final = ("data", "result", "item", "record")
# Statuses that say something of the path that was asked, whoever sends them.
_DECIDED: Final = frozenset({*range(200, 300), *range(400, 500), 501} - {401, 408, 425, 429})


class DeviceClient(Connection):
    """A connection with a method for each call of a device, synchronous, usable from any thread.

    Every method makes its requests once: what to do about an error is the caller's, by the error's ``advice``. Whatever
    a 2xx to what a device sends has as its body, it is taken (rule E2 of the specification leaves it open). Methods
    that list return iterators that fetch page after page when asked for, so their errors come while iterating.
    """

    dialect = Dialect()
    """What the configuration says of the server."""

    def discover(self) -> ServerProfile:
        """``GET /.well-known/device-service``: what this server announces.

        A plain server announces nothing: it answers any 4xx but 401, 408, 425 and 429, 501, or a 2xx without such a
        list; also a web page, where nobody else can have sent it (:attr:`.Connection.is_certain`).

        Raises:
            ServiceError: not known: no answer, a captive portal, wrong credentials, a quota, a failing service.
        """
        answer = self.request("GET", paths.DISCOVERY, accepts=_DECIDED)
        value = None
        if 200 <= answer.status < 300:
            value = None if answer.is_page else answer.json_or_none()
            is_readable = value is not None or not answer.content.strip()
            if not is_readable and not self.is_certain:
                raise UnexpectedAnswer(portal_text(answer.source, answer.status), answer.status)
        return read_announcement(value, answer.headers.get("server", ""), str(self.base_url))

    def devices(
        self,
        *,
        product_id: str | None = None,
        user_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Device]:
        """``GET /devices``; a plain server may ignore the filters."""
        query = {"product_id": product_id, "user_id": user_id, "status": status}
        return self._list(Device, paths.DEVICES, query, limit)

    def device_commands(
        self,
        device_id: str,
        *,
        status: str | None = None,
        wait_s: float = 0.0,
        etag: str | None = None,
    ) -> CommandList:
        """``GET /devices/{deviceId}/commands``, all pages. :meth:`interrupt` ends it.

        One record that cannot be read never hides the others; each record has an ``id`` afterwards, derived from its
        content when the service gives none (:meth:`.CommandRecord.with_derived_id`). Of a list beyond
        :data:`~agent.wire.lists.ITEMS_MAX` commands both ends are read, and no page after that many.

        A page after the first that does not come takes nothing away from those before: see
        :attr:`CommandList.incomplete`, which also says when there are more pages than are read.

        Args:
            device_id: the device.
            status: ``open``, a single state, or None for all.
            wait_s: extension ``long-poll``: hold the answer until the list differs from ``etag``, up to 30 s.
            etag: of the list that is known; the answer is ``unchanged`` while it stays the same.

        Raises:
            Interrupted: :meth:`interrupt` was called.
            ServiceError: the first page did not come.
        """
        pages = self.pages(
            paths.device_commands(device_id),
            {"status": status} if status else {},
            headers={"If-None-Match": etag} if etag else {},
            wait_s=min(max(wait_s, 0.0), float(LONG_POLL_MAX_S)),
            interruptible=True,
        )
        return read_commands(pages, self.dialect, self.max_answer_bytes)

    def report_result(
        self, device_id: str, command_id: str, result: CommandResult, *, idempotency_key: str | None = None
    ) -> None:
        """``POST /devices/{device_id}/commands/{command_id}/result``, extension ``command-results``.

        What is sent again for the same command changes nothing.
        """
        self._write("POST", paths.command_result(device_id, command_id), result, idempotency_key=idempotency_key)

    def post_sensor_data(self, reading: PostSensorData, *, idempotency_key: str | None = None) -> None:
        """``POST /sensor-data``: when it returns, the reading is stored."""
        self._write("POST", paths.SENSOR_DATA, reading, idempotency_key=idempotency_key)

    def post_sensor_data_batch(
        self, readings: Sequence[PostSensorData], *, idempotency_key: str | None = None
    ) -> BatchAnswer:
        """``POST /sensor-data`` with an array, extension ``batch-sensor-data``: 1 to 500 readings.

        What ``errors`` does not name is stored. A 2xx whose body cannot be read means that all are; only where it
        mentions errors is nothing taken for accepted, so that the caller sends them one by one.

        Raises:
            InvalidMessage: none, or more than 500; nothing was sent.
        """
        if not 1 <= len(readings) <= BATCH_MAX:
            raise InvalidMessage(f"a batch has 1 to {BATCH_MAX} readings, not {len(readings)}")
        body = [reading.to_wire() for reading in readings]
        answer = self._write("POST", paths.SENSOR_DATA, body, idempotency_key=idempotency_key)
        try:
            return read_record(BatchAnswer, answer, "batch")
        except UnexpectedAnswer:
            value = answer.json_or_none()
            has_errors = isinstance(value, dict) and any(value.get(name) for name in _ERRORS)
            return BatchAnswer(accepted=0 if has_errors else len(readings))

    def create_runtime_record(self, record: NewRuntimeRecord, *, idempotency_key: str | None = None) -> None:
        """``POST /database/runtime-data``."""
        self._write("POST", paths.RUNTIME_DATA, record, idempotency_key=idempotency_key)

    # --- what all calls share -----------------------------------------------------------------------------------------

    def _write(
        self,
        method: str,
        path: str,
        body: Sent | list[JsonObject] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Answer:
        """One writing request."""
        content = None
        if body is not None:
            content = encode_json(body.to_wire() if isinstance(body, Sent) else body)
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.request(method, path, body=content, headers=headers)

    def _list(
        self, model: type[Record], path: str, query: Query | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """The records of a list, page by page, ``limit`` of them at most.

        Raises:
            UnexpectedAnswer: a record does not have the shape; those before it have been handed out.
        """
        params = given(query or {})
        if limit is not None:
            if limit < 1:
                raise InvalidMessage("limit must be at least 1")
            params["limit"] = min(limit, PAGE_MAX)
        pages = self.pages(path, params)
        return islice((_receive(model, item, answer) for answer, page in pages for item in page.items), limit)


def read_record(model: type[Record], answer: Answer, word: str, sent: JsonObject | None = None) -> Record:
    """The record in an answer: bare, in an envelope (``data``, or by its ``word``), or alone in an array.

    The specification leaves the answers of most writing endpoints open (rule E2). So with ``sent``, what we know
    already, a 2xx is a success whatever its body: what the answer lacks is taken from ``sent``. Taking its shape for a
    failure would send the same thing again for ever.

    Raises:
        UnexpectedAnswer: nothing was ``sent``, and the body is not JSON or there is no such record in it.
    """
    value = answer.json() if sent is None else answer.json_or_none()
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if sent is None:
        return _receive(model, _unwrap(model, value, word) if isinstance(value, dict) else value, answer)
    if isinstance(value, dict):
        with suppress(InvalidMessage):
            stated = _unwrap(model, value, word)
            return model.receive({**sent, **stated})
    return _receive(model, sent, answer)


def given(query: Query) -> dict[str, str | int]:
    """The query parameters that are given."""
    return {name: value for name, value in query.items() if value is not None}


def _unwrap(model: type[Record], value: dict[str, Any], word: str) -> dict[str, Any]:
    if value.keys() & model.model_fields.keys() - {word}:
        return value
    for name in (word, *_ENVELOPES):
        inner = value.get(name)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict):
            return inner
    return value


def _receive(model: type[Record], value: object, answer: Answer) -> Record:
    try:
        return model.receive(value)
    except InvalidMessage as exc:
        raise UnexpectedAnswer(
            f"{answer.source} answered something that is no {model.__name__}: {exc}", answer.status
        ) from None
