"""Uvicorn's HTTP/1.1 with bounds for what one connection may send, and in what time; no trailers among the headers."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from agent.runtime.failure_log import FailureLog
from gateway.http.connection_limits import ConnectionLimits

_log = logging.getLogger(__name__)

# What is read at once goes to the parser in pieces of this size: it looks at a piece as a whole.
_PIECE_BYTES: Final = 16 * 1024
# A size line without extensions, and the line break after the chunk: RFC 9112, section 7.1.
_CHUNK_FRAMING_BYTES: Final = 20
_COMPLAIN_EVERY_S: Final = 300.0

# What of a request comes next.
_IDLE: Final = 0  # a new one; of the one before everything has come
_HEAD: Final = 1
_BODY: Final = 2
_REFUSED: Final = 3  # nothing: whatever comes is thrown away


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An answer without the application."""

    status: int
    error: str
    message: str

    def text(self) -> bytes:
        """The whole answer, with the error body of the specification."""
        body = f'{{"error":"{self.error}","message":"{self.message}"}}'.encode()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        return STATUS_LINE[self.status] + head + body


_BAD: Final = _Refusal(400, "bad_request", "This is no valid request of HTTP/1.1.")
_SLOW_HEAD: Final = _Refusal(408, "request_timeout", "The headers of the request did not come in time.")
_SLOW_BODY: Final = _Refusal(408, "request_timeout", "The body of the request stopped coming, or came too slowly.")
_LARGE_FRAMING: Final = _Refusal(
    413, "payload_too_large", "The chunk extensions and trailers of the body are too large."
)
_LARGE_HEAD: Final = _Refusal(
    431, "headers_too_large", "The request line and headers are too large; send fewer headers."
)
_MANY_HEADERS: Final = _Refusal(431, "headers_too_large", "The request has too many headers.")
_FULL: Final = _Refusal(503, "too_many_connections", "The server has no room for another connection; come again later.")

_failure_log = FailureLog(_log, time.monotonic, _COMPLAIN_EVERY_S)


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection of a device.

    Drops what comes after a chunked body: RFC 9110, section 6.5.1, wants it kept apart from the headers. The parser
    reports both in the same way, and uvicorn adds both to the list that the application already has: keys sent there
    would prove an identity after the request was let in or not.

    The parser keeps a header until its end has come, at the cost of a copy for each piece of it, and uvicorn limits
    neither size nor time; here both end at ``limits``. A request that comes in one piece costs no timer.
    """

    def __init__(self, *args: object, limits: ConnectionLimits, **options: object) -> None:
        self._limits = limits
        self._phase = _IDLE
        self._head_bytes = 0
        # What came since the body's beginning and is neither body nor what chunks need.
        self._framing_bytes = 0
        self._body_bytes = 0
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._unsent_bytes = 0
        self._writing_timer: asyncio.TimerHandle | None = None
        self._fault = _BAD
        super().__init__(*args, **options)  # type: ignore[arg-type]  # uvicorn's own arguments, passed on

    # --- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client has connected."""
        full = len(self.connections) >= self._limits.connections
        super().connection_made(transport)
        if full:
            self.refused(_FULL.status)
            text = (
                f"http=full {self._limits.connections} connections are open, and more are refused: raise LimitNOFILE= "
                "of the unit or ulimit -n, or limit the connections of one caller in a proxy in front"
            )
            _failure_log.report("full", text)
            self._phase = _REFUSED
            self.transport.write(_FULL.text())
            self.transport.close()
            return
        self._close_when_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_writing_timer()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        """Bytes of one request or of several."""
        if len(data) <= _PIECE_BYTES and self._phase == _IDLE:
            self._feed(data)  # as nearly always
        else:
            while data and self._phase != _REFUSED:
                piece = data[: self._room()]
                if not piece:
                    self._refuse(_LARGE_HEAD)
                    return
                data = data[len(piece) :]
                self._feed(piece)
        if self._phase != _IDLE and self._due is None and self._phase != _REFUSED:
            self._begin_period()

    def _room(self) -> int:
        """How much the parser may be given at once, bytes; 0 when the head is as large as it may be."""
        if self._phase == _HEAD:
            return min(_PIECE_BYTES, self._limits.head_bytes - self._head_bytes)
        return _PIECE_BYTES

    def _feed(self, piece: bytes) -> None:
        if self._phase == _BODY:
            self._framing_bytes += len(piece)
        super().data_received(piece)
        if self._phase == _IDLE:
            if self.cycle is None or self.cycle.response_complete:
                # Empty lines, or the rest of a body whose answer had not waited for it.
                self._close_when_idle()
        elif self._phase == _HEAD:
            # Behind the end of another request in the same piece this one is taken for longer than it is.
            self._head_bytes += len(piece)
        elif self._framing_bytes > self._limits.head_bytes:
            self._refuse(_LARGE_FRAMING)

    def _close_when_idle(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    # --- what the parser reports ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins with its head."""
        self._phase = _HEAD
        self._head_bytes = 0
        self._due = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if self._phase == _HEAD:
            if len(self.headers) >= self._limits.headers:
                self._fault = _MANY_HEADERS
                raise ValueError(_MANY_HEADERS.message)  # ends the parser; uvicorn calls send_400_response
            HttpToolsProtocol.on_header(self, name, value)  # without super(), which takes as long as all the rest here

    def on_headers_complete(self) -> None:
        """What follows is the body, and trailers."""
        super().on_headers_complete()
        self._phase = _BODY
        self._framing_bytes = self._body_bytes = 0
        self._due = None

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._framing_bytes = max(0, self._framing_bytes - _CHUNK_FRAMING_BYTES)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._framing_bytes = max(0, self._framing_bytes - len(body))
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of a request's body."""
        self._phase = _IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser has given up."""
        self._refuse(self._fault)

    # --- time -----------------------------------------------------------------------------------------------------

    def _begin_period(self) -> None:
        self._due = self.loop.time() + (self._limits.head_s if self._phase == _HEAD else self._limits.body_s)
        self._body_bytes = 0
        self._look_at(self._due)

    def _look_at(self, due: float) -> None:
        """One timer serves many requests: it is moved forward only, and sees when it comes whether it still counts."""
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        due = self._due
        if due is None or self._phase == _IDLE or self.transport.is_closing():
            return
        if self.loop.time() < due:
            self._look_at(due)
        elif self._phase == _REFUSED:
            self._end()
        elif self.flow.read_paused:
            self._begin_period()  # it is this side that does not read
        elif self._phase == _HEAD:
            self._refuse(_SLOW_HEAD)
        elif self._body_bytes < self._limits.body_bytes or self.cycle.response_complete:
            self._refuse(_SLOW_BODY)
        else:
            self._begin_period()

    # --- an answer that is not read -------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is waiting to be sent than the transport holds without limit."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """Go on sending: the caller reads again."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_writing_timer()

    def on_response_complete(self) -> None:
        """An answer is sent, or waits in the transport."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_writing()

    def timeout_keep_alive_handler(self) -> None:
        """The connection was idle for long enough."""
        self._end()

    def _watch_writing(self) -> None:
        self._stop_writing_timer()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._writing_timer = self.loop.call_later(self._limits.body_s, self._probe_writing)

    def _probe_writing(self) -> None:
        if self.transport.get_write_buffer_size() > self._unsent_bytes - self._limits.body_bytes:
            self.transport.abort()
        else:
            self._watch_writing()

    def _stop_writing_timer(self) -> None:
        if self._writing_timer is not None:
            self._writing_timer.cancel()
            self._writing_timer = None

    # --- the end --------------------------------------------------------------------------------------------------

    def _refuse(self, refusal: _Refusal) -> None:
        """Answer, where the caller can know that the answer is this request's, and close."""
        in_body = self._phase == _BODY
        self._phase = _REFUSED
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete
        if is_open and not in_body:
            cycle.keep_alive = False  # the request before is still being answered: that answer is the last one
            return
        if in_body:
            if not is_open or cycle.response_started or self.pipeline:
                self._end()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.refused(refusal.status, self.scope if in_body else None)
        self.transport.write(refusal.text())
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._due = self.loop.time() + self._limits.linger_s
        self._look_at(self._due)

    def refused(self, status: int, scope: Any = None) -> None:
        """Called with each answer that is sent without the application; here it does nothing.

        Args:
            status: of the answer.
            scope: of the request, where the application has it already; None where it never gets it.
        """

    def _end(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the peer does not read: it would never be closed
        else:
            self.transport.close()
