"""The outermost ASGI layer: notes each request and its answer as they go over the wire."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.browser_access import BrowserAccess, is_from_page
from simulator.service.connection import RAW_SEND
from simulator.service.request_log.recording import RECORDING, Recording
from simulator.service.request_log.store import RequestLog


class Recorder:
    """Passes each request on to ``app`` and notes what became of it.

    Args:
        app: what answers.
        log: where requests are kept; those of the control paths are not.
        now_ms: the service's clock.
        is_observer: knows the requests of who only looks on, which are not kept.
        browser: knows the requests of pages, which are not kept either; None where there are no pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        log: RequestLog,
        now_ms: Callable[[], int],
        is_observer: Callable[[Scope], bool],
        browser: BrowserAccess | None = None,
    ) -> None:
        self._app = app
        self._log = log
        self._now_ms = now_ms
        self._is_observer = is_observer
        self._browser = browser

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[RECORDING] = recording = Recording(scope, receive, send, self._now_ms())
        scope[RAW_SEND] = send
        under_way = self._log.under_way
        recording.is_console = self._browser is not None and is_from_page(scope, self._browser)
        is_outside = recording.is_console or scope["path"].startswith(CONTROL_PREFIX) or self._is_observer(scope)
        if not is_outside:
            under_way.add(recording)
        try:
            await self._app(scope, recording.receive, recording.send)
        finally:
            recording.end(scope)
            del scope[RAW_SEND]  # whose owner has the scope: what goes in a circle waits for the garbage collector
            if recording in under_way:
                under_way.remove(recording)
                self._log.add(recording)
