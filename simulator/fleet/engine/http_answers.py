"""HTTP/1.1 answers: what they are, who takes them, and how they are parsed.

Callbacks take them, not coroutines: a hundred thousand devices would need two tasks each, and a task weighs more than a
device. Between two answers a parser belongs to no socket, so a few serve any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import httptools

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


END_OF_HEAD: Final = b"\r\n\r\n"
_INTERIM_END: Final = 200
_HEADS_MAX: Final = 256
_HEAD_BYTES_MAX: Final = 1024


class AnswerReader:
    """An HTTP/1.1 answer as its bytes come in, parsed by llhttp.

    Attributes:
        is_whole: the answer is complete.
        status, headers, body: of the whole answer; ``headers`` in their order and as they were written.
        keeps_alive: the connection may carry another request.
        has_more: bytes came behind the answer, which belong to no request.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self._parts: list[bytes] = []
        self._has_head = self.is_whole = self.keeps_alive = self.has_more = False
        self._parser = httptools.HttpResponseParser(self)
        self.feed = self._parser.feed_data

    def clear(self) -> None:
        """Ready for the next answer; after a whole one that nothing came behind."""
        self.headers = []
        self._parts = []
        self._has_head = self.is_whole = False

    def end(self) -> bool:
        """The other side is done; whether that makes the answer whole.

        An answer without a length ends with its connection (RFC 9112 section 6.3), once its head is over.
        """
        has_length = any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self.headers)
        if self._has_head and not has_length:
            self.on_message_complete()
            self.keeps_alive = False
        return self.is_whole

    # What httptools calls. An exception out of these ends the parsing, and its own text is lost.

    def on_message_begin(self) -> None:
        """A message begins; another one behind the answer is not read, or its parts would be added to the answer's."""
        if self.is_whole:
            raise ValueError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header of the answer."""
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is over."""
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """The message is whole; an interim one (RFC 9110 section 15.2) is forgotten, the real one follows."""
        parser = self._parser
        status = parser.get_status_code()
        if status < _INTERIM_END:
            self.clear()
            return
        self.status = status
        # Asked here, since the parser forgets the framing when it leaves the message.
        self.keeps_alive = parser.should_keep_alive()
        self.is_whole = True
        self.body = b"".join(self._parts)


class KnownHead(NamedTuple):
    """A head that was parsed before, with the result.

    Attributes:
        status, headers: as in :class:`AnswerReader`.
        body_bytes: how long the body behind it is.
    """

    status: int
    headers: Headers
    body_bytes: int


class KnownHeads(dict[bytes, KnownHead]):
    """Heads of answers, byte for byte, each with what the parser made of it.

    A service gives most answers of a second the same head. One that gives each answer its own, such as a count of what
    is left of a quota, is parsed each time.
    """

    __slots__ = ()

    def store(self, data: bytes, reader: AnswerReader) -> None:
        """Keep the head of a whole answer, if it alone says where the answer ends.

        It does where exactly the body is behind it: then there is a length in it, or its status has no body. Chunks
        would bring more bytes than the body has, as would another answer before or behind this one.
        """
        head_bytes = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        body_bytes = len(reader.body)
        if head_bytes > _HEAD_BYTES_MAX or head_bytes + body_bytes != len(data):
            return
        if not reader.keeps_alive or reader.has_more:
            return
        if len(self) >= _HEADS_MAX:
            self.clear()
        self[data[:head_bytes]] = KnownHead(reader.status, tuple(reader.headers), body_bytes)
