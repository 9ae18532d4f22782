"""A request that is under way: it is noted as its parts pass."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from simulator.service.answers import Header
from simulator.service.connection import cycle_of
from simulator.service.faults.rules import FAULTS_MET
from simulator.service.request_log.entry import ANSWERED, BODY_BYTES, CALLER_GONE, CUT, NO_ANSWER, Entry
from simulator.service.request_log.logged_paths import LoggedPath
from simulator.service.storage.keys import Caller

RECORDING: Final = "service.recording"
"""In the scope of a request: its :class:`Recording`, where requests are recorded."""
_MARGIN: Final = 8 * 1024
"""So much more of a body is looked at, so that no half of a secret is left where it is cut."""
LOOKED_AT: Final = BODY_BYTES + _MARGIN


class Recording:
    """What is noted of a request: with its secrets until it has ended, without them where it is kept.

    Nearly all of this is on the service's hot path. It does
    not refer to the request's scope, which refers to it: what goes in a circle waits for the garbage collector. Of a
    request that is kept there are bytes and texts and nothing that the garbage collector has to look through.

    Args:
        scope: of the request.
        receive: brings it.
        send: takes the answer.
        received_ms: when it came, milliseconds of the service's clock.

    Attributes:
        send_on: where the answer goes; until it has ended.
        method: as it was sent; empty where nobody could read it.
        raw_path: as it was sent, percent-encoded.
        query: what follows the ``?``.
        headers: of the request.
        client: the address and port of the other end.
        is_console: a page of the service sent it.
        seq: its place in the log, once it has one.
        caller: set by who finds out whom it comes from.
        request_id: the one that the answer carries.
        faults: the wanted faults that it met.
        outcome: what became of it, once it has ended.
        duration_s: from its head to the end of its answer, of real time.
        logged_path: what the logs say of its path; None while it still has its secrets.
        kept_headers: of the request, as one text.
        kept_answer_headers: of the answer, as one text.
        has_secrets: whether something was masked in the path, the query or the body.
        size_bytes: what it takes, about.
        entry: what the log shows of it, once somebody has read that.
    """

    __slots__ = (
        "_is_complete",
        "_is_disconnected",
        "_receive_on",
        "_started_s",
        "answer",
        "answer_bytes",
        "answer_headers",
        "body",
        "body_bytes",
        "caller",
        "client",
        "duration_s",
        "entry",
        "faults",
        "has_secrets",
        "headers",
        "is_console",
        "kept_answer_headers",
        "kept_headers",
        "logged_path",
        "method",
        "outcome",
        "query",
        "raw_path",
        "received_ms",
        "request_id",
        "send_on",
        "seq",
        "size_bytes",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, received_ms: int) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers: Sequence[Header] = scope["headers"]
        self.client: Sequence[Any] | None = scope["client"]
        self._receive_on = receive
        self.send_on = send
        self.received_ms = received_ms
        self.seq = self.body_bytes = self.answer_bytes = self.size_bytes = 0
        self.body = self.answer = self.request_id = self.kept_headers = self.kept_answer_headers = b""
        self.answer_headers: Sequence[Header] = ()
        self.faults: Sequence[str] = ()
        self.caller: Caller | None = None
        self.status: int | None = None
        self.logged_path: LoggedPath | None = None
        self.entry: Entry | None = None
        self._is_complete = self._is_disconnected = self.has_secrets = self.is_console = False
        self.outcome = ANSWERED
        self.duration_s = 0.0
        self._started_s = time.perf_counter()

    async def receive(self) -> Message:
        """Pass on what comes."""
        message = await self._receive_on()
        if message["type"] == "http.request":
            body = message["body"]
            if body:
                self.body_bytes += len(body)
                self.body = _joined(self.body, body) if self.body else body[:LOOKED_AT]
        else:
            self._is_disconnected = True
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass on what goes; without a coroutine of its own, which would cost as much as all the rest here."""
        if message["type"] == "http.response.body":
            body = message.get("body")
            if body:
                self.answer_bytes += len(body)
                self.answer = _joined(self.answer, body) if self.answer else body[:LOOKED_AT]
            if not message.get("more_body"):
                self._is_complete = True
        else:
            self.status = message["status"]
            self.answer_headers = message["headers"]
        return self.send_on(message)

    def end(self, scope: Scope) -> None:
        """Note that it has ended."""
        self.duration_s = time.perf_counter() - self._started_s
        self.faults = scope.get(FAULTS_MET, ())
        connection = cycle_of(scope, self.send_on)
        if connection is not None:
            if connection.disconnected and not self.faults:  # a fault may close the connection itself
                self.outcome = CALLER_GONE
            if connection.body and not self.body:
                # What came of a body that nobody has read, as of a request without keys.
                self.body, self.body_bytes = bytes(connection.body[:LOOKED_AT]), len(connection.body)
        if not self._is_complete:
            self._end_early()
        self._receive_on, self.send_on = nothing, nowhere

    def _end_early(self) -> None:
        if self.status is not None:
            self.outcome = CUT
        elif self._is_disconnected:
            self.outcome = CALLER_GONE
        elif self.outcome == ANSWERED:
            self.outcome = NO_ANSWER


async def nothing() -> dict[str, object]:
    """Brings nothing: the caller has gone."""
    return {"type": "http.disconnect"}


async def nowhere(_message: object) -> None:
    """Takes what goes nowhere."""


def _joined(before: bytes, piece: bytes) -> bytes:
    """As much of both as is looked at."""
    return before + piece[: LOOKED_AT - len(before)]
