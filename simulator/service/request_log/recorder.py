"""The outermost ASGI layer: notes each request and its answer as they go over the wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire import paths
from simulator.service.addresses import CONTROL_PREFIX, PAGES
from simulator.service.answers import Header
from simulator.service.matching import FoundPath, PathTemplates
from simulator.service.request_log.access_log import AccessLog
from simulator.service.request_log.entry import (
    BODY_BYTES,
    CALLER_GONE,
    CUT,
    ENTRY_BYTES,
    NO_ANSWER,
    REFUSED,
    Entry,
)
from simulator.service.request_log.masking import mask_body, mask_headers, mask_target
from simulator.service.request_log.store import RequestLog
from simulator.service.storage.keys import Caller

RECORDING: Final = "service.recording"
"""In the scope of a request: its :class:`Recording`, where requests are recorded."""
REFUSAL: Final = "service.refusal"
"""In the scope of a request: the status that the connection answered in place of the service."""
REPLAY_OF: Final = "service.replay_of"
"""In the scope of a request: ``seq`` of the one that it repeats."""
_MARGIN: Final = 8 * 1024
"""So much more of a body is looked at, so that no half of a secret is left where it is cut."""
_LOOKED_AT: Final = BODY_BYTES + _MARGIN
_TARGET_MAX: Final = 4_096
_KNOWN_PATHS: Final = 4_096
_PATH_CHARACTERS: Final = 200
_PARTNER_ACCESS: Final = frozenset({paths.OAUTH_TOKEN, paths.OAUTH_REVOKE, paths.OAUTH_INTROSPECT, *PAGES})


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
                elif len(self.body_parts) < _LOOKED_AT:
                    self.body_parts += body[:_LOOKED_AT]
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
                elif len(self.answer_parts) < _LOOKED_AT:
                    self.answer_parts += body[:_LOOKED_AT]
            if not message.get("more_body"):
                self.complete = True
        else:
            self.status = message["status"]
            self.answer_headers = message["headers"]
        await self.send_on(message)


class Recorder:
    """Passes each request on to ``app`` and keeps what became of it.

    Args:
        app: what answers.
        log: where requests are kept; those of the control paths are not.
        access_log: where their lines go; None for nowhere.
        now_ms: the service's clock.
        templates: the paths that the service has.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        log: RequestLog,
        access_log: AccessLog | None,
        now_ms: Callable[[], int],
        templates: PathTemplates,
    ) -> None:
        self._app = app
        self._log = log
        self._access_log = access_log
        self._now_ms = now_ms
        self._find = templates.find
        self._find_known = lru_cache(maxsize=_KNOWN_PATHS)(templates.find)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        recording = Recording(scope, receive, send, self._now_ms())
        scope[RECORDING] = recording
        under_way = self._log.under_way
        if not scope["path"].startswith(CONTROL_PREFIX):
            under_way.add(recording)
        try:
            await self._app(scope, recording.receive, recording.send)
        finally:
            is_kept = recording in under_way
            under_way.discard(recording)
            self._finish(recording, is_kept=is_kept)

    def _finish(self, recording: Recording, *, is_kept: bool) -> None:
        entry = self.make_entry(recording, with_texts=is_kept and self._log.keep > 0)
        if is_kept and self._log.keep:
            self._log.add(entry)
        if self._access_log is not None:
            self._access_log.add(entry)

    def make_entry(self, recording: Recording, *, with_texts: bool = True) -> Entry:
        """What is to be kept of a request, as far as it has come.

        Args:
            recording: the request.
            with_texts: its headers and bodies too.
        """
        scope = recording.scope
        path: str = scope["raw_path"].decode("latin-1")
        entry = Entry(scope["method"], path, recording.received_ms)
        entry.duration_s = time.perf_counter() - recording.started_s
        entry.found = self._find_known(path) if len(path) <= _PATH_CHARACTERS else self._find(path)
        entry.caller = recording.caller
        entry.request_id = recording.request_id.decode("latin-1")
        entry.fault = recording.fault
        entry.replay_of = scope.get(REPLAY_OF)
        client = scope.get("client")
        if client is not None:
            entry.client = client[0]
        _set_outcome(entry, recording)
        if with_texts:
            _keep_texts(entry, recording)
        return entry

    def note_refusal(self, status: int, client: str | None) -> None:
        """Keep a request that the connection refused before there was one to pass on."""
        entry = Entry("", "", self._now_ms())
        entry.status = status
        entry.outcome = REFUSED
        entry.client = client
        entry.size_bytes = ENTRY_BYTES
        if self._log.keep:
            self._log.add(entry)
        if self._access_log is not None:
            self._access_log.add(entry)


def _set_outcome(entry: Entry, recording: Recording) -> None:
    if recording.status:
        entry.status = recording.status
        if not recording.complete:
            entry.outcome = CUT
        elif getattr(getattr(recording.send_on, "__self__", None), "disconnected", False):
            entry.outcome = CALLER_GONE
    else:
        refusal = recording.scope.get(REFUSAL)
        if refusal is not None:
            entry.status, entry.outcome = refusal, REFUSED
        else:
            entry.outcome = CALLER_GONE if recording.disconnected else NO_ANSWER


def _keep_texts(entry: Entry, recording: Recording) -> None:
    scope = recording.scope
    is_partner_access = entry.path in _PARTNER_ACCESS
    query: bytes = scope["query_string"]
    if "_" in entry.path:
        masked = mask_target(entry.path.encode("latin-1"))[:_TARGET_MAX].decode("latin-1")
        entry.has_secrets = masked != entry.path
        entry.path = masked
    if query:
        entry.query = mask_target(query)[:_TARGET_MAX]
        entry.has_secrets |= entry.query != query
    entry.headers = mask_headers(scope["headers"])
    body = recording.body_parts or _unread(recording)
    if body:
        entry.body_bytes = max(recording.body_bytes, len(body))
        masked_body = mask_body(body[:_LOOKED_AT], is_partner_access=is_partner_access)
        entry.has_secrets |= not body.startswith(masked_body)
        entry.body = masked_body[:BODY_BYTES]
        entry.body_is_cut = max(entry.body_bytes, len(masked_body)) > BODY_BYTES
    entry.answer_headers = mask_headers(recording.answer_headers)
    if recording.answer_parts and entry.method != "HEAD":
        entry.answer_bytes = recording.answer_bytes
        answer = mask_body(recording.answer_parts[:_LOOKED_AT], is_partner_access=is_partner_access)
        entry.answer = answer[:BODY_BYTES]
        entry.answer_is_cut = max(entry.answer_bytes, len(answer)) > BODY_BYTES
    header_bytes = sum([len(value) for _, value in (*entry.headers, *entry.answer_headers)])
    entry.size_bytes = ENTRY_BYTES + len(entry.path) + len(query) + header_bytes + len(entry.body) + len(entry.answer)


def _unread(recording: Recording) -> bytes:
    """What came of a body that nobody has read, as of a request without keys."""
    cycle: Any = getattr(recording.send_on, "__self__", None)
    waiting = getattr(cycle, "body", b"")
    return bytes(waiting[:_LOOKED_AT])
