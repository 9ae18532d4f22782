"""Server-sent events (WHATWG HTML, section 9.2): what the streams of the service share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.endpoints import Parameter

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0
"""A silent stream sends a comment so often: whoever hears nothing for longer has lost the connection."""
HEARTBEAT: Final = b": still here\n\n"
_TYPE: Final = (b"content-type", MEDIA_TYPE.encode())
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


async def stream_answer(chunks: AsyncGenerator[bytes]) -> Answer:
    """The answer whose body is a stream.

    Args:
        chunks: the stream; its first piece is empty, and comes once the stream has joined those that are woken. From
            then on the stream is counted, and leaves by itself whatever becomes of the answer.
    """
    await anext(chunks)
    return Answer(200, b"", _HEADERS, _TYPE, chunks=chunks)


def head_answer() -> Answer:
    """The answer to a HEAD."""
    return Answer(200, b"", _HEADERS, _TYPE, chunks=_nothing())


async def _nothing() -> AsyncGenerator[bytes]:
    return
    yield


def last_event_id(call: Call) -> str | None:
    """The id of the last event that the caller took; None for none."""
    for name, value in call.scope["headers"]:
        if name == b"last-event-id":
            return value.decode("latin-1") or None
    return None


def last_event_id_parameter(description: str) -> Parameter:
    """The request header, for the document."""
    return Parameter("Last-Event-ID", description, {"type": "string"}, place="header")
