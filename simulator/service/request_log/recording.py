"""A request that is under way: it is noted as its parts pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from simulator.service.answers import Header
from simulator.service.request_log.entry import BODY_BYTES
from simulator.service.storage.keys import Caller

RECORDING: Final = "service.recording"
"""In the scope of a request: its :class:`Recording`, where requests are recorded."""
REFUSAL: Final = "service.refusal"
"""In the scope of a request: the status that the connection answered in place of the service."""
REPLAY_OF: Final = "service.replay_of"
"""In the scope of a request: ``seq`` of the one that it repeats."""
_MARGIN: Final = 8 * 1024
"""So much more of a body is looked at, so that no half of a secret is left where it is cut."""
LOOKED_AT: Final = BODY_BYTES + _MARGIN


class Recording:
    """A request that is under way.

    Attributes:
        scope: of the request.
        send_on: where the answer goes.
        caller: set by who finds out whom it comes from.
        request_id: the one that the answer carries.
        fault: what a wanted fault made of it.
    """

    __slots__ = (
        "_receive_on",
        "answer_bytes",
        "answer_headers",
        "answer_parts",
        "body_bytes",
        "body_parts",
        "caller",
        "complete",
        "disconnected",
        "fault",
        "received_ms",
        "request_id",
        "scope",
        "send_on",
        "started_s",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, received_ms: int) -> None:
        self.scope = scope
        self._receive_on = receive
        self.send_on = send
        self.received_ms = received_ms
        self.started_s = time.perf_counter()
        self.caller: Caller | None = None
        self.request_id = b""
        self.fault: str | None = None
        self.body_parts = b""
        self.body_bytes = 0
        self.disconnected = False
        self.status = 0
        self.answer_headers: Sequence[Header] = ()
        self.answer_parts = b""
        self.answer_bytes = 0
        self.complete = False

    async def receive(self) -> Message:
        """Pass on what comes."""
        message = await self._receive_on()
        if message["type"] == "http.request":
            body = message.get("body")
            if body:
                self.body_bytes += len(body)
                if not self.body_parts:
                    self.body_parts = body
                elif len(self.body_parts) < LOOKED_AT:
                    self.body_parts += body[:LOOKED_AT]
        else:
            self.disconnected = True
        return message

    async def send(self, message: Message) -> None:
        """Pass on what goes."""
        if message["type"] == "http.response.body":
            body = message.get("body")
            if body:
                self.answer_bytes += len(body)
                if not self.answer_parts:
                    self.answer_parts = body
                elif len(self.answer_parts) < LOOKED_AT:
                    self.answer_parts += body[:LOOKED_AT]
            if not message.get("more_body"):
                self.complete = True
        else:
            self.status = message["status"]
            self.answer_headers = message["headers"]
        await self.send_on(message)


def connection_of(send: Any) -> object:
    """What an answer goes out through: the server's own state of it, whether or not the request is recorded."""
    owner = getattr(send, "__self__", None)
    return getattr(owner.send_on, "__self__", None) if isinstance(owner, Recording) else owner
