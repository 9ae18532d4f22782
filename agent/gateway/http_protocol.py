"""Uvicorn's HTTP/1.1, without trailers among the headers."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpProtocol(HttpToolsProtocol):
    """Drops what comes after a chunked body: RFC 9110, section 6.5.1, wants it kept apart from the headers.

    The parser reports both in the same way, and uvicorn adds both to the list that the application already has: keys
    sent there would prove who somebody is after the request was let in or not.
    """

    def __init__(self, *args: object, **options: object) -> None:
        self._in_head = False
        super().__init__(*args, **options)  # type: ignore[arg-type]  # uvicorn's own arguments, passed on

    def on_message_begin(self) -> None:
        """A request begins with its head."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What follows is the body, and trailers."""
        self._in_head = False
        super().on_headers_complete()
