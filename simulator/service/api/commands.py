"""Commands: sending, the device's poll, results, the end of their time, and events of sent ones.

::

    queued -> delivered -> in_progress -> succeeded, failed or rejected
       |          |             |
       v          v             v
    expired    timed_out    timed_out         when their time is over; canceled when the device is removed

A result is taken in every open state and, late, after ``timed_out``.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import Header, Query
from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json
from starlette.responses import Response, StreamingResponse

from agent.wire import paths
from agent.wire.instances import CONFLICT_HEADER, INSTANCE_HEADER
from agent.wire.limits import COMMAND_PAYLOAD_BYTES, LONG_POLL_MAX_S
from agent.wire.models import (
    OPEN,
    OPEN_STATES,
    RESULT_STATES,
    CommandRecord,
    CommandResult,
    CommandStatus,
    JsonObject,
    list_faults,
)
from agent.wire.server import COMMAND_EVENTS, COMMAND_RESULTS
from gateway.client import SendCommand
from simulator.service import scopes
from simulator.service.api.devices import find_device
from simulator.service.api.products import find_product, vocabulary
from simulator.service.db import insert, one, update
from simulator.service.errors import ApiError, conflict, invalid, invalid_all, not_found, too_large
from simulator.service.http import Call, CallDep, Json, Router, answers, extends, hot
from simulator.service.paging import Order, Page, PageQuery, page
from simulator.service.payload_checks import check_payload
from simulator.service.times import show_time, show_time_or_none
from simulator.service.variant_answers import command_location, write_command, write_times
from simulator.wire.limits import OPEN_COMMANDS_MAX, TTL_DEFAULT_S

if TYPE_CHECKING:
    from simulator.service.service import Service
    from simulator.service.variant import ServerVariant

router = Router(tag="commands", scope=scopes.COMMANDS)

IS_OPEN: Final = "status IN ('queued', 'delivered', 'in_progress')"
"""As a condition of SQL; the indexes of open commands are made for these very words."""
_END: Final = f"""
    UPDATE commands SET
        status = CASE status WHEN 'queued' THEN 'expired' ELSE 'timed_out' END,
        status_reason = CASE status WHEN 'queued' THEN 'not delivered in time' ELSE 'no result in time' END,
        completed_at = expires_at
    WHERE {IS_OPEN} AND expires_at <= ? RETURNING device
"""
_DELIVER: Final = "UPDATE commands SET status = 'delivered', delivered_at = ? WHERE row = ?"
_GONE: Final = 499
"""The caller has closed the connection; for the request log, as nginx has it."""
_RECORD: Final = "/devices/{device_id}/commands/{command_id}"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


# --- stored commands --------------------------------------------------------------------------------------------


def queue(
    service: Service, sql: sqlite3.Connection, device: sqlite3.Row, command: SendCommand, now_ms: int
) -> sqlite3.Row:
    """Add a command to its device's queue.

    Raises:
        ApiError: 409 ``command_queue_full``.
    """
    end_overdue(service, now_ms)
    count = sql.execute(f"SELECT count(*) FROM commands WHERE device = ? AND {IS_OPEN}", (device["row"],))
    if count.fetchone()[0] >= OPEN_COMMANDS_MAX:
        text = f"This device has {OPEN_COMMANDS_MAX} open commands: wait until it has ended some, or they expire."
        raise conflict("command_queue_full", text)
    row = insert(
        sql,
        "commands",
        id=service.ids.next(),
        account=device["account"],
        device=device["row"],
        command_payload=to_json(command.command_payload).decode(),
        status=CommandStatus.QUEUED.value,
        created_at=now_ms,
        expires_at=now_ms + (command.ttl_seconds or TTL_DEFAULT_S) * 1000,
    )
    service.changed(device["row"], sent=True)
    return _by_row(sql, row)


def find_command(sql: sqlite3.Connection, device: sqlite3.Row, command_id: str) -> sqlite3.Row:
    """One command of a device.

    Raises:
        ApiError: 404 ``command_not_found``.
    """
    row = one(sql, "SELECT * FROM commands WHERE id = ? AND device = ?", (command_id, device["row"]))
    if row is None:
        raise not_found("command", command_id)
    return row


def _by_row(sql: sqlite3.Connection, row: int) -> sqlite3.Row:
    found: sqlite3.Row = sql.execute("SELECT * FROM commands WHERE row = ?", (row,)).fetchone()
    return found


def show_command(row: sqlite3.Row, device_id: str, variant: ServerVariant | None) -> JsonObject:
    """The command record, as the account's variant has it."""
    record = {
        "id": row["id"],
        "device_id": device_id,
        "command_payload": from_json(row["command_payload"]),
        "status": row["status"],
        "status_reason": row["status_reason"],
        "result": None if row["result"] is None else from_json(row["result"]),
        "created_at": show_time(row["created_at"]),
        "delivered_at": show_time_or_none(row["delivered_at"]),
        "completed_at": show_time_or_none(row["completed_at"]),
        "expires_at": show_time(row["expires_at"]),
    }
    return write_command(variant, record, row["row"])


def take_result(
    service: Service, sql: sqlite3.Connection, device: sqlite3.Row, command_id: str, said: CommandResult, now_ms: int
) -> sqlite3.Row:
    """Take a result, or the news that a command is in progress.

    The same result again answers the same record: the answer to the first may have been lost.

    Raises:
        ApiError: 404, or 409 ``command_not_open``.
    """
    end_overdue(service, now_ms)
    row = find_command(sql, device, command_id)
    is_final = said.status in RESULT_STATES
    result = None if said.result is None else to_json(said.result).decode()
    if row["status"] not in OPEN_STATES and not (is_final and row["status"] == CommandStatus.TIMED_OUT):
        if (row["status"], row["result"], row["status_reason"]) == (said.status, result, said.error):
            return row
        raise conflict("command_not_open", f"This command is {row['status']} already and takes no {said.status}.")
    values: dict[str, Any] = {"status": said.status, "delivered_at": row["delivered_at"] or now_ms}
    if is_final or result is not None:
        values["result"] = result
    if is_final or said.error is not None:
        values["status_reason"] = said.error
    if is_final:
        values["completed_at"] = now_ms
    update(sql, "commands", row["row"], **values)
    service.changed(device["row"])
    return _by_row(sql, row["row"])


def next_end_ms(service: Service) -> int | None:
    """When the time of the next open command is over, milliseconds since the epoch; None without one."""
    found: int | None = service.db.sql.execute(f"SELECT min(expires_at) FROM commands WHERE {IS_OPEN}").fetchone()[0]
    return found


def end_overdue(service: Service, now_ms: int) -> None:
    """End the open commands whose time is over; before each listing, so that no device is handed one."""
    end_ms = next_end_ms(service)
    if end_ms is not None and end_ms <= now_ms:
        with service.db.write() as sql:
            for device in {row["device"] for row in sql.execute(_END, (now_ms,)).fetchall()}:
                service.changed(device)


# --- endpoints --------------------------------------------------------------------------------------------------


@router.post(paths.SEND_COMMAND, status_code=202, response_model=CommandRecord, responses=answers(404, 409))
async def send_command(call: CallDep, body: SendCommand) -> Response:
    """Send a command to a device."""
    if len(to_json(body.command_payload)) > COMMAND_PAYLOAD_BYTES:
        raise too_large("command_payload", COMMAND_PAYLOAD_BYTES)
    service = call.service
    if service.config.validate_commands:
        device = find_device(call.db.sql, call.account, body.device_id)
        product = find_product(call.db.sql, call.account, device["product_id"])
        await check_payload(service.payload_checker, vocabulary(product), body.command_payload)
    with call.db.write() as sql:
        device = find_device(sql, call.account, body.device_id)
        row = queue(service, sql, device, body, call.now_ms)
    record = show_command(row, device["id"], call.variant)
    return Json(record, 202, command_location(call.variant, record))


class CommandListQuery(PageQuery):
    """Of the list of a device's commands."""

    status: (
        Literal[
            "open",
            "queued",
            "delivered",
            "in_progress",
            "succeeded",
            "failed",
            "rejected",
            "expired",
            "timed_out",
            "canceled",
        ]
        | None
    ) = Field(None, description="Open ones, or those in one state")
    wait: float = Field(
        0,
        ge=0,
        le=LONG_POLL_MAX_S,
        allow_inf_nan=False,
        description="Hold the answer so many seconds, until the list differs from `If-None-Match`",
    )


async def _list_directly(call: Call) -> Response:
    request = call.request
    try:
        q = CommandListQuery.model_validate(dict(request.query_params))
    except ValidationError as exc:
        raise invalid_all(list_faults(exc)) from None
    return await list_device_commands(
        call, request.path_params["device_id"], q, ",".join(request.headers.getlist("if-none-match"))
    )


@router.get(paths.DEVICE_COMMANDS, response_model=Page[CommandRecord], responses=answers(404))
@hot(_list_directly)
async def list_device_commands(
    call: CallDep,
    device_id: str,
    q: Annotated[CommandListQuery, Query()],
    if_none_match: Annotated[str, Header(description="`ETag` of the list that is known")] = "",
) -> Response:
    """Commands of a device, newest first.

    With `status=open` this is the device's poll: what is open, oldest first; queued commands become delivered.
    """
    service = call.service
    lists = "everything" if call.variant is None else call.variant.command_list
    is_poll = q.status == OPEN or (q.status is None and lists != "everything")
    polled = is_poll and call.request.method == "GET"  # HEAD changes nothing
    asks = call.request.headers.get(INSTANCE_HEADER)
    told: dict[str, str] = {}
    if asks is not None:
        seen = service.instances.saw(f"{call.account}/{device_id}", asks, time.monotonic())
        told = {} if seen is None else {CONFLICT_HEADER: seen}
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    until = time.monotonic() + q.wait
    # How long an answer may be held is no filter: the pages after it are the same, and are read without it.
    listing = CommandListQuery(**q.model_dump(exclude={"wait"}, exclude_unset=True))
    while True:
        device = find_device(call.db.sql, call.account, device_id)
        if polled:
            service.saw(device["row"])
        answer = _list(call, listing, device, is_poll=is_poll, polled=polled, once=polled and lists == "once")
        answer.headers.update(told)
        if "*" not in known and answer.headers["etag"] not in known:
            return answer
        left_s = until - time.monotonic()
        if left_s <= 0 or service.changes.closing:
            kept = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
            return Response(status_code=304, headers=kept)
        if not await service.changes.wait(device["row"], left_s, call.request.receive):
            return Response(status_code=_GONE)  # nobody reads it: what has come meanwhile stays queued
        call.check_caller()


def _list(call: Call, q: CommandListQuery, device: sqlite3.Row, *, is_poll: bool, polled: bool, once: bool) -> Json:
    """The page with its tag.

    Args:
        call: the request.
        q: what it asks for.
        device: whose commands.
        is_poll: open commands alone are listed.
        polled: the queued ones of the page are delivered by that.
        once: queued ones alone are listed: what is delivered is never listed again.
    """
    end_overdue(call.service, call.now_ms)
    statement, values = "SELECT * FROM commands WHERE device = ?", [device["row"]]
    if once:
        statement += " AND status = 'queued'"
    elif is_poll:
        statement += f" AND {IS_OPEN}"
    elif q.status is not None:
        statement += " AND status = ?"
        values.append(q.status)
    shown: list[sqlite3.Row] = []

    def show(row: sqlite3.Row) -> JsonObject:
        shown.append(row)
        return show_command(row, device["id"], call.variant)

    def make() -> Json:
        order: Order = "asc" if q.status == OPEN else "desc"
        return page(call, q, statement, values, show=show, default_order=order, takes_out=once)

    answer = make()
    if polled and any(row["status"] == CommandStatus.QUEUED for row in shown):
        listed = shown[: len(from_json(bytes(answer.body))["data"])]  # one more may have been too large for the page
        with call.db.write() as sql:
            queued = [(call.now_ms, row["row"]) for row in listed if row["status"] == CommandStatus.QUEUED]
            sql.executemany(_DELIVER, queued)
        if once:
            call.service.saw(device["row"])
            call.service.changed(device["row"])
        else:
            answer = make()
    answer.headers["ETag"] = f'"{hashlib.blake2b(answer.body, digest_size=12).hexdigest()}"'
    return answer


@router.get(_RECORD, response_model=CommandRecord, responses=answers(404), openapi_extra=extends("command-results"))
async def get_command(call: CallDep, device_id: str, command_id: str) -> Response:
    """One command: where `Location` of a sent one points."""
    end_overdue(call.service, call.now_ms)
    device = find_device(call.db.sql, call.account, device_id)
    row = find_command(call.db.sql, device, _id_of(call, command_id))
    return Json(show_command(row, device_id, call.variant))


@router.post(
    paths.COMMAND_RESULT,
    response_model=CommandRecord,
    responses=answers(404, 409),
    openapi_extra=extends(COMMAND_RESULTS),
)
async def report_command_result(call: CallDep, device_id: str, command_id: str, body: CommandResult) -> Response:
    """Report how a command goes or ended."""
    with call.db.write() as sql:
        device = find_device(sql, call.account, device_id)
        row = take_result(call.service, sql, device, _id_of(call, command_id), body, call.now_ms)
        call.service.saw(device["row"])
    return Json(show_command(row, device_id, call.variant))


def _id_of(call: Call, command_id: str) -> str:
    """The command's id; where the account's variant has numbers, the path holds its row."""
    if call.variant is None or call.variant.id_type != "integer" or not _NUMBER.fullmatch(command_id):
        return command_id
    query = "SELECT id FROM commands WHERE row = ? AND account = ?"
    row = one(call.db.sql, query, (int(command_id), call.account))
    return command_id if row is None else str(row["id"])


# --- events -----------------------------------------------------------------------------------------------------

STREAM_S: Final = 900.0
"""A stream ends after so long, and its caller comes back with credentials that are checked anew."""
HEARTBEAT_S: Final = 15.0
"""A silent stream sends a comment so often: whoever hears nothing for longer has lost the connection."""
_EVENTS_AT_ONCE: Final = 50
_SENT: Final = """
    SELECT commands.*, devices.id AS device_id FROM commands JOIN devices ON devices.row = commands.device
    WHERE commands.account = ? AND commands.row > ? ORDER BY commands.row LIMIT ?
"""


@router.get(
    paths.COMMAND_EVENTS,
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, **answers(400, 429)},
    openapi_extra=extends(COMMAND_EVENTS),
)
async def stream_command_events(
    call: CallDep,
    last_event_id: Annotated[
        str | None, Header(description="`id` of the last event that was taken: all commands sent since come first")
    ] = None,
) -> Response:
    """Commands of all devices as they are sent, as server-sent events: `id`, `event: command`, the record as `data`.

    A comment comes at least every 15 s. The stream ends after 15 minutes: come back with `Last-Event-ID`.
    """
    service, account = call.service, call.account
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if call.request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=headers)
    if last_event_id:
        last = one(call.db.sql, "SELECT row FROM commands WHERE id = ? AND account = ?", (last_event_id, account))
        if last is None:
            text = "is no command of this account: connect without it, and list what is open"
            raise invalid("Last-Event-ID", text)
        after = int(last["row"])
    else:
        after = _newest(call.db.sql, account)
    events = _events(service, account, after, call.variant)
    await anext(events)  # it is among those that are woken; 429 where there are too many
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(service: Service, account: int, after: int, variant: ServerVariant | None) -> AsyncGenerator[bytes]:
    """Events, and first an empty piece. No queue: what is new is read from the storage, as fast as the caller takes it.

    Raises:
        ApiError: 429 ``too_many_streams``, at the first piece.
    """
    sql, ends = service.db.sql, time.monotonic() + STREAM_S
    with service.changes.stream(account) as news:
        yield b""
        yield b": commands as they are sent\nretry: 1000\n\n"
        while not service.changes.closing and (left_s := ends - time.monotonic()) > 0:
            news.clear()
            if one(sql, "SELECT 1 FROM accounts WHERE row = ?", (account,)) is None:
                return  # it was deleted
            after = min(after, _newest(sql, account))  # a snapshot may have brought an earlier state back
            rows = sql.execute(_SENT, (account, after, _EVENTS_AT_ONCE)).fetchall()
            if rows:
                try:
                    await service.db.committed()
                except ApiError:  # what was read is not stored; the caller comes back with its place
                    return
                for row in rows:
                    data = to_json(write_times(variant, show_command(row, row["device_id"], variant)))
                    yield b"id: %s\nevent: command\ndata: %s\n\n" % (row["id"].encode(), data)
                after = rows[-1]["row"]
                continue
            try:
                await asyncio.wait_for(news.wait(), min(HEARTBEAT_S, left_s))
            except TimeoutError:
                yield b": still here\n\n"


def _newest(sql: sqlite3.Connection, account: int) -> int:
    """The row of the account's last command; 0 without one."""
    newest = "SELECT ifnull(max(row), 0) FROM commands WHERE account = ?"
    return int(sql.execute(newest, (account,)).fetchone()[0])


def end_in_time(service: Service) -> None:
    """Have commands end when their time is over, also while nobody asks for them."""
    service.timers.add(lambda: next_end_ms(service), lambda now_ms: end_overdue(service, now_ms))
