"""The request's body, read before the service sees it and handed on to it unchanged."""

from __future__ import annotations

from collections import deque

from starlette.types import Message, Receive

from agent.wire.limits import BODY_BYTES


class Inbox:
    """The receiving end of one request.

    Args:
        receive: of the server.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._is_read = False

    async def read(self) -> bytes | None:
        """The whole body, or its beginning where it is larger than the service takes; None when the caller has gone."""
        size = sum(len(message.get("body", b"")) for message in self._kept)
        while not self._is_read and size <= BODY_BYTES:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            self._kept.append(message)
            size += len(message.get("body", b""))
            self._is_read = not message.get("more_body")
        return b"".join(message.get("body", b"") for message in self._kept)

    def copy(self) -> Inbox:
        """A second one of the same request, which has read what this one has."""
        made = Inbox(self._receive)
        made._kept, made._is_read = self._kept.copy(), self._is_read
        return made

    async def receive(self) -> Message:
        """What was read already, then what comes after it."""
        return self._kept.popleft() if self._kept else await self._receive()
