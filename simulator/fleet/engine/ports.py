"""The interface of HTTP engines: a request goes out, and exactly one call comes back.

Callbacks, not coroutines: a hundred thousand devices would need two tasks each, and a task weighs more than a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from simulator.fleet.outcomes import OutcomeClass

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they came. A tuple where the same head came before: then it is the same tuple."""


class HttpAnswer(NamedTuple):
    """An answer of the server: status, headers, body.

    Attributes:
        status: the status code.
        headers: names and values as they came.
        body: as it came; requests ask for ``identity``, and a server may compress it all the same.
    """

    status: int
    headers: Headers
    body: bytes


class Caller(Protocol):
    """Receives the end of a request: exactly one call, once, from the loop's thread, never from within ``send``.

    Times are seconds on the loop's monotonic clock.
    """

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for the answer; else the request does not leave, and nobody is called."""
        ...

    def answered(self, status: int, headers: Headers, body: bytes, sent_s: float, now_s: float) -> None:
        """Take the answer to the request.

        Args:
            status: the HTTP status.
            headers: names as they came; look them up without regard to case.
            body: as it came; requests ask for ``identity``.
            sent_s: when the request's bytes went to the socket.
            now_s: when the last byte of the answer was there.
        """
        ...

    def failed(self, outcome: OutcomeClass, reason: str, sent_s: float | None, now_s: float) -> None:
        """Take the reason why no answer came.

        Args:
            outcome: ``TIMEOUT``, ``TRANSPORT`` or ``UNEXPECTED``.
            reason: for a person.
            sent_s: when it was sent; None when nothing went out, so that the service cannot have seen it.
            now_s: when it was given up.
        """
        ...


class HttpEngine(Protocol):
    """Requests over kept-alive connections, pooled or one for each device."""

    @property
    def connections(self) -> int:
        """How many connections are open."""
        ...

    def send(self, device: int, message: bytes, caller: Caller, timeout_s: float) -> None:
        """Send one whole request (head and body, ready for the wire); it waits its turn where no connection is free.

        Args:
            device: index of the device: its own connection and source address where each has one.
            message: the bytes.
            caller: called with the answer, or with the failure.
            timeout_s: from now until the whole answer.
        """
        ...

    def cut(self, device: int) -> None:
        """The device's power goes: its own sockets are reset. Its callers do not want their answers any more."""
        ...

    async def close(self) -> None:
        """Close every connection; open requests end as ``TRANSPORT``."""
        ...
