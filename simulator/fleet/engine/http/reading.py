"""From bytes to one answer. A reader belongs to nobody between two answers, so a few serve any number of sockets."""

from __future__ import annotations

from typing import Final

import httptools

_INTERIM_END: Final = 200
_PROBE: Final = b"."


class AnswerReader:
    """An HTTP/1.1 answer as its bytes come in, parsed by llhttp.

    Attributes:
        is_whole: the answer is complete.
        status, headers, body: of the whole answer; ``headers`` in their order and as they were written.
        keeps_alive: the connection may carry another request.
        has_more: bytes came behind the answer, which belong to no request.
    """

    __slots__ = ("_more", "_parser", "body", "feed", "has_more", "headers", "is_whole", "keeps_alive", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self._more: list[bytes] = []
        self.is_whole = self.keeps_alive = self.has_more = False
        self._parser = httptools.HttpResponseParser(self)
        self.feed = self._parser.feed_data

    def clear(self) -> None:
        """Ready for the next answer; after a whole one that nothing came behind."""
        self.headers = []
        self.body = b""
        self.is_whole = False
        if self._more:
            self._more = []

    def end(self) -> bool:
        """The other side is done; whether that makes the answer whole.

        An answer without a length ends with its connection (RFC 9112 section 6.3). One that ends in the middle of its
        head does not, which the parser does not tell: one more byte is body only if the head was over.
        """
        if any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self.headers):
            return False
        before = len(self.body)
        parts = len(self._more)
        try:
            self.feed(_PROBE)
        except httptools.HttpParserError:
            return False
        if parts == len(self._more) and before == len(self.body):
            return False
        if parts < len(self._more):
            self._more.pop()
        else:
            self.body = self.body[:before]
        self.status, self.is_whole = self._parser.get_status_code(), True
        self.body = b"".join((self.body, *self._more))
        return True

    # What httptools calls. An exception out of these would lose its own text: they raise none.

    def on_message_begin(self) -> None:
        """A message begins."""
        if self.is_whole:
            self.has_more = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        if self.body:
            self._more.append(data)
        else:
            self.body = data

    def on_message_complete(self) -> None:
        """The message is whole; an interim one (RFC 9110 section 15.2) is forgotten, the real one follows."""
        parser = self._parser
        status = parser.get_status_code()
        if status < _INTERIM_END:
            self.headers = []
            return
        self.status = status
        # Asked here, since the parser forgets the framing when it leaves the message.
        self.keeps_alive = parser.should_keep_alive()
        self.is_whole = True
        if self._more:
            self.body = b"".join((self.body, *self._more))
