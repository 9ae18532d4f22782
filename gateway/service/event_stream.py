"""Server-sent events out of bytes (WHATWG HTML, section 9.2.6), bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from agent.errors import UnexpectedAnswer
from agent.frozen import dataclass
from agent.wire.limits import BODY_BYTES

_MOST_BYTES: Final = 4 * BODY_BYTES


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        id: where to go on after a break; empty when the service gave none.
        name: ``message`` unless the service named it.
    """

    id: str
    name: str
    data: str


def read_events(chunks: Iterable[bytes]) -> Iterator[Event | None]:
    """The events of a stream; None for each comment, which shows that the service is there.

    Raises:
        UnexpectedAnswer: a line or an event beyond 1 MiB.
    """
    last_id, name, size = "", "", 0
    data: list[str] = []
    for line in _lines(chunks):
        size += len(line)
        if size > _MOST_BYTES:
            raise UnexpectedAnswer("the stream of events sends an event beyond 1 MiB: it is given up")
        if not line:
            if data:
                yield Event(last_id, name or "message", "\n".join(data))
            name, data, size = "", [], 0
        elif line.startswith(b":"):
            size = 0 if not data else size
            yield None
        else:
            field, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id" and "\0" not in value:
                last_id = value


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; the last one only when it is whole. A lone CR is not taken for a line's end."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > _MOST_BYTES:
            raise UnexpectedAnswer("the stream of events sends a line beyond 1 MiB: it is given up")
