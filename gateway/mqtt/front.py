"""The MQTT front: passes what devices publish to the backend, and publishes their commands to them.

Each message from a device is acknowledged to the broker only when the backend has committed it (or never will), after
the receipt that the device waits for: see :mod:`agent.wire.mqtt_messages`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from agent.adapters.mqtt_connection import MqttConnection
from agent.adapters.mqtt_session import Arrival, Broker, Message, Role, Session, Tls
from agent.errors import InvalidMessage, LockedOut, Offline, StorageError
from agent.ports import Clock
from agent.runtime.failure_log import FailureLog
from agent.runtime.retry_policy import RetryPolicy
from agent.threads import OnCrash, WatchedThread, only_logged
from agent.wire import topics
from agent.wire.commands import CommandResult
from agent.wire.mqtt_messages import Receipt, Refusal, read_readings, read_result, read_status
from agent.wire.secret import Secret, never_show
from agent.wire.times import parse_time
from agent.wire.topics import Topic, TopicKind
from gateway.config import MqttFrontConfig
from gateway.mqtt.notices import NoticeSender
from gateway.mqtt.outgoing import CommandPublisher
from gateway.mqtt.receipts import ReceiptSender
from gateway.ports import DeviceBackend, FrontStatus, NewReading, Transport, UnknownCommand

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0
# One client, and all devices wait for it: no reason to spare the broker more than this.
_RECONNECT_MAX_S: Final = 10.0
# A broker without a bound of its own (3.1.1) must not fill the memory with what the store does not take.
_HELD_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Where the broker is and who the gateway is there.

    Attributes:
        client_id: differs from gateway to gateway.
        password_file: None without a password; read again for each connection.
    """

    host: str
    port: int
    client_id: str
    user_name: str | None = None
    password_file: Path | None = None
    tls: Tls | None = None
    version: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive_s: int = 30
    session_expiry_s: int = 3600


def mqtt_settings(mqtt: MqttFrontConfig, client_id: str) -> MqttSettings:
    """The section ``mqtt`` as settings of the front."""
    return MqttSettings(
        host=mqtt.host,
        port=mqtt.port,
        client_id=client_id,
        user_name=mqtt.user_name,
        password_file=mqtt.password_file,
        tls=Tls(mqtt.ca_file, mqtt.cert_file, mqtt.key_file) if mqtt.tls else None,
        version=mqtt.version,
        keepalive_s=mqtt.keepalive_s,
        session_expiry_s=mqtt.session_expiry_s,
    )


@dataclass(slots=True)
class _Held:
    """A message that the store did not take; it stays unacknowledged and is tried again."""

    due_s: float
    try_again: Callable[[], None] = field(repr=False)


class MqttFront:
    """A :class:`~gateway.ports.Front` for devices behind a broker.

    Args:
        settings: where the broker is.
        backend: takes what devices give.
        serves: whether a device has a token here; messages of others are dropped and counted.
        devices: all of them with a token here.
        clock: for waiting.
        fraction: random numbers in [0, 1), for back-off.
        service_now: the service's clock, seconds since the epoch, which devices are sent; None takes this machine's.
        repeat_after_s: how soon the same failure may be logged again, seconds.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    name = "mqtt"

    def __init__(
        self,
        settings: MqttSettings,
        backend: DeviceBackend,
        *,
        serves: Callable[[str], bool],
        devices: Callable[[], Collection[str]],
        clock: Clock,
        fraction: Callable[[], float],
        service_now: Callable[[], float] | None = None,
        repeat_after_s: float = 300.0,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._serves = serves
        self._devices = devices
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._failure_log = FailureLog(_log, self._now_s, repeat_after_s)
        self._held: list[_Held] = []
        self._stopping = threading.Event()
        self._connection = MqttConnection(
            _broker(settings),
            token=self._password,
            version=settings.version,
            role=Role(
                subscriptions=tuple((each, 1) for each in topics.GATEWAY_FILTERS),
                on_arrival=self._arrived,
                on_up=self._on_connected,
            ),
            waits=RetryPolicy(fraction, cap_s=_RECONNECT_MAX_S),
            on_down=self._went_down,
            on_crash=on_crash,
        )
        self._notices = NoticeSender(backend, self._post, clock, service_now)
        self._publisher = CommandPublisher(
            backend,
            self._post,
            lambda: self._connection.is_up,
            service_now or (lambda: clock.now().wall_s),
            self._notices.notify,
            on_crash=on_crash,
        )
        self._receipts = ReceiptSender(
            self._post, self._connection.acknowledge, lambda: self._connection.is_up, on_crash
        )
        self._thread = WatchedThread(self._run, name="mqtt-retry", on_crash=on_crash)

    # --- Front ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; returns once devices can be served or, for a broker, once connecting has begun.

        See :meth:`gateway.ports.Front.start`; connecting goes on in the background.
        """
        self._publisher.start()
        self._receipts.start()
        self._thread.start()
        self._connection.start()

    def stop(self, timeout_s: float) -> bool:
        """Take nothing new, end what is held, and return; True when all threads have ended in time.

        See :meth:`gateway.ports.Front.stop`. What is not acknowledged comes again.
        """
        self._stopping.set()
        self._connection.stop()
        ended = self._publisher.stop(timeout_s)
        ended = self._receipts.stop(timeout_s) and ended
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
            ended = ended and not self._thread.is_alive()
        return ended

    def status(self) -> FrontStatus:
        """How it does. See :meth:`gateway.ports.Front.status`."""
        with self._lock:
            counts = dict(self._counts)
            counts["held_back"] = len(self._held)
        if self._connection.is_up:
            return FrontStatus("connected", f"MQTT {self._connection.version} at {self._connection.broker}", counts)
        trouble = self._connection.trouble
        return FrontStatus(trouble.state, explain(trouble, self._connection.broker), counts)

    # --- the connection -------------------------------------------------------------------------------------------

    def _password(self) -> Secret:
        try:
            return read_password(self._settings)
        except OSError as error:
            path = self._settings.password_file
            self._log_failure("password", f"mqtt=password_unreadable mqtt.password_file {path} cannot be read: {error}")
            return Secret("")

    def _on_connected(self, session: Session) -> None:
        # Not settled here: where the broker flaps, each turn would be logged.
        text = f"mqtt=connected {self._connection.broker}, MQTT {session.version}"
        self._log_failure("connected", text, logging.INFO)
        self._publisher.publish_all()
        self._notices.greet(self._devices())

    def _went_down(self, error: Offline, wait_s: float) -> None:
        self._count("connections_lost")
        text = f"mqtt={error.state} {explain(error, self._connection.broker)}; next try in {wait_s:.0f} s"
        self._log_failure(f"broker {error.state}", text)

    # --- what devices send ----------------------------------------------------------------------------------------

    def _arrived(self, arrival: Arrival, *, again: bool = False) -> None:
        try:
            topic = topics.parse(arrival.topic)
        except InvalidMessage as error:
            self._drop(arrival, "bad_topic", str(error))
            return
        if not self._serves(topic.device_id):
            # A token that was issued a moment ago is not known here yet.
            if not again and self._hold(lambda: self._arrived(arrival, again=True)):
                return
            self._drop(arrival, "unknown_device", f"device {topic.device_id[:80]} has no token here: issue one")
            return
        self._count("messages")
        if topic.kind is TopicKind.SENSOR_DATA:
            self._take_readings(arrival, topic)
        elif topic.kind is TopicKind.RESULT:
            self._take_result(arrival, topic)
        else:
            self._take_status(arrival, topic)

    def _take_readings(self, arrival: Arrival, topic: Topic) -> None:
        device_id = topic.device_id
        batch = read_readings(arrival.payload)
        self._note_refusals(device_id, batch.refused)
        readings = [
            NewReading(each.sensor_data, None if each.recorded_at is None else parse_time(each.recorded_at), each.key)
            for each in batch.readings
        ]
        self._backend.seen(device_id, Transport.MQTT)
        if not readings:
            self._settle(arrival, device_id, Receipt(refused=batch.refused))
            return
        keys = tuple(each.key for each in readings if each.key is not None)
        # A device that gives keys comes again by itself when no receipt comes.
        may_forget = len(keys) == len(readings)

        def done(ended: Future[int]) -> None:
            error = ended.exception()
            if error is None:
                self._settle(arrival, device_id, Receipt(stored=keys, refused=batch.refused))
            else:
                self._not_taken(arrival, device_id, error, may_forget=may_forget, try_again=try_once)

        def try_once() -> None:
            self._backend.take_readings(device_id, readings).add_done_callback(done)

        try_once()
        self._notices.hint(device_id)

    def _take_result(self, arrival: Arrival, topic: Topic) -> None:
        device_id, command_id = topic.device_id, topic.command_id or ""
        message = read_result(arrival.payload)
        self._backend.seen(device_id, Transport.MQTT)
        if isinstance(message, Refusal):
            self._note_refusals(device_id, [message])
            self._settle(arrival, device_id, Receipt(refused=(message,)))
            return
        key = message.key
        result = CommandResult(status=message.status, result=message.result, error=message.error)

        def done(ended: Future[Any]) -> None:
            error = ended.exception()
            if isinstance(error, UnknownCommand):
                refusal = Refusal(key=key, error="command_not_found", message=str(error))
                self._note_refusals(device_id, [refusal])
                self._settle(arrival, device_id, Receipt(refused=(refusal,)))
            elif error is None:
                self._settle(arrival, device_id, Receipt(stored=() if key is None else (key,)))
            else:
                self._not_taken(arrival, device_id, error, may_forget=key is not None, try_again=try_once)

        def try_once() -> None:
            self._backend.take_result(device_id, command_id, result).add_done_callback(done)

        try_once()

    def _take_status(self, arrival: Arrival, topic: Topic) -> None:
        device_id = topic.device_id
        if arrival.retain:
            self._connection.acknowledge(arrival)  # it was said before this connection
            return
        try:
            status = read_status(arrival.payload)
        except InvalidMessage as error:
            self._drop(arrival, "bad_status", f"device {device_id[:80]}: {error}")
            return
        online = status.status == "online"
        self._backend.seen(device_id, Transport.MQTT, online=online)
        if online:
            self._notices.notify(device_id)
            self._publisher.publish(device_id, again=True)
        self._connection.acknowledge(arrival)

    # --- what becomes of a message --------------------------------------------------------------------------------

    def _settle(self, arrival: Arrival, device_id: str, receipt: Receipt) -> None:
        """Acknowledge what is stored, or never will be: the receipt first, so that a crash in between only repeats."""
        if receipt.stored or receipt.refused:
            self._receipts.send(device_id, receipt, arrival)
        else:
            self._connection.acknowledge(arrival)

    def _not_taken(
        self,
        arrival: Arrival,
        device_id: str,
        error: BaseException,
        *,
        may_forget: bool,
        try_again: Callable[[], None],
    ) -> None:
        if not isinstance(error, StorageError):
            # The service does not know the device; no receipt, so one with an outbox keeps what it has.
            self._drop(arrival, "not_taken", f"device {device_id[:80]}: {error}")
            return
        self._count("store_refused")
        self._log_failure("store", f"mqtt=store_refused messages wait: {error}")
        if may_forget:
            self._connection.acknowledge(arrival)
            return
        self._hold(try_again)

    def _hold(self, try_again: Callable[[], None]) -> bool:
        """Keep a message unacknowledged for a while; False when too many are kept: the broker sends it again later."""
        with self._lock:
            has_room = len(self._held) < _HELD_MAX
            if has_room:
                self._held.append(_Held(self._now_s() + _RETRY_S, try_again))
            return has_room

    def _drop(self, arrival: Arrival, word: str, text: str) -> None:
        self._count(word)
        self._log_failure(word, f"mqtt={word} a message is dropped: {text}")
        self._connection.acknowledge(arrival)

    def _note_refusals(self, device_id: str, refusals: Sequence[Refusal]) -> None:
        for refusal in refusals:
            self._count(refusal.error)
            text = f"mqtt={refusal.error} device {device_id[:80]}: {refusal.message}"
            self._log_failure(f"{refusal.error} {device_id}", text)

    def _run(self) -> None:
        while not self._stopping.wait(_RETRY_S / 2):
            self._notices.greet_some()
            now_s = self._now_s()
            with self._lock:
                due = [held for held in self._held if held.due_s <= now_s]
                self._held = [held for held in self._held if held.due_s > now_s]
            for held in due:
                held.try_again()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _post(self, message: Message) -> bool:
        return self._connection.post(message)

    def _count(self, word: str) -> None:
        with self._lock:
            self._counts[word] += 1

    def _log_failure(self, topic: str, text: str, level: int = logging.WARNING) -> None:
        with self._lock:
            self._failure_log.report(topic, text, level=level)

    def _now_s(self) -> float:
        return self._clock.now().monotonic_s


def explain(error: Offline, broker: Broker) -> str:
    """The error in words for whoever runs the gateway; the connection's own are written for a device."""
    if error.state == "taken_over":
        return (
            f"another client takes the gateway's client id {broker.client_id} at {broker}, or the broker restarts "
            "again and again: give each gateway a state_dir, or an mqtt.client_id, of its own"
        )
    if isinstance(error, LockedOut):
        return (
            f"the broker {broker} refuses the gateway ({error.state}): check mqtt.user_name, mqtt.password_file and "
            "the broker's access rules (device-gateway broker-config writes them)"
        )
    return str(error)


def read_password(settings: MqttSettings) -> Secret:
    """The gateway's password at the broker as it is now.

    Raises:
        OSError: its file cannot be read.
    """
    text = "" if settings.password_file is None else settings.password_file.read_text("utf-8").strip()
    never_show(text)
    return Secret(text)


def check_broker_port(settings: MqttSettings) -> str | None:
    """Connect once and leave: why the gateway could not, or None when it can."""
    try:
        password = read_password(settings)
    except OSError as error:
        return f"mqtt.password_file {settings.password_file} cannot be read: {error.strerror}"
    broker = replace(_broker(settings), session_expiry_s=0)
    role = Role((), lambda _arrival: None, on_up=lambda session: session.end())
    session = Session(broker, password, "3.1.1" if settings.version == "3.1.1" else "5", role)
    trouble = session.run()
    if trouble.state == "unsupported_version" and settings.version == "auto":
        session = Session(broker, password, "3.1.1", role)
        trouble = session.run()
    return explain(trouble, broker) if session.up_at_s is None else None


def _broker(settings: MqttSettings) -> Broker:
    return Broker(
        settings.host,
        settings.port,
        settings.client_id,
        tls=settings.tls,
        keepalive_s=settings.keepalive_s,
        session_expiry_s=settings.session_expiry_s,
        user_name=settings.user_name,
    )
