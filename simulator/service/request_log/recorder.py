"""The outermost ASGI layer: notes each request and its answer as they go over the wire."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from agent.wire import paths
from simulator.service.addresses import CONTROL_PREFIX, PAGES
from simulator.service.matching import PathTemplates
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
from simulator.service.request_log.recording import (
    LOOKED_AT,
    RECORDING,
    REFUSAL,
    REPLAY_OF,
    Recording,
    connection_of,
)
from simulator.service.request_log.store import RequestLog

_TARGET_MAX: Final = 4_096
_KNOWN_PATHS: Final = 4_096
_PATH_CHARACTERS: Final = 200
_PARTNER_ACCESS: Final = frozenset({paths.OAUTH_TOKEN, paths.OAUTH_REVOKE, paths.OAUTH_INTROSPECT, *PAGES})


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
        elif getattr(connection_of(recording.send), "disconnected", False):
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
        masked_body = mask_body(body[:LOOKED_AT], is_partner_access=is_partner_access)
        entry.has_secrets |= not body.startswith(masked_body)
        entry.body = masked_body[:BODY_BYTES]
        entry.body_is_cut = max(entry.body_bytes, len(masked_body)) > BODY_BYTES
    entry.answer_headers = mask_headers(recording.answer_headers)
    if recording.answer_parts and entry.method != "HEAD":
        entry.answer_bytes = recording.answer_bytes
        answer = mask_body(recording.answer_parts[:LOOKED_AT], is_partner_access=is_partner_access)
        entry.answer = answer[:BODY_BYTES]
        entry.answer_is_cut = max(entry.answer_bytes, len(answer)) > BODY_BYTES
    header_bytes = sum([len(value) for _, value in (*entry.headers, *entry.answer_headers)])
    entry.size_bytes = ENTRY_BYTES + len(entry.path) + len(query) + header_bytes + len(entry.body) + len(entry.answer)


def _unread(recording: Recording) -> bytes:
    """What came of a body that nobody has read, as of a request without keys."""
    waiting: bytearray = getattr(connection_of(recording.send), "body", bytearray())
    return bytes(waiting[:LOOKED_AT])
