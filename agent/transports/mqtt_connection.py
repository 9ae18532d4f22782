"""A connection to an MQTT broker, on paho, that is made anew whenever it ends.

paho keeps messages in memory and would send them again over the next connection by itself. Here each connection, a
:class:`Session`, has a paho client of its own: what must not be lost is in a store, and whoever sends learns of the end
of the connection.

Source: MQTT 5.0 and 3.1.1 (OASIS), whose reason codes paho translates into those of version 5. The broker keeps the
session: clean start 0 with a session expiry, or clean session 0.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from agent.errors import (
    LockedOut,
    Offline,
    ServiceError,
    SessionTakenOver,
    TransportError,
    Unanswered,
    UnexpectedAnswer,
)
from agent.health import OnCrash, RetryPolicy, WatchedThread, only_logged
from agent.wire.limits import MESSAGE_BYTES
from agent.wire.network import authority, certificate_fault, connect, trust_store
from agent.wire.secret import Secret

_log = logging.getLogger(__name__)

Version = Literal["5", "3.1.1"]

NOBODY_LISTENS: Final = 0x10
"""The broker took a message that nobody has subscribed to (version 5)."""

POSTED_MAX: Final = 2000
"""So many messages may be without the broker's acknowledgement, or with QoS 0 unsent, before no more are posted."""

# With so many unacknowledged and one that was waited for in vain, the broker counts as dead.
_UNANSWERED_MAX: Final = 20
# So many of the latest acknowledgements are kept for those who wait for them.
_CODES_KEPT: Final = 64
_STEP_S: Final = 5.0
# How long the last message, and then the disconnecting, may take.
_DISCONNECT_S: Final = 0.5
# After a connection that stood this long the next failure is the first of its row.
_STABLE_S: Final = 10.0
# While the token is refused: how often to look whether there is another one.
_TOKEN_CHECK_S: Final = 5.0
_JOIN_S: Final = 1.0


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
            Offline: a file cannot be read or does not hold what it should.
        """
        try:
            context = trust_store(self.ca_file)
            if self.cert_file is not None:
                # The empty password keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            context.sslsocket_class = _ClosingSocket
        except OSError as error:
            named = ", ".join(str(path) for path in (self.ca_file, self.cert_file, self.key_file) if path)
            raise Offline("bad_certificate", f"the files for TLS cannot be used ({named}): {error}") from None
        return context


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker's address, and this client's identity there.

    Attributes:
        client_id: also the user name, unless ``user_name`` says otherwise.
        tls: None for a connection in the clear.
        session_expiry_s: how long the broker keeps subscriptions and messages for a client that is away (version 5).
        receive_maximum: messages that may be on their way to this client unacknowledged (version 5).
    """

    host: str
    port: int
    client_id: str
    version: Version = "5"
    tls: Tls | None = None
    keepalive_s: int = 60
    connect_timeout_s: float = 15.0
    session_expiry_s: int = 3600
    receive_maximum: int = 100
    user_name: str | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{authority(self.host, self.port)}"


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
    """A message that came over ``session``; ``mid`` is its number there."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    session: Session
    mid: int

    def acknowledge(self) -> None:
        """It is safe: the broker may forget it. Without effect once the session has ended: then it comes again."""
        if self.qos:
            self.session.acknowledge(self.mid)


@dataclass(frozen=True, slots=True)
class Role:
    """What a client does at its broker.

    Attributes:
        subscriptions: (filter, QoS); asked for at every connection, also when the broker kept the session.
        on_arrival: takes each message, in the session's thread, and must be quick. What is not acknowledged comes
            again over the next connection.
        on_up: the subscriptions are acknowledged; likewise.
        will: what the broker publishes when the connection breaks.
        retained: also take what the broker has kept of the topics.
    """

    subscriptions: Sequence[tuple[str, int]]
    on_arrival: Callable[[Arrival], None]
    on_up: Callable[[Session], None] = lambda _session: None
    will: Message | None = None
    retained: bool = False


class Session:
    """One connection. :meth:`run` is its thread's whole work; the other methods may be called from any thread."""

    def __init__(self, broker: Broker, password: Secret, role: Role) -> None:
        self._broker = broker
        self._password = password
        self._role = role
        self._client: paho.Client | None = None
        self._changed = threading.Condition()
        self._codes: dict[int, ReasonCode] = {}
        self._unacknowledged = 0
        self._has_ended = False
        self._disconnect_by_s: float | None = None
        self._error: Offline | None = None
        self._paho_error = ""
        self._where = authority(broker.host, broker.port)
        self.up_at_s: float | None = None
        """When the subscriptions were acknowledged, on the monotonic clock; None when they never were."""
        self.max_packet_bytes: int | None = None
        """The largest packet that the broker takes; None when it did not say."""

    def run(self) -> Offline:
        """Connect and serve the connection until it ends; why it ended."""
        try:
            client = self._client = self._make_client()
            self._connect_and_serve(client)
        except Offline as error:
            # Whoever keeps the error must not keep these frames, and with them paho's client and its open sockets.
            error.__context__ = None
            return error.with_traceback(None)
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
            ended, self._client = self._client, None
            connection = None if ended is None else ended.socket()
            if connection is not None:
                connection.close()
        return self._error or _end_of_connection(self._paho_error, self._where)

    def publish(self, message: Message, timeout_s: float) -> int:
        """Publish and wait until the broker has acknowledged; its reason code.

        Raises:
            Offline: there is no connection.
            Unanswered: no acknowledgement within ``timeout_s``, or the connection ended meanwhile; the broker may have
                the message all the same.
            ServiceError: the broker refuses the message.
        """
        mid = self._send(message)
        with self._changed:
            self._changed.wait_for(lambda: mid in self._codes or self._has_ended, timeout_s)
            code = self._codes.pop(mid, None)
        if code is None and self._has_ended:
            raise Unanswered("the connection to the broker ended before it acknowledged a message")
        if code is None:
            if self._unacknowledged >= _UNANSWERED_MAX:
                text = f"the broker {self._broker} acknowledges nothing: the connection is made anew"
                self._error = self._error or Offline("closed", text)
            raise Unanswered(f"the broker has not acknowledged a message within {timeout_s:g} s")
        if code.value == _NOT_AUTHORIZED:
            text = f"the broker does not let this device publish on {message.topic}: check the broker's access rules"
            raise LockedOut("forbidden", text)
        if code.is_failure:
            raise UnexpectedAnswer(f"the broker refuses a message on {message.topic}: {_named(code)}")
        return int(code.value)

    def post(self, message: Message) -> bool:
        """Publish and do not wait; False when too much is on its way already, or the connection has ended.

        For what is published again at the next connection anyway.
        """
        if self._unacknowledged >= POSTED_MAX:
            return False
        try:
            self._send(message)
        except TransportError:
            return False
        return True

    def acknowledge(self, mid: int) -> None:
        """See :meth:`Arrival.acknowledge`."""
        client = self._client
        if client is not None:
            client.ack(mid, 1)

    def disconnect(self, last: Message | None = None) -> None:
        """Publish ``last`` and disconnect; :meth:`run` returns soon after."""
        if last is not None and self.up_at_s is not None:
            # Its acknowledgement comes first: one that meets a closed socket makes the broker take this client for
            # dead, and publish the will as well.
            with contextlib.suppress(ServiceError):
                self.publish(last, _DISCONNECT_S)
        self._disconnect_by_s = time.monotonic() + _DISCONNECT_S
        client = self._client
        if client is not None:
            client.disconnect()

    @property
    def is_up(self) -> bool:
        """The subscriptions are acknowledged, and the connection has not ended."""
        return self.up_at_s is not None and not self._has_ended

    def _send(self, message: Message) -> int:
        client = self._client
        if client is None:
            raise Offline("closed", "the connection to the broker has ended")
        properties = None
        if message.expiry_s is not None and self._broker.version == "5":
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's
            properties.MessageExpiryInterval = message.expiry_s
        info = client.publish(message.topic, message.payload, message.qos, message.retain, properties)
        if info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN:
            raise Offline("closed", "the connection to the broker has ended")
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise TransportError(f"a message could not be queued: {paho.error_string(info.rc)}")
        with self._changed:
            self._unacknowledged += 1
        return info.mid

    # --- the session's thread -----------------------------------------------------------------------------------------

    def _make_client(self) -> paho.Client:
        broker, is_5, will = self._broker, self._broker.version == "5", self._role.will
        client = _Client(
            CallbackAPIVersion.VERSION2,
            broker.client_id,
            clean_session=None if is_5 else False,
            protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = broker.connect_timeout_s
        client.username_pw_set(broker.user_name or broker.client_id, self._password.reveal())
        if broker.tls is not None:
            client.tls_set_context(broker.tls.context())
        if will is not None:
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

    def _connect_and_serve(self, client: paho.Client) -> None:
        broker = self._broker
        options: dict[str, Any] = {}
        if broker.version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's
            properties.SessionExpiryInterval = broker.session_expiry_s
            properties.ReceiveMaximum = broker.receive_maximum
            properties.MaximumPacketSize = MESSAGE_BYTES
            options = {"clean_start": False, "properties": properties}
        up_by_s = time.monotonic() + broker.connect_timeout_s
        try:
            client.connect(broker.host, broker.port, broker.keepalive_s, **options)
        except (OSError, ValueError) as error:
            raise _no_connection(error, broker, self._where) from None
        while self._error is None:
            until_s = self._disconnect_by_s or (math.inf if self.up_at_s is not None else up_by_s)
            left_s = until_s - time.monotonic()
            if left_s <= 0 and self._disconnect_by_s is None:
                raise _no_connection(TimeoutError(), broker, self._where)
            if left_s <= 0 or client.loop(min(left_s, _STEP_S)) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, properties: Any) -> None:
        if code.is_failure:
            self._error = _refusal(code)
            return
        self.max_packet_bytes = getattr(properties, "MaximumPacketSize", None)
        role = self._role
        if not role.subscriptions:
            self._is_up()
        elif self._broker.version == "5":
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if not role.retained:
                handling = SubscribeOptions.RETAIN_DO_NOT_SEND
            client.subscribe(
                [(each, SubscribeOptions(qos, retainHandling=handling)) for each, qos in role.subscriptions]
            )
        else:
            client.subscribe(list(role.subscriptions))

    def _on_subscribe(self, _client: paho.Client, _data: Any, _mid: int, codes: list[ReasonCode], _more: Any) -> None:
        for (topic_filter, _), code in zip(self._role.subscriptions, codes, strict=False):
            if code.is_failure:
                self._error = LockedOut(
                    "forbidden",
                    f"the broker does not let this device subscribe to {topic_filter} (0x{code.value:02X}): let its "
                    "access rules give each user the topics of its own id (device-gateway broker-config writes them)",
                )
                return
        self._is_up()

    def _is_up(self) -> None:
        self.up_at_s = time.monotonic()
        self._role.on_up(self)

    def _on_message(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            client.ack(message.mid, message.qos)
            return
        self._role.on_arrival(Arrival(topic, bytes(message.payload), message.qos, message.retain, self, message.mid))

    def _on_publish(self, _client: paho.Client, _data: Any, mid: int, code: ReasonCode, _more: Any) -> None:
        # Called for QoS 0 as well, once it is written. paho holds a lock of its own here, so none may be held anywhere
        # while paho is called.
        with self._changed:
            self._unacknowledged -= 1
            self._codes[mid] = code
            if len(self._codes) > _CODES_KEPT:
                del self._codes[next(iter(self._codes))]
            self._changed.notify_all()

    def _on_disconnect(self, _client: paho.Client, _data: Any, flags: Any, code: ReasonCode, _more: Any) -> None:
        if not flags.is_disconnect_packet_from_server or self._error is not None:
            return
        if code.value == _TAKEN_OVER:
            text = (
                "another client connected with this device's id, and the broker gave it the connection: is the agent "
                "running twice, or was this device's configuration copied to another one?"
            )
            self._error = SessionTakenOver("taken_over", text)
        elif code.value in _LOCKED_OUT:
            self._error = _refusal(code)
        else:
            self._error = Offline("closed", f"the broker ended the connection: {_named(code)}")

    def _on_log(self, _client: paho.Client, _data: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:
            self._paho_error = text


class _Client(paho.Client):
    """paho tries one address after the other, each for the whole time."""

    def _create_socket_connection(self) -> socket.socket:
        return connect(self._host, self._port, self._connect_timeout)


def _send_at_once(_client: paho.Client, _data: Any, connection: Any) -> None:
    """Without this a PUBACK and the message after it wait for each other's TCP acknowledgement, 40 ms each time."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def try_connection(broker: Broker, password: Secret, subscriptions: Sequence[tuple[str, int]] = ()) -> Offline | None:
    """Connect, subscribe and disconnect; None when that worked, else why it did not.

    What the broker keeps for the client stays there. A client that is connected with the same id loses its connection.
    """
    session = Session(
        broker, password, Role(subscriptions, lambda _arrival: None, on_up=lambda made: made.disconnect())
    )
    trouble = session.run()
    return trouble if session.up_at_s is None else None


@dataclass(eq=False)
class MqttConnection:
    """Keeps a connection to one broker.

    Attributes:
        token: the password as it is now; read again for each attempt.
        role: what to do on each connection.
        waits: between two attempts.
        first_s: how long after the start the first attempt comes, seconds.
        on_down: called in the connection's thread with the trouble and the wait before the next attempt, seconds.
        on_crash: see :class:`~agent.health.WatchedThread`.
    """

    broker: Broker
    token: Callable[[], Secret]
    role: Role
    waits: RetryPolicy
    first_s: float = 0.0
    on_down: Callable[[Offline, float], None] = lambda _error, _wait_s: None
    on_crash: OnCrash = only_logged

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._session: Session | None = None
        self._trouble = Offline("connecting", f"the connection to {self.broker} is not there yet")
        self._thread = WatchedThread(self._run, name="mqtt", on_crash=self.on_crash)

    def start(self) -> None:
        """Begin to connect to the broker; returns at once."""
        self._thread.start()

    def stop(self, last: Message | None = None) -> None:
        """Publish ``last``, disconnect and end."""
        self._stopping.set()
        if self._session is not None:
            self._session.disconnect(last)
        self._thread.has_ended(_JOIN_S)

    @property
    def is_up(self) -> bool:
        """Whether the connection stands and its subscriptions are acknowledged."""
        return self._session is not None and self._session.is_up

    @property
    def trouble(self) -> Offline:
        """Why there is no connection; of the last one while there is one."""
        if self._stopping.is_set():
            return Offline("stopped", "the connection to the broker was ended")
        return self._trouble

    @property
    def session(self) -> Session:
        """The connection that stands.

        Raises:
            Offline: there is none.
        """
        session = self._session
        if session is None or not session.is_up:
            raise self.trouble
        return session

    # --- the connection's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._stopping.wait(self.first_s)
        while True:
            token = self.token()
            self._session = session = Session(self.broker, token, self.role)
            if self._stopping.is_set():  # from now on a stop reaches the session
                return
            try:
                error = session.run()
            except Exception:  # noqa: BLE001 - logged with its traceback; the connection is made anew
                _log.exception("broker=failed a fault of the program ended the connection: report this as a bug")
                text = "a fault of the program ended the connection to the broker; see the log"
                error = Offline("failed", text)
            if self._stopping.is_set():
                return
            self._trouble = error
            lasted_s = 0.0 if session.up_at_s is None else time.monotonic() - session.up_at_s
            # Two clients with one id throw each other out: each waits ever longer.
            if lasted_s >= _STABLE_S and not isinstance(error, SessionTakenOver):
                self.waits.succeeded()
            wait_s = self.waits.failed(error)
            self.on_down(error, wait_s)
            self._wait(wait_s, token if isinstance(error, LockedOut) else None)

    def _wait(self, wait_s: float, refused: Secret | None) -> None:
        """Wait, until the stop or until there is another token than the one that was refused."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.wait(left_s if refused is None else min(left_s, _TOKEN_CHECK_S)):
                return
            if refused is not None and self.token() != refused:
                return


# --- what went wrong, with what to do ---------------------------------------------------------------------------------

_UNSUPPORTED_VERSION: Final = 0x84
_NOT_AUTHORIZED: Final = 0x87
_TAKEN_OVER: Final = 0x8E
# Client id refused, wrong password, not authorized, banned, another way of authentication wanted.
_LOCKED_OUT: Final = frozenset({0x85, 0x86, _NOT_AUTHORIZED, 0x8A, 0x8C})


def _refusal(code: ReasonCode) -> Offline:
    """The broker does not let this client in."""
    if code.value == _UNSUPPORTED_VERSION:
        text = 'the broker does not speak this version of MQTT: set mqtt.version to the other one of "5" and "3.1.1"'
        return Offline("unsupported_version", text)
    if code.value not in _LOCKED_OUT:
        return Offline("refused", f"the broker refuses the connection: {_named(code)}")
    text = (
        f"the broker does not let this device in: {_named(code)}; check device.device_id and the token in "
        "auth.token_file; a rotated token is taken up by itself once it is there"
    )
    return LockedOut("unauthorized", text)


def _end_of_connection(paho_error: str, where: str) -> Offline:
    """The connection broke; ``paho_error`` is what paho wrote into its log, ``where`` is ``host:port``."""
    if "SSL" in paho_error.upper():
        return _tls_fault(paho_error.partition(": ")[2], where)
    # Brokers that cannot say why, such as mosquitto, end it so when another client takes over the id.
    hint = "; when this repeats, look whether another client has the same id: does it run twice?"
    return Offline("closed", f"the connection to the broker {where} ended{f': {paho_error}' if paho_error else hint}")


def _no_connection(error: Exception, broker: Broker, where: str) -> Offline:
    """The connection could not be made."""
    match error:
        case ssl.SSLCertVerificationError():
            fault = certificate_fault(error, "mqtt.host", "mqtt.ca_file")
            return Offline("bad_certificate", f"the certificate of the broker {where} is refused: {fault}")
        case ssl.SSLError():
            return _tls_fault(error.reason or str(error), where)
        case ConnectionResetError() | BrokenPipeError() if broker.tls is not None:
            return _tls_fault("EOF", where)
        case socket.gaierror():
            text = f"the name of the broker {broker.host!r} cannot be resolved: check mqtt.host"
        case ConnectionRefusedError():
            text = f"nobody listens on {where}: is the broker running, is mqtt.port right?"
        case TimeoutError():
            text = f"the broker {where} did not answer in time: check the network, mqtt.host, mqtt.port, mqtt.version"
        case _:
            text = f"the broker {where} cannot be reached: {getattr(error, 'strerror', None) or error}"
    return Offline("unreachable", text)


def _tls_fault(reason: str, where: str) -> Offline:
    """What OpenSSL or the other side says of TLS."""
    words = reason.upper().replace(" ", "_")
    if "CERTIFICATE" in words or "UNKNOWN_CA" in words:
        text = "does not accept this device's certificate, or wants one: renew or set mqtt.cert_file and mqtt.key_file"
        return Offline("bad_certificate", f"the broker {where} {text} ({reason})")
    if any(each in words for each in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "EOF")):
        text = "set mqtt.port to its TLS port (usually 8883), or mqtt.tls: false on a closed test network"
        return Offline("unreachable", f"the broker {where} does not speak TLS on that port: {text}")
    return Offline("unreachable", f"TLS with the broker {where} failed: {reason}")


def _named(code: ReasonCode) -> str:
    return f"{code} (0x{code.value:02X})"
