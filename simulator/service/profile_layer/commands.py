"""Records, lists and the event stream of commands.

Axes: ``id_name``, ``id_type``, ``status_words``, ``command_list``.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import Connection, bindparam, select
from starlette.types import Message, Send

from agent.wire import paths
from agent.wire.command_states import OPEN, CommandStatus
from simulator.service.profile_layer.exchange import OK, Exchange
from simulator.service.profile_layer.lists import is_list
from simulator.service.profile_layer.times import write_times
from simulator.service.storage import commands as storage
from simulator.service.storage import devices
from simulator.service.storage.tables import commands as table

_DATA: Final = b"data: "
_LIST: Final = "list_device_commands"
_RECORDS: Final = frozenset({_LIST, "send_command", "report_command_result", "show_command"})
_QUEUED: Final = CommandStatus.QUEUED.value
OWN_WORDS: Final = {
    CommandStatus.QUEUED: "PENDING",
    CommandStatus.DELIVERED: "SENT",
    CommandStatus.IN_PROGRESS: "RUNNING",
    CommandStatus.SUCCEEDED: "DONE",
    CommandStatus.FAILED: "ERROR",
    CommandStatus.REJECTED: "REFUSED",
    CommandStatus.EXPIRED: "LAPSED",
    CommandStatus.TIMED_OUT: "LOST",
    CommandStatus.CANCELED: "WITHDRAWN",
}
# SQLite takes 32,766 parameters.
_AT_ONCE: Final = 1_000
_ROWS: Final = select(table.c.id, table.c.seq).where(table.c.id.in_(bindparam("ids", expanding=True)))
_NUMBERS: Final = {status: number for number, status in enumerate(OWN_WORDS)}


async def find_by_number(exchange: Exchange) -> None:
    """Before: a number in the path becomes the id that the complete service knows."""
    number = exchange.ids.get("command_id")
    if exchange.profile.id_type != "integer" or number is None:
        return
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return
    account = exchange.account

    def find(connection: Connection) -> str | None:
        c = table.c
        query = select(c.id).where(c.seq == int(number), c.manufacturer_seq == account)
        return connection.execute(query).scalar_one_or_none()

    found = await exchange.service.look_up(find)
    if found is not None:
        exchange.replace_id("command_id", found)


async def choose(exchange: Exchange) -> None:
    """Before: which commands are listed, in which order."""
    if exchange.name != _LIST:
        return
    profile, status = exchange.profile, exchange.parameter("status")
    order = None
    if _is_handed_out(exchange):
        exchange.asked["once"] = "yes"
        # The complete service's own cursor would leave out what it stands for: the rest is all that is still queued.
        dropped = {"status", "cursor"} if profile.paging == "complete" else {"status"}
        exchange.query = [one for one in exchange.query if one[0] not in dropped]
        exchange.query.append(("status", _QUEUED))
        order = "asc" if status == OPEN else "desc"
    elif status is None and profile.command_list != "everything" and exchange.method == "GET":
        exchange.query.append(("status", OPEN))
        order = "desc"
    if order is not None and exchange.parameter("order") is None:
        exchange.query.append(("order", order))


def _is_handed_out(exchange: Exchange) -> bool:
    asks = exchange.parameter("status") in {None, OPEN}
    return exchange.profile.command_list == "once" and asks and exchange.method == "GET"


async def hand_out(exchange: Exchange) -> None:
    """After: what is listed is delivered, and never listed again."""
    if "once" not in exchange.asked or not is_list(exchange):
        return
    account, device_id, now_ms = exchange.account, exchange.ids["device_id"], exchange.service.clock.now_ms()
    listed = [record["id"] for record in exchange.reply.value["data"]]

    def deliver(connection: Connection) -> tuple[int, set[str]]:
        device = devices.find(connection, account, device_id)
        mine = (table.c.device_seq == device.seq, table.c.status == _QUEUED, table.c.id.in_(listed))
        rows = connection.execute(select(table).where(*mine)).all()
        storage.deliver(connection, rows, now_ms)
        return device.seq, {row.id for row in rows}

    device_seq, taken = await exchange.service.writer.submit(deliver)
    exchange.service.presence.touch(device_seq, now_ms)
    if taken:
        exchange.service.waiters.wake(device_seq)
    # Another request may have been faster with one of them.
    exchange.reply.value["data"] = [one for one in exchange.reply.value["data"] if one["id"] in taken]


async def number(exchange: Exchange) -> None:
    """After: look up the numbers in the place of ids."""
    if _holds_commands(exchange):
        exchange.numbers = await _numbers(exchange, _records(exchange))


def rewrite(exchange: Exchange) -> None:
    """After: ids, status and times of commands as the profile has them."""
    if not _holds_commands(exchange):
        return
    reply, records, numbers = exchange.reply, _records(exchange), exchange.numbers
    if exchange.name == "send_command":
        _relocate(exchange, records[0], numbers)
    shown = [_show(exchange, record, numbers) for record in records]
    if is_list(exchange):
        reply.value["data"] = shown
    else:
        reply.value = shown[0]


def _holds_commands(exchange: Exchange) -> bool:
    return exchange.name in _RECORDS and exchange.reply.status in OK and exchange.reply.is_json


def _records(exchange: Exchange) -> list[dict[str, Any]]:
    value = exchange.reply.value
    return value["data"] if is_list(exchange) else [value]


async def show(exchange: Exchange, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Commands of the complete service as the profile has them, all but their times."""
    numbers = await _numbers(exchange, records)
    return [_show(exchange, record, numbers) for record in records]


async def _numbers(exchange: Exchange, records: list[dict[str, Any]]) -> dict[str, int]:
    """Id -> the number in its place; empty where ids are no numbers."""
    if exchange.profile.id_type != "integer":
        return {}
    ids = [record["id"] for record in records]

    def find(connection: Connection) -> dict[str, int]:
        found: dict[str, int] = {}
        for first in range(0, len(ids), _AT_ONCE):
            some = ids[first : first + _AT_ONCE]
            found |= {row.id: row.seq for row in connection.execute(_ROWS, {"ids": some})}
        return found

    return await exchange.service.look_up(find)


def _relocate(exchange: Exchange, record: dict[str, Any], numbers: dict[str, int]) -> None:
    """``Location`` points at the command where a client can follow it."""
    exchange.reply.drop(b"location")
    if exchange.profile.id_name != "none" and exchange.profile.has("command-results"):
        shown = str(numbers.get(record["id"], record["id"]))
        path = paths.device_commands(record["device_id"]) + "/" + paths.segment(shown)
        exchange.reply.headers.append((b"location", path.encode()))


def _show(exchange: Exchange, record: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    profile = exchange.profile
    shown = {name: value for name, value in record.items() if name != "id"}
    command_id = numbers.get(record["id"], record["id"])
    if profile.id_name == "meta.uuid":
        shown = {"meta": {"uuid": command_id}, **shown}
    elif profile.id_name != "none":
        shown = {profile.id_name: command_id, **shown}
    if profile.status_words == "none":
        del shown["status"], shown["status_reason"]
    elif profile.status_words == "own":
        shown["status"] = OWN_WORDS[CommandStatus(record["status"])]
    elif profile.status_words == "number":
        shown["status"] = _NUMBERS[CommandStatus(record["status"])]
    return shown


def rewritten_events(exchange: Exchange, send: Send) -> Send:
    """Where the complete service sends its stream to; each of its pieces holds whole events."""

    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            message = {**message, "body": await _rewrite_events(exchange, message["body"])}
        await send(message)

    return pass_on


async def _rewrite_events(exchange: Exchange, piece: bytes) -> bytes:
    lines = piece.split(b"\n")
    places = [place for place, line in enumerate(lines) if line.startswith(_DATA)]
    records = await show(exchange, [from_json(lines[place].removeprefix(_DATA)) for place in places])
    for place, record in zip(places, records, strict=True):
        lines[place] = _DATA + to_json(write_times(exchange, record))
    return b"\n".join(lines)
