"""Calls for devices: listing, commands, sensor data (specification, sections of these names)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.calls import Calls, given, read_record
from agent.wire.command_list import DERIVED_IDS, MORE_THAN_LISTED, UNREADABLE, CommandList
from agent.wire.dialect import AnswerReading
from agent.wire.limits import BATCH_MAX, LONG_POLL_MAX_S
from agent.wire.lists import Page, Params, iterate_pages
from agent.wire.long_lists import ITEMS_MAX, cut_list
from agent.wire.sensor_data import BatchAnswer, PostSensorData, SensorDataRecord

if TYPE_CHECKING:
    from agent.wire.commands import CommandRecord, CommandResult
    from agent.wire.devices import Device
    from agent.wire.runtime_data import NewRuntimeRecord, RuntimeRecord

COMMAND_PAGES_MAX: Final = 1_000
_OVERLAP_MAX: Final = 50
_ERRORS: Final = ("errors", "error", "failed", "rejected", "failures")


_PART: Final = 1_000


class DeviceCalls(Calls):
    """Devices and what they say and hear. Every call may raise :class:`~agent.errors.ServiceError`.

    Attributes:
        reading: how answers are read where servers differ.
    """

    reading: AnswerReading = AnswerReading()

    def devices(
        self,
        *,
        product_id: str | None = None,
        user_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Device]:
        """``GET /devices``; a plain server may ignore the filters."""
        from agent.wire.devices import Device  # only where results go into a product's table

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
        content when the service gives none (:meth:`CommandRecord.with_derived_id`). Of a list beyond
        :data:`~agent.wire.long_lists.ITEMS_MAX` commands both ends are read, and no page after that many.

        A page after the first that does not come takes nothing away from those before: see
        :attr:`CommandList.incomplete`, which also says when there are more pages than are read.

        Args:
            device_id: the device.
            status: ``open``, a single state, or None for all.
            wait_s: extension ``long-poll``: hold the answer until the list differs from ``etag``, up to 30 s.
            etag: of the list that is known; the answer is ``unchanged`` while it stays the same.

        A page after the first that does not come takes nothing away from those before: see
        :attr:`CommandList.incomplete`, which also says when there are more pages than are read.

        Raises:
            Interrupted: :meth:`interrupt` was called.
            ServiceError: the first page did not come.
        """
        wait = min(max(wait_s, 0.0), float(LONG_POLL_MAX_S))
        path = paths.device_commands(device_id)

        first = [True]

        def fetch(target: str, query: Params) -> Answer:
            is_first, first[0] = first[0], False
            held = wait if is_first else 0.0
            answer = self.connection.request(
                "GET",
                target,
                params={**query, "wait": f"{held:g}"} if held else query,
                headers={"If-None-Match": etag} if etag and is_first else {},
                wait_s=held,
                interruptible=True,
            )
            content, left_out = cut_list(answer.content)
            omitted.append(left_out)
            return replace(answer, content=content) if left_out else answer

        omitted: list[int] = []
        pages = iterate_pages(
            fetch, path, given({"status": status}), self.connection.url(path), pages_max=COMMAND_PAGES_MAX
        )
        return read_commands(pages, self.reading, self.connection.max_answer_bytes, omitted)

    def device_command_parts(
        self, device_id: str, *, status: str | None = None, etag: str | None = None
    ) -> Iterator[CommandList]:
        """As :meth:`device_commands` without waiting, in parts of up to 1,000 commands, read when asked for.

        So what was read is in hand when a later page fails, and a very long list is never in memory as records. Of a
        page with more than :data:`~agent.wire.long_lists.ITEMS_MAX` commands both ends are read. At least one part
        comes; the list's tag is on the last one.
        """
        path = paths.device_commands(device_id)
        first = [True]

        def fetch(target: str, query: Params) -> Answer:
            is_first, first[0] = first[0], False
            headers = {"If-None-Match": etag} if etag and is_first else {}
            answer = self.connection.request("GET", target, params=query, headers=headers, interruptible=True)
            content, left_out = cut_list(answer.content)
            omitted.append(left_out)
            return replace(answer, content=content) if left_out else answer

        omitted: list[int] = []
        params = given({"status": status})
        pages = iterate_pages(fetch, path, params, self.connection.url(path), pages_max=COMMAND_PAGES_MAX)
        found = CommandReader(self.reading)
        for number, (answer, page) in enumerate(pages):
            for begin in range(0, max(1, len(page.items)), _PART):
                found.add(page.items[begin : begin + _PART], begins_page=begin == 0)
                is_whole = number == 0 and begin + _PART >= len(page.items)
                part = found.take(answer, answer.etag if is_whole else None)
                left_out, omitted[:] = sum(omitted), []
                yield replace(part, omitted=left_out) if left_out else part

    def interrupt(self) -> None:
        """End the :meth:`device_commands` in flight, or the next one; from any thread."""
        self.connection.interrupt()

    def report_result(
        self, device_id: str, command_id: str, result: CommandResult, *, idempotency_key: str | None = None
    ) -> CommandRecord | None:
        """``POST /devices/{device_id}/commands/{command_id}/result``, extension ``command-results``.

        The record; None when the answer has none that can be read: a 2xx means that the result was taken, whatever its
        body. What is sent again for the same command changes nothing.
        """
        from agent.wire.commands import CommandRecord  # with the first result

        path = paths.command_result(device_id, command_id)
        answer = self._write("POST", path, result, idempotency_key=idempotency_key)
        if answer.json_or_none() is None:
            return None
        try:
            return read_record(CommandRecord, answer, "command")
        except UnexpectedAnswer:  # JSON of another shape: reporting again would not change it
            return None

    def post_sensor_data(self, reading: PostSensorData, *, idempotency_key: str | None = None) -> SensorDataRecord:
        """``POST /sensor-data``: when it returns, the reading is stored."""
        answer = self._write("POST", paths.SENSOR_DATA, reading, idempotency_key=idempotency_key)
        return read_record(SensorDataRecord, answer, "sensor_data", reading.to_wire())

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

    def create_runtime_record(self, record: NewRuntimeRecord, *, idempotency_key: str | None = None) -> RuntimeRecord:
        """``POST /database/runtime-data``."""
        from agent.wire.runtime_data import RuntimeRecord  # only plain servers need it

        answer = self._write("POST", paths.RUNTIME_DATA, record, idempotency_key=idempotency_key)
        return read_record(RuntimeRecord, answer, "record", record.to_wire())


def read_commands(
    pages: Iterator[tuple[Answer, Page]], reading: AnswerReading, max_bytes: int, omitted: list[int] | None = None
) -> CommandList:
    """The commands of all pages, or of as many as are read.

    Args:
        pages: fetched when asked for.
        reading: how this server's answers are read.
        max_bytes: no further page is asked for after so many.
        omitted: how many commands were left out of each page so far; filled while ``pages`` is.

    Raises:
        ServiceError: the first page did not come. One that is missing later is in ``incomplete``.
    """
    found = CommandReader(reading)
    omitted = [] if omitted is None else omitted
    answer, page = next(pages)
    is_unchanged, page_count = answer.is_unchanged, 1
    count, size_bytes, total = 0, 0, None
    incomplete: ServiceError | None = None
    while True:
        found.add(page.items)
        count += len(page.items)
        size_bytes += len(answer.content)
        total = page.total if page.total is not None else total
        if count >= ITEMS_MAX and page.has_more is not False:
            omitted.append(0 if any(omitted) else 1)  # by one at least, for all that is known
            break
        try:
            if size_bytes > max_bytes:
                raise UnexpectedAnswer(
                    f"{answer.source} lists more than {max_bytes} bytes of commands, and the rest is not read: "
                    "let the service drop old ones, or raise max_answer_bytes"
                )
            answer, page = next(pages)
            page_count += 1
        except StopIteration:
            break
        except ServiceError as error:
            incomplete = error
            break
    if total is not None and count < total and incomplete is None and not any(omitted):
        found.notes[MORE_THAN_LISTED] = (
            f"{answer.source} says that the list has {total} items, lists {count}, and not how to get the others"
        )
    return CommandList(
        tuple(found.records),
        tuple(found.malformed),
        # With more than one page the first one's tag does not speak for the whole list.
        etag=answer.etag if page_count == 1 and incomplete is None else None,
        unchanged=is_unchanged,
        server_time=answer.server_time,
        omitted=sum(omitted),
        notes=found.notes,
        incomplete=incomplete,
    )


class CommandReader:
    """The commands in the items of a list, page by page: one reader for whoever makes the requests.

    Args:
        reading: how this server's answers are read.

    Attributes:
        records: those that could be read, each with an id.
        malformed: one sentence for each that could not.
        notes: see :class:`CommandList`.
    """

    def __init__(self, reading: AnswerReading) -> None:
        self._reading = reading
        self._occurrences: dict[str, int] = {}
        self._before: list[object] = []
        self._index = 0
        self.records: list[CommandRecord] = []
        self.malformed: list[str] = []
        self.notes: dict[str, str] = {}

    def take(self, answer: Answer, etag: str | None) -> CommandList:
        """What was found since the last time, as a part of the list."""
        records, malformed, notes = tuple(self.records), tuple(self.malformed), self.notes
        self.records, self.malformed, self.notes = [], [], {}
        return CommandList(
            records,
            malformed,
            etag=etag,
            unchanged=answer.is_unchanged,
            server_time=answer.server_time,
            notes=notes,
        )

    def add(self, items: list[object], *, begins_page: bool = True) -> None:
        """Read items of a page. What ended the page before it has only moved between the two requests."""
        before, self._before = (self._before if begins_page else []), items
        longest = min(len(before), len(items), _OVERLAP_MAX)
        again = next((n for n in range(longest, 0, -1) if before[-n:] == items[:n]), 0)
        for item in items[again:]:
            self._read(item)
            self._index += 1

    def _read(self, item: object) -> None:
        try:
            record = _read_command(item, self._reading, self._occurrences)
        except InvalidMessage as exc:
            self.malformed.append(f"{_name(item, self._index)} in the list of commands is skipped: {exc}")
            return
        self.records.append(record)
        if record.unreadable_times or record.has_derived_id:
            for kind, sentence in _notes_on(record, item):
                self.notes.setdefault(kind, sentence)


def _read_command(item: object, reading: AnswerReading, occurrences: dict[str, int]) -> CommandRecord:
    from agent.wire.commands import CommandRecord  # with the first command

    record = CommandRecord.receive(item, reading)
    if record.id:
        return record
    first = record.stable_id()
    occurrence = occurrences.get(first, 0)
    occurrences[first] = occurrence + 1
    return record.with_derived_id(occurrence)


def _notes_on(record: CommandRecord, item: object) -> Iterator[tuple[str, str]]:
    members = item if isinstance(item, dict) else {}
    for name in record.unreadable_times:
        sent = members.get(name, members.get("".join([name[:-3], "At"])))
        consequence = "it is not run, since it may have expired" if name == "expires_at" else "it counts as old"
        yield (
            f"{UNREADABLE}{name}",
            (
                f"{name} of command {str(record.id)[:64]!a} cannot be read as a time "
                f"({ascii(sent)[:60]}): {consequence}; let the service write RFC 3339, such as 2026-01-01T00:00:00Z"
            ),
        )
    if record.has_derived_id:
        yield (
            DERIVED_IDS,
            (
                "commands come without an id, so one is derived from content and time, and results carry it: let the "
                "service list ids, or name the member that holds them in service.dialect.command_id"
            ),
        )


def _name(item: object, index: int) -> str:
    given_id = item.get("id", item.get("command_id")) if isinstance(item, dict) else None
    return f"command {given_id[:64]!a}" if isinstance(given_id, str) and given_id else f"item {index}"
