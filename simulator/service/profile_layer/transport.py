"""How an answer goes out.

Axes: ``date``, ``date_offset_s``, ``connection``, ``encoding``, ``framing``, ``content_type``, ``byte_order_mark``.
"""

from __future__ import annotations

import asyncio
import codecs
import gzip
from typing import Final

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from simulator.service.answers import http_date
from simulator.service.connection import cycle_of
from simulator.service.profile_layer.exchange import JSON, Exchange

_PIECE_BYTES: Final = 1024 * 1024
_BODYLESS: Final = frozenset({204, 304})
_TYPES: Final[dict[str, bytes | None]] = {
    "json": JSON,
    "json_charset": b"application/json; charset=utf-8",
    "vendor_json": b"application/vnd.device-service.v1+json",
    "text": b"text/plain; charset=utf-8",
    "none": None,
}


def encode(exchange: Exchange) -> bytes:
    """The body of the reply as the profile has it."""
    reply, profile = exchange.reply, exchange.profile
    body = b"" if reply.status in _BODYLESS else reply.body()
    if body and reply.is_json and profile.byte_order_mark == "present":
        body = codecs.BOM_UTF8 + body
    return gzip.compress(body, compresslevel=1, mtime=0) if body and profile.encoding == "gzip" else body


async def send_reply(exchange: Exchange, body: bytes, send: Send) -> None:
    """Send the reply with this body as the profile has it."""
    reply, profile = exchange.reply, exchange.profile
    cycle = cycle_of(exchange.scope, send)
    headers = list(reply.headers)
    if body:
        media_type = _TYPES[profile.content_type] if reply.media_type == JSON else reply.media_type
        if media_type is not None:
            headers.append((b"content-type", media_type))
        if profile.encoding == "gzip":
            headers.append((b"content-encoding", b"gzip"))
    if profile.connection != "keep_alive":
        headers.append((b"connection", b"close"))
    if reply.status not in _BODYLESS and not _ends_otherwise(exchange, cycle, len(body)):
        headers.append((b"content-length", b"%d" % len(body)))
    if profile.date == "present":
        headers.append((b"date", http_date(exchange.service.clock.now_ms() // 1000 + profile.date_offset_s)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if exchange.method != "HEAD":
        size = min(_PIECE_BYTES, max(1, len(body) // 2) if profile.framing == "chunked" else _PIECE_BYTES)
        for first in range(0, len(body), size):
            await send({"type": "http.response.body", "body": body[first : first + size], "more_body": True})
            if len(body) > _PIECE_BYTES:
                await asyncio.sleep(0)  # others have their turn before the next piece
    await send({"type": "http.response.body", "body": b""})


def _ends_otherwise(exchange: Exchange, cycle: RequestResponseCycle | None, size: int) -> bool:
    """Whether the body's end is found without Content-Length."""
    if exchange.profile.connection == "until_close" and cycle is not None:
        # As uvicorn has it after a Content-Length, which is not sent here: it adds no chunks, and then closes.
        cycle.chunked_encoding = False
        cycle.expected_content_length = size
        return True
    return exchange.profile.framing == "chunked" and exchange.scope["http_version"] != "1.0"
