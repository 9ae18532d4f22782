"""The service's own answer on its way out, changed as an effect has it."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from simulator.service.answers import Header
from simulator.service.connection import close, connection_of, cycle_of, reset
from simulator.service.faults.model import FaultEffect, FaultTruncate

_BODYLESS: Final = frozenset({204, 304})
_EVENTS: Final = b"text/event-stream"
_EMPTY: Final = b"{}"
"""The body of an answer that has none, where an effect is about the body; its status is 200 then."""
_OK: Final = 200

Wait = Callable[[float], Awaitable[object]]
"""Waits so many seconds, or until nothing is to be held any longer."""


@dataclass(slots=True)
class Sending:
    """The sending end of one answer.

    Attributes:
        scope: the request's.
        next: where it is sent on to, the server's.
        wait: for the time that the answer is held.
        answer_s: how long the answer is held, seconds.
        effect: what happens to it; None for nothing.
    """

    scope: Scope
    next: Send
    wait: Wait
    answer_s: float
    effect: FaultEffect | None
    _start: Message | None = None
    _body: list[bytes] = field(default_factory=list)
    _begun: bool = False
    _left: int = -1
    _ended: bool = False

    async def send(self, message: Message) -> None:
        """One message of the service."""
        if self._ended:
            return
        if message["type"] == "http.response.start" and self.answer_s:
            await self.wait(self.answer_s)
        effect = self.effect
        if effect is None:
            await self.next(message)
        elif effect.lose is not None or effect.reset is not None:
            self._end(reset if effect.reset else close)
        elif effect.truncate is not None:
            await self._truncate(message, effect.truncate)
        else:
            await self.next(message)

    def _end(self, end: Callable[[RequestResponseCycle], None]) -> None:
        """Discard whatever the service still sends."""
        self._ended = True
        end(connection_of(self.scope, self.next))

    async def _truncate(self, message: Message, wanted: FaultTruncate) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, body = self._start, message.get("body", b"")
        if start is not None and _is_stream(start):
            await self._truncate_stream(start, body, wanted)
            return
        whole = self._whole(message)
        if whole is None or start is None:
            return
        if wanted.end == "complete":
            await self._send_whole(start, _changed(start, whole, lambda text: text[: _kept(wanted, len(text))]))
            return
        kept = _kept(wanted, len(whole))
        await self.next(_sized(start, len(whole)))
        await self.next({"type": "http.response.body", "body": whole[:kept], "more_body": True})
        self._end(close if wanted.end == "close" else reset)

    async def _truncate_stream(self, start: Message, piece: bytes, wanted: FaultTruncate) -> None:
        if not self._begun:
            self._begun = True
            await self.next(start)
            self._left = -1 if wanted.after_bytes is None else wanted.after_bytes
        if self._left < 0:  # of the first piece that has something in it, half
            self._left = len(piece) // 2 if piece else -1
        if not piece or len(piece) <= self._left:
            self._left -= len(piece)
            await self.next({"type": "http.response.body", "body": piece, "more_body": True})
            return
        last = wanted.end == "complete"
        await self.next({"type": "http.response.body", "body": piece[: self._left], "more_body": not last})
        self._ended = True
        if not last:
            self._end(close if wanted.end == "close" else reset)

    def _whole(self, message: Message) -> bytes | None:
        """The answer's body, once all of it is there."""
        self._body.append(message.get("body", b""))
        if message.get("more_body"):
            return None
        return b"".join(self._body) or _EMPTY

    async def _send_whole(self, start: Message, body: bytes) -> None:
        cycle = cycle_of(self.scope, self.next)
        if cycle is not None and cycle.chunked_encoding is False:
            cycle.expected_content_length = len(body)  # a profile ends its answers by closing, without Content-Length
        await self.next(_sized(start, len(body)))
        await self.next({"type": "http.response.body", "body": body})


def _kept(wanted: FaultTruncate, size: int) -> int:
    return size // 2 if wanted.after_bytes is None else min(wanted.after_bytes, size - 1)


def _changed(start: Message, body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A body whose text is changed, compressed as it was."""
    if _header(start, b"content-encoding") != b"gzip":
        return change(body)
    return gzip.compress(change(gzip.decompress(body)), mtime=0)


def _is_stream(start: Message) -> bool:
    return _header(start, b"content-type") == _EVENTS


def _header(start: Message, name: bytes) -> bytes | None:
    value = next((value for known, value in start["headers"] if known == name), None)
    return None if value is None else value.partition(b";")[0]


def _replace(start: Message, header: Header) -> Message:
    others = [one for one in start["headers"] if one[0] != header[0]]
    return {**start, "headers": [*others, header]}


def _sized(start: Message, size: int) -> Message:
    """With the length of this body; one whose end is found otherwise stays as it is."""
    if start["status"] in _BODYLESS:
        start = _replace({**start, "status": _OK}, (b"content-type", b"application/json"))
        return _replace(start, (b"content-length", b"%d" % size))
    if _header(start, b"content-length") is None:
        return start
    return _replace(start, (b"content-length", b"%d" % size))
