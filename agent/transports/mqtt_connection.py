"""Connections to a broker, on paho: a session lasts from CONNECT to its end, and a connection makes one after another.

paho keeps messages in memory and would send them again over the next connection by itself. Each connection here has a
client of its own instead: what must not be lost is in a store, and whoever sends learns the end of the connection.

Source: MQTT 5.0 and 3.1.1 (OASIS); "Persistent session" is clean start 0 with a session expiry, or clean session 0.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from agent.errors import LockedOut, Offline, TransportError, Unanswered
from agent.runtime.retry_policy import RetryPolicy
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.transports import mqtt_faults
from agent.wire.address import authority
from agent.wire.network import connect, trust_store
from agent.wire.secret import Secret

_log = logging.getLogger(__name__)

Version = Literal["5", "3.1.1"]

# So many messages may be on their way to this client unacknowledged (version 5); a broker's own default is 20 to 65535.
RECEIVE_MAXIMUM: Final = 100

POSTED_MAX: Final = 2000
"""So many messages that nobody waits for may be without the broker's acknowledgement, or with QoS 0 unsent."""

# So many are sent at once and kept by paho until they are acknowledged; after as many without one nothing goes out.
_UNANSWERED_MAX: Final = 20

# PUBLISH beside topic and payload (lengths, packet id), and PUBACK.
_PUBLISH_HEAD_BYTES: Final = 8
_STEP_S: Final = 5.0
# How long the last words may take to get out.
_LEAVE_S: Final = 0.5
_LOG_PREFIXES: Final = ("failed to receive on socket: ", "timeout on socket: ")

TAKEN_OVER: Final = "taken_over"
STABLE_S: Final = 10.0
"""A connection that stood this long shows that all is well: the next failure is the first of its row."""

# Whom another client threw out waits ever longer, unless it then has the id to itself for this long.
_SETTLED_S: Final = 900.0
# Connections that end this soon after they were made, so many in a row, have a reason that the broker does not give.
_SHORT_S: Final = 30.0
_SHORT_TIMES: Final = 4
# While locked out: how often to look whether there is another token.
_LOOK_S: Final = 5.0
_JOIN_S: Final = 1.0


class _Client(paho.Client):
    """paho tries one address after the other, each for the whole time."""

    def _create_socket_connection(self) -> socket.socket:
        return connect(self._host, self._port, self._connect_timeout)


class _ClosingSocket(ssl.SSLSocket):
    """paho leaves a socket open when its handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust and how to prove oneself; None takes the system's authorities and no certificate."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """A context with what the files hold now.

        Raises:
            OSError: a file cannot be read or does not hold what it should (:class:`ssl.SSLError` is one).
        """
        context = trust_store(self.ca_file)
        context.sslsocket_class = _ClosingSocket
        if self.cert_file is not None:
            # The empty password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password="")
        return context


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker's address, and this client's identity there.

    Attributes:
        client_id: also the user name, unless ``user_name`` says otherwise.
        tls: None for a connection in the clear.
        websocket_path: None for plain TCP.
        session_expiry_s: how long the broker keeps subscriptions and messages for a client that is away.
        max_packet_bytes: the largest packet that the broker may send (version 5).
    """

    host: str
    port: int
    client_id: str
    tls: Tls | None = None
    websocket_path: str | None = None
    keepalive_s: int = 60
    connect_timeout_s: float = 10.0
    session_expiry_s: int = 3600
    max_packet_bytes: int = 2 * 1024 * 1024
    user_name: str | None = None

    def __str__(self) -> str:
        scheme = ("ws" if self.websocket_path else "mqtt") + ("s" if self.tls else "")
        return f"{scheme}://{authority(self.host, self.port)}{self.websocket_path or ''}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish.

    Attributes:
        expiry_s: the broker drops it after this long (version 5 only).
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came; ``session`` and ``mid`` are what :meth:`Session.acknowledge` needs."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    session: Session
    mid: int


@dataclass(frozen=True, slots=True)
class Role:
    """The subscriptions, messages and callbacks of a connection.

    Attributes:
        subscriptions: (filter, QoS); asked for at every connection, also when the broker kept the session.
        greeting: published once the subscriptions stand.
        will: what the broker publishes when the connection breaks.
        retained: also take what the broker has kept of the topics.
        on_arrival: takes each message, in the session's thread, and must be quick. What is not acknowledged comes
            again over the next connection.
        on_up: the subscriptions stand.
    """

    subscriptions: Sequence[tuple[str, int]]
    on_arrival: Callable[[Arrival], None]
    on_up: Callable[[Session], None] = lambda _session: None
    greeting: Message | None = None
    will: Message | None = None
    retained: bool = False


class Session:
    """One connection. :meth:`run` is its thread's whole work; the other methods may be called from any thread.

    Args:
        broker: where.
        password: the user's.
        version: of the protocol.
        role: what to do there.
    """

    def __init__(self, broker: Broker, password: Secret, version: Version, role: Role) -> None:
        self._broker = broker
        self._password = password
        self.version = version
        self._role = role
        self._client: paho.Client | None = None
        self._changed = threading.Condition()
        self._acked: dict[int, ReasonCode] = {}
        # Message id -> so many calls of on_publish that nobody waits for: QoS 0 may use an id that is still open.
        self._unwatched: Counter[int] = Counter()
        self._ended = False
        self._leave_by_s: float | None = None
        self._farewell: int | None = None
        self._error: Offline | None = None
        self._last_log = ""
        self.was_connected = False
        """The network connection stood and CONNECT was sent."""
        self.was_answered = False
        """The broker answered CONNECT: it speaks this version, or says that it does not."""
        self.was_kept = False
        """The broker had kept subscriptions and messages of an earlier connection."""
        self.up_at_s: float | None = None
        """When the subscriptions stood, on the monotonic clock; None when they never did."""
        self.max_packet_bytes: int | None = None
        """The largest packet that the broker takes; None when it did not say."""

    # --- the session's thread -----------------------------------------------------------------------------------------

    def run(self) -> Offline:
        """Connect and serve the connection until it ends; why it ended."""
        try:
            return self._run()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._let_go()

    def _run(self) -> Offline:
        broker = self._broker
        try:
            client = self._make_client()
            self._client = client
            if self._leave_by_s is None:
                client.connect(broker.host, broker.port, broker.keepalive_s, **self._connect_options())
                self.was_connected = True
        except paho.WebsocketConnectionError as error:
            return mqtt_faults.of_websocket(error, broker.host, broker.port)
        except (OSError, ValueError) as error:
            return self._network_error(error)
        self._serve(client, time.monotonic() + broker.connect_timeout_s)
        return self._error or self._closed()

    def _serve(self, client: paho.Client, up_by_s: float) -> None:
        while self._error is None:
            is_up, until_s = self.up_at_s is not None, self._leave_by_s
            if until_s is None:
                until_s = math.inf if is_up else up_by_s
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                if not is_up:
                    self._error = self._network_error(TimeoutError())
                elif self._leave_by_s is not None:
                    client.disconnect()
                return
            if client.loop(min(left_s, _STEP_S)) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return

    def _let_go(self) -> None:
        """Close what is open, and free paho's client at once instead of at the next garbage collection."""
        client, self._client = self._client, None
        if client is None:
            return
        connection = client.socket()
        if connection is not None:
            connection.close()
        for name in ("connect", "subscribe", "message", "publish", "disconnect", "log", "socket_open"):
            setattr(client, f"on_{name}", None)

    def _make_client(self) -> paho.Client:
        broker, is_5 = self._broker, self.version == "5"
        client = _Client(
            CallbackAPIVersion.VERSION2,
            broker.client_id,
            clean_session=None if is_5 else False,
            protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if broker.websocket_path else "tcp",
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = broker.connect_timeout_s
        client.username_pw_set(broker.user_name or broker.client_id, self._password.reveal())
        if broker.websocket_path:
            client.ws_set_options(broker.websocket_path)
        if broker.tls is not None:
            client.tls_set_context(broker.tls.context())
        if self._role.will is not None:
            will = self._role.will
            client.will_set(will.topic, will.payload, will.qos, will.retain)
        # With a writer registered, publishing from another thread only queues: the session's thread does all writing.
        client.on_socket_register_write = lambda *_: None
        client.on_socket_open = _send_at_once
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_disconnect = self._on_disconnect
        client.on_log = self._on_log
        return client

    def _connect_options(self) -> dict[str, Any]:
        if self.version != "5":
            return {}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's
        properties.SessionExpiryInterval = self._broker.session_expiry_s
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        properties.MaximumPacketSize = self._broker.max_packet_bytes
        return {"clean_start": False, "properties": properties}

    def _on_connect(self, client: paho.Client, _data: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        self.was_answered = True
        if code.is_failure:
            self._error = mqtt_faults.of_connack(code.value, str(code))
            return
        self.was_kept = bool(flags.session_present)
        self.max_packet_bytes = getattr(properties, "MaximumPacketSize", None)
        if self._role.subscriptions and self.version == "5":
            handling = SubscribeOptions.RETAIN_DO_NOT_SEND
            if self._role.retained:
                handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            client.subscribe(
                [(each, SubscribeOptions(qos, retainHandling=handling)) for each, qos in self._role.subscriptions]
            )
        elif self._role.subscriptions:
            client.subscribe(list(self._role.subscriptions))
        else:
            self._announce_connected(client)

    def _on_subscribe(self, client: paho.Client, _data: Any, _mid: int, codes: list[ReasonCode], _more: Any) -> None:
        for (topic_filter, _), code in zip(self._role.subscriptions, codes, strict=False):
            if code.value >= mqtt_faults.FAILURES_FROM:
                self._error = mqtt_faults.of_suback(topic_filter, code.value, str(code))
                return
        self._announce_connected(client)

    def _announce_connected(self, client: paho.Client) -> None:
        greeting = self._role.greeting
        if greeting is not None:
            info = client.publish(greeting.topic, greeting.payload, greeting.qos, greeting.retain)
            self._forget(info.mid)
        self.up_at_s = time.monotonic()
        self._role.on_up(self)

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            self.acknowledge(message.mid)
            return
        payload = bytes(message.payload)
        self._role.on_arrival(Arrival(topic, payload, message.qos, message.retain, self, message.mid))

    def _on_publish(self, client: paho.Client, _data: Any, mid: int, code: ReasonCode, _more: Any) -> None:
        # Called for QoS 0 as well, once it is written. paho holds a lock of its own here, so none may be held anywhere
        # while paho is called.
        with self._changed:
            may_leave = mid == self._farewell
            if mid in self._unwatched:
                self._unwatched[mid] -= 1
                if not self._unwatched[mid]:
                    del self._unwatched[mid]
            elif not may_leave:
                self._acked[mid] = code
                self._changed.notify_all()
        if may_leave:
            client.disconnect()

    def _on_disconnect(self, _client: paho.Client, _data: Any, flags: Any, code: ReasonCode, _more: Any) -> None:
        if flags.is_disconnect_packet_from_server and self._error is None:
            self._error = mqtt_faults.of_disconnect(code.value, str(code))

    def _on_log(self, _client: paho.Client, _data: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:
            self._last_log = text

    def _network_error(self, error: BaseException) -> Offline:
        broker = self._broker
        if self._client is None and broker.tls is not None:
            files = (broker.tls.ca_file, broker.tls.cert_file, broker.tls.key_file)
            named = ", ".join(str(path) for path in files if path)
            return Offline("bad_certificate", f"the files for TLS cannot be used ({named}): {error}")
        if broker.tls is not None and isinstance(error, ConnectionResetError | BrokenPipeError):
            return mqtt_faults.of_broken_handshake(authority(broker.host, broker.port))
        return mqtt_faults.of_network(error, broker.host, broker.port, broker.connect_timeout_s)

    def _closed(self) -> Offline:
        text = self._last_log
        for prefix in _LOG_PREFIXES:
            text = text.removeprefix(prefix)
        if "SSL" in text.upper():
            return mqtt_faults.of_network(ssl.SSLError(text), self._broker.host, self._broker.port, 0.0)
        where = authority(self._broker.host, self._broker.port)
        return Offline("closed", f"the connection to the broker {where} ended" + (f": {text}" if text else ""))

    # --- any thread ---------------------------------------------------------------------------------------------------

    def publish(self, message: Message, timeout_s: float) -> int:
        """Publish and wait until the broker has acknowledged (QoS 1); its reason code.

        Raises:
            Offline: there is no connection.
            Unanswered: no acknowledgement within ``timeout_s``, or the connection ended meanwhile; the broker may have
                the message all the same.
            ServiceError: the broker refuses the message.
        """
        client = self._client
        if client is None or self._ended:
            raise Offline("closed", "the connection to the broker has ended")
        info = client.publish(message.topic, message.payload, message.qos, message.retain, self._expiry(message))
        if info.rc not in {MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN}:
            raise TransportError(f"a message could not be queued: {paho.error_string(info.rc)}")
        if message.qos == 0:
            self._forget(info.mid)
            return 0
        with self._changed:
            self._changed.wait_for(lambda: info.mid in self._acked or self._ended, timeout_s)
            code = self._acked.pop(info.mid, None)
            if code is None:
                self._unwatched[info.mid] += 1
                if len(self._unwatched) >= _UNANSWERED_MAX and not self._ended:
                    text = f"the broker {self._broker} acknowledges nothing: the connection is made anew"
                    self._error = self._error or Offline("closed", text)
        if code is None and self._ended:
            raise Unanswered("the connection to the broker ended before it acknowledged a message")
        if code is None:
            raise Unanswered(f"the broker has not acknowledged a message within {timeout_s:g} s")
        if code.value >= mqtt_faults.FAILURES_FROM:
            raise mqtt_faults.of_puback(message.topic, code.value, str(code))
        return int(code.value)

    def post(self, message: Message) -> bool:
        """Publish and do not wait; False when too much is on its way already, or the connection has ended.

        For what is published again at the next connection anyway.
        """
        client = self._client
        if client is None or self._ended or len(self._unwatched) >= POSTED_MAX:
            return False
        info = client.publish(message.topic, message.payload, message.qos, message.retain, self._expiry(message))
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        self._forget(info.mid)
        return True

    def _forget(self, mid: int) -> None:
        """Nobody waits for this message's acknowledgement, which may have come already."""
        with self._changed:
            if self._acked.pop(mid, None) is None:
                self._unwatched[mid] += 1

    def acknowledge(self, mid: int) -> None:
        """The message is safe: the broker may forget it. Without effect once the connection has ended."""
        client = self._client
        if client is not None and not self._ended:
            client.ack(mid, 1)

    def end(self, farewell: Message | None = None) -> None:
        """Take leave and close; :meth:`run` returns soon after."""
        self._leave_by_s = time.monotonic() + _LEAVE_S
        client = self._client
        if client is None:
            return
        if farewell is None or self.up_at_s is None:
            client.disconnect()
            return
        info = client.publish(farewell.topic, farewell.payload, farewell.qos, farewell.retain)
        with self._changed:
            self._farewell = info.mid
            is_heard = self._acked.pop(info.mid, None) is not None
        # The broker's acknowledgement comes first: one that meets a closed socket makes it take us for dead, and the
        # will says once more what the farewell has said.
        if is_heard or info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            client.disconnect()

    def _expiry(self, message: Message) -> Properties | None:
        if message.expiry_s is None or self.version != "5":
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's
        properties.MessageExpiryInterval = message.expiry_s
        return properties


def _send_at_once(_client: paho.Client, _data: Any, connection: Any) -> None:
    """Without this a PUBACK and the message after it wait for each other's TCP acknowledgement, 40 ms each time."""
    if hasattr(connection, "setsockopt"):  # paho's WebSocket has none
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
        waits: RetryPolicy,
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

    def _falls_back(self, session: Session, error: Offline) -> bool:
        """Try the other version next, since the broker refused this one, or took the connection and never answered;
        True when the attempt may come at once."""
        refused = error.state == "unsupported_version"
        # A broker that is just being stopped hangs up without a word, and knows version 5 all the same.
        is_silent = session.was_connected and not session.was_answered and error.state != "closed"
        if not self._may_fall_back or not (refused or is_silent):
            return False
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
        if self._falls_back(session, error):
            return
        if lasted_s >= (_SETTLED_S if error.state == TAKEN_OVER else STABLE_S):
            self._waits.succeeded()
        wait_s = self._waits.failed(error)
        self._on_down(error, wait_s)
        self._wait(wait_s, token if isinstance(error, LockedOut) else None)

    def _suspect(self, session: Session, error: Offline, lasted_s: float) -> Offline:
        """Tell a take-over by its pattern, since mosquitto gives no reason; suspicion lasts until we are left alone.

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
