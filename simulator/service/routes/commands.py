"""Commands: sending, the device's poll and its results (specification, "Devices, commands, sensor data")."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row

from agent.wire import extensions, json_text, paths
from agent.wire.command_states import OPEN, CommandStatus
from agent.wire.commands import CommandResult
from agent.wire.instances import CONFLICT_HEADER, INSTANCE_HEADER
from agent.wire.limits import COMMAND_PAYLOAD_BYTES, LONG_POLL_MAX_S
from agent.wire.sending import SendCommand
from simulator.service.answers import Answer, WriteResult, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import invalid, too_large
from simulator.service.gate import REQUEST_HEADERS
from simulator.service.http_errors import CallerGone
from simulator.service.paging import PAGE_PARAMETERS, Page, read_page, take
from simulator.service.parameters import PAGING
from simulator.service.records import CommandRecord
from simulator.service.storage import commands, devices, products
from simulator.service.waiting import CachedPoll, hold

_TAG: Final = "commands"
_PLAIN_POLL: Final = b"status=open"
"""The query string of a poll that is not held: the one that is asked most."""
_RECORD: Final = "/devices/{device_id}/commands/{command_id}"


async def send_command(call: Call) -> Answer:
    """Queue a command for a device."""
    request = await call.message(SendCommand)
    if json_text.size_bytes(request.command_payload) > COMMAND_PAYLOAD_BYTES:
        raise too_large("command_payload", COMMAND_PAYLOAD_BYTES)
    service, account = call.service, call.caller.manufacturer_seq
    if service.config.validate_commands:

        def find_vocabulary(connection: Connection) -> list[Mapping[str, Any]]:
            device = devices.find(connection, account, request.device_id)
            return products.vocabulary(products.find(connection, account, device.product_id))

        await service.payload_checks.check(await service.look_up(find_vocabulary), request.command_payload)
    command_id, now_ms = service.ids.next(), service.clock.now_ms()

    def queue(connection: Connection) -> WriteResult:
        device = devices.find(connection, account, request.device_id)
        record = commands.queue(connection, device, request, command_id, now_ms, deadline=service.deadline)
        location = paths.fill(_RECORD, device_id=device.id, command_id=command_id)
        answer = Answer(202, ok(record).body, ((b"location", location.encode()),))
        return WriteResult(answer, changed=(device.seq,), sent=True)

    return await call.write(queue)


async def list_device_commands(call: Call) -> Answer:
    """Commands of a device; an agent that asks is told of a conflict about its identity."""
    asks = dict(call.scope["headers"]).get(INSTANCE_HEADER.lower().encode())
    conflict = None
    if asks is not None:
        owner = f"{call.caller.manufacturer_seq}/{call.path('device_id')}"
        conflict = call.service.instances.saw(owner, asks.decode("latin-1"), time.monotonic())
    answer = await _list_device_commands(call)
    if conflict is None:
        return answer
    return replace(answer, headers=(*answer.headers, (CONFLICT_HEADER.lower().encode(), conflict.encode())))


async def _list_device_commands(call: Call) -> Answer:
    """With ``status=open`` this is the device's poll."""
    if call.scope["query_string"] == _PLAIN_POLL and call.scope["method"] == "GET":
        kept = _find_cached(call)
        if kept is not None:
            return kept
    query = call.query(PAGE_PARAMETERS | {"status", "wait"})
    polled = query.get("status") == OPEN and call.scope["method"] == "GET"  # HEAD changes nothing
    # How long an answer may be held is no filter: the pages after it are the same, and are read without it.
    filters = {name: value for name, value in query.items() if name != "wait"}
    page = read_page(call, filters, default_order="asc" if polled else "desc", sort_values=1)
    statuses = _read_statuses(query.get("status"))
    wait_s = _read_wait(query.get("wait"))
    service, account, device_id = call.service, call.caller.manufacturer_seq, call.path("device_id")
    device = await service.look_up(lambda c: devices.find(c, account, device_id))
    if polled:
        service.presence.touch(device.seq, service.clock.now_ms())
    known = _known_tags(call)
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        change = service.waiters.join(device.seq)
        try:
            await service.settle_due()
            answer, until_ms = await _list(call, device, statuses, page, polled=polled)
            if call.scope["query_string"] == _PLAIN_POLL and polled and not change.done():
                service.waiters.cache.keep(account, device_id, CachedPoll(device.seq, answer, until_ms))
            if answer.headers[0][1] not in known and b"*" not in known:
                return answer
            left_s = until - loop.time()
            if left_s <= 0 or service.waiters.closing:
                return Answer(304, b"", answer.headers)
            if not await hold(change, call.receive, left_s):
                raise CallerGone
        finally:
            service.waiters.leave(device.seq, change)
        await call.check_epoch(goes_on=True)
        # It may have been removed meanwhile; a device that waits for commands on a connection is online.
        device = await service.look_up(lambda c: devices.find(c, account, device_id))
        if polled:
            service.presence.touch(device.seq, service.clock.now_ms())


def _find_cached(call: Call) -> Answer | None:
    service = call.service
    now_ms = service.clock.now_ms()
    poll = service.waiters.cache.find(call.caller.manufacturer_seq, call.path("device_id"), now_ms)
    if poll is None:
        return None
    service.presence.touch(poll.device_seq, now_ms)
    known = _known_tags(call)
    if poll.answer.headers[0][1] in known or b"*" in known:
        return Answer(304, b"", poll.answer.headers)
    return poll.answer


async def _list(
    call: Call, device: Row[Any], statuses: tuple[str, ...] | None, page: Page, *, polled: bool
) -> tuple[Answer, int | None]:
    """The page with its tag, and when the first of its commands ends, milliseconds since the epoch, or None."""
    service = call.service

    def show(connection: Connection) -> tuple[list[Row[Any]], Answer, int | None]:
        found = commands.list_page(
            connection,
            device.seq,
            statuses,
            page,
            ends_after_ms=service.clock.now_ms() if polled else None,
        )

        rows: list[Row[Any]] = []

        def item(row: Row[Any]) -> CommandRecord:
            rows.append(row)
            return commands.show(row, device.id)

        part = take(found, page, item)
        del rows[part.rows :]  # the first one of the next page has been looked at
        until_ms = min((row.expires_at for row in rows), default=None)
        return rows, _tagged(part.answer(page)), until_ms

    def find(connection: Connection) -> tuple[bool, Answer, int | None]:
        """Whether some have to be delivered first, and the page."""
        rows, answer, until_ms = show(connection)
        return polled and any(row.status == CommandStatus.QUEUED for row in rows), answer, until_ms

    def deliver(connection: Connection) -> tuple[Answer, int | None]:
        rows, _, _ = show(connection)
        commands.deliver(connection, rows, service.clock.now_ms())
        _, answer, until_ms = show(connection)
        return answer, until_ms

    has_new, answer, until_ms = await (service.look_up(find) if polled else service.read(find))
    if not has_new:
        return answer, until_ms
    await call.check_epoch()
    return await service.writer.submit(deliver, len(answer.body))


async def show_command(call: Call) -> Answer:
    """One command."""
    call.query(frozenset())
    account, device_id, command_id = call.caller.manufacturer_seq, call.path("device_id"), call.path("command_id")
    await call.service.settle_due()

    def find(connection: Connection) -> Answer:
        device = devices.find(connection, account, device_id)
        return ok(commands.show(commands.find(connection, device, command_id), device.id))

    return await call.service.look_up(find)


async def report_result(call: Call) -> Answer:
    """How a command goes or ended."""
    result = await call.message(CommandResult)
    service, account = call.service, call.caller.manufacturer_seq
    device_id, command_id, now_ms = call.path("device_id"), call.path("command_id"), service.clock.now_ms()

    def report(connection: Connection) -> WriteResult:
        device = devices.find(connection, account, device_id)
        record = commands.report(connection, device, command_id, result, now_ms)
        service.presence.touch(device.seq, now_ms)
        return WriteResult(ok(record), changed=(device.seq,))

    return await call.write(report)


def _read_statuses(status: str | None) -> tuple[str, ...] | None:
    if status is None:
        return None
    if status == OPEN:
        return commands.OPEN
    if status not in list(CommandStatus):
        raise invalid("status", f"must be open or one of: {', '.join(CommandStatus)}")
    return (status,)


def _read_wait(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        wait_s = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= LONG_POLL_MAX_S:
        raise invalid("wait", f"must be a number of seconds from 0 to {LONG_POLL_MAX_S}")
    return wait_s


def _tagged(answer: Answer) -> Answer:
    tag = b'"%s"' % hashlib.blake2b(answer.body, digest_size=12).hexdigest().encode()
    return Answer(answer.status, answer.body, ((b"etag", tag), *answer.headers))


def _known_tags(call: Call) -> frozenset[bytes]:
    """The tags of ``If-None-Match``; weak ones count (RFC 9110, section 13.1.2)."""
    if b"if-none-match" not in call.scope[REQUEST_HEADERS]:
        return frozenset()
    given = [value for name, value in call.scope["headers"] if name == b"if-none-match"]
    return frozenset(tag.strip().removeprefix(b"W/") for tag in b",".join(given).split(b",") if tag.strip())


_INVALID: Final = Reply(400, "`validation_error`", ERROR)
_NO_DEVICE: Final = Reply(404, "`device_not_found`", ERROR)
_NO_COMMAND: Final = Reply(404, "`device_not_found` or `command_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        paths.SEND_COMMAND,
        send_command,
        "send_command",
        "Send a command to a device",
        _TAG,
        (
            Reply(202, "The command, queued", CommandRecord, located=True),
            _INVALID,
            _NO_DEVICE,
            Reply(409, "`command_queue_full`", ERROR),
        ),
        body=(SendCommand,),
    ),
    Endpoint(
        "GET",
        paths.DEVICE_COMMANDS,
        list_device_commands,
        "list_device_commands",
        "Commands of a device, newest first. With `status=open` the device's poll: what is open, oldest first; "
        "queued commands become delivered",
        _TAG,
        (
            Reply(200, "One page", CommandRecord, listed=True),
            Reply(304, "The list is the one of `If-None-Match`"),
            _INVALID,
            _NO_DEVICE,
        ),
        parameters=(
            Parameter("status", "Open ones, or those in one state", {"type": "string", "enum": [OPEN, *CommandStatus]}),
            Parameter(
                "wait",
                "Hold the answer so many seconds, until the list differs from `If-None-Match`",
                {"type": "number", "minimum": 0, "maximum": LONG_POLL_MAX_S, "default": 0},
                extension=extensions.LONG_POLL,
            ),
            Parameter("If-None-Match", "`ETag` of the list that is known", {"type": "string"}, place="header"),
            *PAGING,
        ),
    ),
    Endpoint(
        "POST",
        paths.COMMAND_RESULT,
        report_result,
        "report_command_result",
        "Report how a command goes or ended",
        _TAG,
        (
            Reply(200, "The command", CommandRecord),
            _INVALID,
            _NO_COMMAND,
            Reply(409, "`command_not_open`", ERROR),
        ),
        body=(CommandResult,),
        extension=extensions.COMMAND_RESULTS,
    ),
    Endpoint(
        "GET",
        _RECORD,
        show_command,
        "show_command",
        "One command: where `Location` of a sent one points",
        _TAG,
        (Reply(200, "The command", CommandRecord), _INVALID, _NO_COMMAND),
        extension=extensions.COMMAND_RESULTS,
    ),
)
