"""HTTP answers: status, bytes and headers, and how they are sent over ASGI."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from simulator.service.storage.stored_answers import StoredAnswer

Header = tuple[bytes, bytes]
JSON_TYPE: Final[Header] = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; ``body`` is JSON text unless empty or ``media_type`` says otherwise.

    Attributes:
        chunks: instead of ``body``, what is sent piece by piece.
    """

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    media_type: Header = JSON_TYPE
    chunks: AsyncGenerator[bytes] | None = None

    def stored(self) -> StoredAnswer:
        """The answer as the extension ``idempotency-key`` stores it."""
        return StoredAnswer(self.status, self.body, self.headers)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of a write: the HTTP answer, and the devices whose polls it ends.

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


def replayed(stored: StoredAnswer) -> Answer:
    """The answer of an earlier request with the same ``Idempotency-Key``."""
    return Answer(stored.status, stored.body, (*stored.headers, (b"idempotent-replayed", b"true")))


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


class DateHeader:
    """ASGI middleware that dates each answer by the service's clock, as it goes out.

    Uvicorn's own header is made once a second and copied when a request begins: an answer that was held, or that is the
    first after the process stood still, would carry a time from long before it.

    Args:
        app: what answers.
        now_ms: the service's clock, milliseconds since the epoch.
    """

    def __init__(self, app: ASGIApp, now_ms: Callable[[], int]) -> None:
        self._app = app
        self._now_ms = now_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"date", http_date(self._now_ms() // 1000))]
            await send(message)

        await self._app(scope, receive, send_dated)


@lru_cache(maxsize=64)
def http_date(second: int) -> bytes:
    """The value of a ``Date`` header: RFC 9110, section 5.6.7."""
    return formatdate(second, usegmt=True).encode()
