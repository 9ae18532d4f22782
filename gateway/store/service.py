"""The store's thread: it alone writes, and what waits together shares one commit."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from agent.adapters.store.failures import explain, is_damage
from agent.errors import StorageError
from agent.ports import Clock
from agent.threads import OnCrash, WatchedThread, only_logged
from gateway.ports import StoreFull
from gateway.store.gateway_store import GatewayStore
from gateway.store.values import StoreBounds

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_REQUESTS_MAX: Final = 20_000
_AT_ONCE: Final = 2_000
_ANSWER_WITHIN_S: Final = 30.0
_TICK_S: Final = 10.0
_PATIENCE_S: Final = 30.0


@dataclass(slots=True, eq=False)
class _Request:
    work: Callable[[GatewayStore], Any]
    future: Future[Any] = field(default_factory=Future)

    def resolve(self, result: Any, error: Exception | None) -> None:
        # A caller that has gone (a device that hung up) cancels; what it asked for is done all the same.
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class StoreWriter:
    """One thread around a :class:`~gateway.store.gateway_store.GatewayStore`.

    While the disk fails, each waiting caller gets a :class:`~agent.errors.StorageError`, nothing is acknowledged, and
    the thread goes on with the next work.

    Args:
        path: the database, see :data:`~gateway.store.schema.FILE_NAME`.
        clock: for the name of a damaged file and the watchdog.
        bounds: how much may wait.
        on_incident: called with what happened to a damaged file.
        on_crash: see :class:`~agent.threads.WatchedThread`.

    Attributes:
        fault: why the last commit failed; None when it went well.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bounds: StoreBounds | None = None,
        on_incident: Callable[[str], None] = lambda text: _log.error("store=replaced %s", text),
        on_crash: OnCrash = only_logged,
    ) -> None:
        self.path = path
        self.fault: str | None = None
        self._clock = clock
        self._bounds = bounds or StoreBounds()
        self._on_incident = on_incident
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._closing = False
        self._store: GatewayStore | None = None
        self._thread = WatchedThread(self._run, name="store", on_crash=on_crash)
        self._mark_s: float | None = None

    def start(self) -> None:
        """Open the store and start its thread. After a failure it may be called again.

        Raises:
            StorageError: it cannot be opened now.
            ConfigurationError: it is a newer program's file, or another program's.
        """
        self._store = GatewayStore(self.path, self._bounds, self._clock.now().wall_s)
        if self._store.incident is not None:
            self._on_incident(self._store.incident)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Take nothing more, commit what waits, close. True when all of it is on the disk and the thread has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return self._thread.has_ended(timeout_s)

    def stuck_for_s(self, now_s: float) -> float:
        """For how long one turn has lasted beyond patience; 0 when the thread is healthy or waits for work."""
        mark_s = self._mark_s
        return 0.0 if mark_s is None else max(0.0, now_s - mark_s - _PATIENCE_S)

    def submit(self, work: Callable[[GatewayStore], _T]) -> Future[_T]:
        """Have the work done in the next transaction; the future ends after its commit, in the store's thread.

        Its exceptions: the work's own :class:`~agent.errors.AgentError`, :class:`~gateway.ports.StoreFull` when
        too much waits already, else :class:`~agent.errors.StorageError`. Nothing was written then.
        """
        request = _Request(work)
        with self._changed:
            if self._closing or self._store is None:
                fault: StorageError | None = StorageError(f"{self.path}: the store is closed: the gateway stops")
            elif len(self._requests) >= _REQUESTS_MAX:
                fault = StoreFull(f"{self.path}: {_REQUESTS_MAX} requests wait already: the disk is too slow", 5.0)
            else:
                fault = None
                self._requests.append(request)
                self._changed.notify()
        if fault is not None:
            request.resolve(None, fault)
        return cast("Future[_T]", request.future)

    def call(self, work: Callable[[GatewayStore], _T]) -> _T:
        """As :meth:`submit`, and wait for the commit."""
        try:
            return self.submit(work).result(_ANSWER_WITHIN_S)
        except TimeoutError:
            text = f"{self.path}: the disk did not answer within {_ANSWER_WITHIN_S:g} s: check it"
            raise StorageError(text) from None

    def _run(self) -> None:
        store = cast("GatewayStore", self._store)
        try:
            while (requests := self._take()) is not None:
                store = self._store = self._turn(store, requests)
        except BaseException as error:
            self.fault = f"the store's thread ended: {error}"
            raise
        finally:
            with self._changed:
                self._closing = True
                left = list(self._requests)
                self._requests.clear()
            for request in left:
                request.resolve(None, StorageError(f"{self.path}: the store is closed: the gateway stops"))
            store.close()
            self._mark_s = None

    def _take(self) -> list[_Request] | None:
        """The next requests, waiting for them; None when the store was closed and all is done."""
        self._mark_s = None
        with self._changed:
            while not self._requests:
                if self._closing:
                    return None
                self._changed.wait(_TICK_S)
            self._mark_s = self._clock.now().monotonic_s
            return [self._requests.popleft() for _ in range(min(len(self._requests), _AT_ONCE))]

    def _turn(self, store: GatewayStore, requests: list[_Request]) -> GatewayStore:
        results: list[tuple[_Request, Any, Exception | None]] = []
        try:
            store.begin()
            results += [self._attempt(store, request) for request in requests]
            store.commit()
        except (StorageError, sqlite3.Error) as error:
            store.roll_back()
            return self._failed(store, requests, error)
        if self.fault is not None:
            _log.info("store=ok: the disk takes writes again")
            self.fault = None
        for request, result, refusal in results:
            request.resolve(result, refusal)
        return store

    @staticmethod
    def _attempt(store: GatewayStore, request: _Request) -> tuple[_Request, Any, Exception | None]:
        try:
            return request, store.attempt(request.work), None
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - the fault of one caller's work is that caller's
            return request, None, error

    def _failed(
        self, store: GatewayStore, requests: list[_Request], error: StorageError | sqlite3.Error
    ) -> GatewayStore:
        fault = explain(error, self.path) if isinstance(error, sqlite3.Error) else error
        if self.fault is None:
            _log.error("store=failing %s; nothing is acknowledged until it works again", fault)
        self.fault = str(fault)
        for request in requests:
            request.resolve(None, fault)
        cause = error if isinstance(error, sqlite3.Error) else error.__cause__
        if not is_damage(cause):
            return store
        store.close()
        new = GatewayStore(self.path, self._bounds, self._clock.now().wall_s)
        self._on_incident(new.incident or f"{self.path} was opened anew after damage ({fault})")
        return new
