"""Answers: a status, bytes and headers, and how they go out over ASGI."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pydantic_core import to_json
from starlette.types import Send

from agent.wire.times import to_rfc3339

Header = tuple[bytes, bytes]
JSON_TYPE: Final[Header] = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the caller; ``body`` is JSON text unless empty or ``media_type`` says otherwise.

    Attributes:
        chunks: instead of ``body``, what is sent piece by piece.
    """

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    media_type: Header = JSON_TYPE
    chunks: AsyncGenerator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What a write came to.

    Attributes:
        answer: for the caller.
        changed: rows of devices whose commands changed: held polls wake up.
        sent: whether some of them are new: event streams wake up.
    """

    answer: Answer
    changed: tuple[int, ...] = ()
    sent: bool = False


def ok(value: Any, *headers: Header) -> Answer:
    """200 with a JSON body."""
    return Answer(200, to_json(value), headers)


def created(value: Any, location: str) -> Answer:
    """201 with the resource and where it is."""
    return Answer(201, to_json(value), ((b"location", location.encode()),))


NO_CONTENT: Final = Answer(204)


async def send_answer(send: Send, answer: Answer, extra: list[Header]) -> None:
    """Send it, with the headers that every answer of this request carries."""
    if answer.chunks is not None:
        await _send_chunks(send, answer, answer.chunks, extra)
        return
    body = answer.body
    headers = [*answer.headers, *extra]
    if body:
        headers.append(answer.media_type)
    if answer.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_chunks(send: Send, answer: Answer, chunks: AsyncGenerator[bytes], extra: list[Header]) -> None:
    headers = [*answer.headers, *extra, answer.media_type]
    async with contextlib.aclosing(chunks):
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


# RFC 9110, section 8.6: no Content-Length on 204; on 304 it would have to be that of the 200.
_WITHOUT_LENGTH: Final = frozenset({204, 304})


def show_time(ms: int) -> str:
    """Milliseconds since the epoch as RFC 3339 in UTC with milliseconds."""
    second, millis = divmod(ms, 1000)
    return f"{_show_second(second)}{millis:03d}Z"


@lru_cache(maxsize=4096)
def _show_second(second: int) -> str:
    return to_rfc3339(second)[:-4]


def show_time_or_none(ms: int | None) -> str | None:
    """As :func:`show_time`; None stays None."""
    return None if ms is None else show_time(ms)
