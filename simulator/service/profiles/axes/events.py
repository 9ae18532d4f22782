"""The stream of commands: each command is written there as it is in the lists."""

from __future__ import annotations

from typing import Final

from pydantic_core import from_json, to_json
from starlette.types import Message, Send

from simulator.service.profiles.axes import commands, times
from simulator.service.profiles.exchange import Exchange

_DATA: Final = b"data: "


def rewritten(exchange: Exchange, send: Send) -> Send:
    """Where the complete service sends its stream to; each of its pieces holds whole events."""

    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            message = {**message, "body": await _rewrite(exchange, message["body"])}
        await send(message)

    return pass_on


async def _rewrite(exchange: Exchange, piece: bytes) -> bytes:
    lines = piece.split(b"\n")
    places = [place for place, line in enumerate(lines) if line.startswith(_DATA)]
    records = await commands.show(exchange, [from_json(lines[place].removeprefix(_DATA)) for place in places])
    for place, record in zip(places, records, strict=True):
        lines[place] = _DATA + to_json(times.write_times(exchange, record))
    return b"\n".join(lines)
