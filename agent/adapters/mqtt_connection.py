"""A connection to a broker that comes back by itself: one session after the other, with back-off between them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, Protocol

from agent.adapters import mqtt_faults
from agent.adapters.mqtt_session import Arrival, Broker, Message, Role, Session, Version
from agent.errors import LockedOut, Offline, ServiceError
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire.secret import Secret

_log = logging.getLogger(__name__)

TAKEN_OVER: Final = "taken_over"
STABLE_S: Final = 10.0
"""A connection that stood this long shows that all is well: the next failure is the first of its row."""

# Whom another client threw out waits ever longer, unless it then has the id to itself for this long.
_SETTLED_S: Final = 900.0
# Connections that end this soon after they were made, so many in a row, have a reason that the broker does not give.
_SHORT_S: Final = 30.0
_SHORT_TIMES: Final = 4
# So many connections in a row may be closed before an answer until another version is tried.
_UNANSWERED_TIMES: Final = 3
# While locked out: how often to look whether there is another token.
_LOOK_S: Final = 5.0
_JOIN_S: Final = 1.0


class Waits(Protocol):
    """How long to wait after a failure (:class:`agent.runtime.retry_policy.RetryPolicy`)."""

    def failed(self, error: ServiceError) -> float:
        """The wait after this error, seconds."""
        ...

    def succeeded(self) -> None:
        """The other side is well."""
        ...


class MqttConnection:
    """Keeps a connection to one broker.

    Args:
        broker: where.
        token: the password as it is now; read again for each attempt.
        version: ``auto`` begins with 5 and falls back to 3.1.1; what worked is kept for this object's life.
        role: what to do on each connection.
        waits: between two attempts.
        first_s: how long after the start the first attempt comes, seconds.
        on_down: called in the connection's thread with the trouble and the wait before the next attempt, seconds.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        token: Callable[[], Secret],
        version: Literal["auto", "5", "3.1.1"],
        role: Role,
        waits: Waits,
        first_s: float = 0.0,
        on_down: Callable[[Offline, float], None] = lambda _error, _wait_s: None,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self.broker = broker
        self._token = token
        self._version: Version = "3.1.1" if version == "3.1.1" else "5"
        self._may_fall_back = version == "auto"
        self._role = replace(role, on_up=self._on_connected)
        self._on_up = role.on_up
        self._waits = waits
        self._first_s = first_s
        self._on_down = on_down
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._session: Session | None = None
        self._current: Session | None = None
        self._trouble: Offline = Offline("connecting", f"the connection to {broker} is not there yet")
        self._short = 0
        self._unanswered = 0
        self._thread = WatchedThread(self._run, name="mqtt", on_crash=on_crash)

    # --- any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect to the broker; returns at once."""
        self._thread.start()

    def stop(self, farewell: Message | None = None) -> None:
        """Say ``farewell``, disconnect and end."""
        with self._lock:
            self._stopping.set()
            self._trouble = Offline("stopped", "the connection to the broker was ended")
            session = self._current
        if session is not None:
            session.end(farewell)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    @property
    def is_up(self) -> bool:
        """Whether the connection stands and its subscriptions are acknowledged."""
        return self._session is not None

    @property
    def version(self) -> Version:
        """The MQTT version that the connection speaks now."""
        return self._version

    @property
    def trouble(self) -> Offline:
        """Why there is no connection; of the last one while there is one."""
        return self._trouble

    @property
    def max_packet_bytes(self) -> int | None:
        """The largest packet that the broker takes; None when it did not say."""
        session = self._session
        return None if session is None else session.max_packet_bytes

    def publish(self, message: Message, timeout_s: float) -> int:
        """As :meth:`Session.publish`, on the connection that stands now.

        Raises:
            Offline: there is none, or it ended.
            ServiceError: see there.
        """
        session = self._session
        if session is None:
            raise self._trouble
        return session.publish(message, timeout_s)

    def post(self, message: Message) -> bool:
        """As :meth:`Session.post`, on the connection that stands now; False when there is none."""
        session = self._session
        return session is not None and session.post(message)

    @staticmethod
    def acknowledge(arrival: Arrival) -> None:
        """The message is safe; without effect when its connection has ended, since the broker sends it again then."""
        arrival.session.acknowledge(arrival.mid)

    # --- the connection's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._stopping.wait(self._first_s)
        while not self._stopping.is_set():
            token = self._token()
            session = Session(self.broker, token, self._version, self._role)
            with self._lock:
                if self._stopping.is_set():
                    return
                self._current = session
            error = self._live(session)
            self._session = None
            if not self._stopping.is_set():
                self._after(session, error, token)

    def _live(self, session: Session) -> Offline:
        try:
            return session.run()
        except Exception:  # noqa: BLE001 - logged with its traceback; the connection is made anew
            _log.exception("broker=failed a fault of the program ended the connection: report this as a bug")
            return Offline("failed", "a fault of the program ended the connection to the broker; see the log")

    def _on_connected(self, session: Session) -> None:
        self._session = session
        self._may_fall_back = False
        _log.debug("broker=up version=%s session_kept=%s", session.version, session.was_kept)
        self._on_up(session)

    def _choose_version(self, session: Session, error: Offline) -> bool:
        """Fall back, or return from a fall back that led nowhere; True when the next attempt may come at once."""
        if not self._may_fall_back or not session.was_connected:
            return False
        refused = error.state == "unsupported_version"
        if session.was_answered and not refused:
            return False
        # A broker that is just being stopped hangs up without a word, too; one that knows no 5 does so each time.
        self._unanswered += 1
        if error.state == "closed" and self._unanswered < _UNANSWERED_TIMES:
            return False
        self._unanswered = 0
        self._version = "3.1.1" if self._version == "5" else "5"
        if self._version == "3.1.1":
            _log.info("broker=older MQTT 3.1.1 is tried, since 5 was not taken: %s", error)
        return refused and self._version == "3.1.1"

    def _after(self, session: Session, error: Offline, token: Secret) -> None:
        lasted_s = 0.0 if session.up_at_s is None else time.monotonic() - session.up_at_s
        error = self._suspect(session, error, lasted_s)
        with self._lock:
            if not self._stopping.is_set():
                self._trouble = error
        if self._choose_version(session, error):
            return
        if lasted_s >= (_SETTLED_S if error.state == TAKEN_OVER else STABLE_S):
            self._waits.succeeded()
        wait_s = self._waits.failed(error)
        self._on_down(error, wait_s)
        self._wait(wait_s, token if isinstance(error, LockedOut) else None)

    def _suspect(self, session: Session, error: Offline, lasted_s: float) -> Offline:
        """Tell a take-over by its pattern where the broker gives no reason; suspicion lasts until we are left alone.

        A suspicion only lets the usual waits grow: a broker that restarts again and again looks the same.
        """
        short_s = _SETTLED_S if self._short >= _SHORT_TIMES else _SHORT_S
        if session.up_at_s is None or lasted_s > short_s or error.state != "closed":
            self._short = 0
            return error
        self._short += 1
        return mqtt_faults.cut_short(self._short) if self._short >= _SHORT_TIMES else error

    def _wait(self, wait_s: float, refused: Secret | None) -> None:
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.wait(left_s if refused is None else min(left_s, _LOOK_S)):
                return
            if refused is not None and self._token() != refused:
                return
