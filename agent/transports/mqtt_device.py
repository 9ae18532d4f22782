"""A device on MQTT: one connection, and the command source and the uplink that share it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from agent.core.values import Moment
from agent.errors import InvalidMessage, Offline
from agent.runtime.retry_policy import RetryPolicy
from agent.threads import OnCrash, only_logged
from agent.transports.mqtt_connection import Arrival, Broker, Message, MqttConnection, Role, Session, Version
from agent.transports.mqtt_source import FirstPush, MqttSource
from agent.transports.mqtt_uplink import MqttUplink
from agent.wire import topics
from agent.wire.mqtt_messages import Notice, Refusal, StatusMessage, encode, read_notice, read_receipt
from agent.wire.secret import Secret
from agent.wire.topics import TopicKind

if TYPE_CHECKING:
    from agent.ports import Clock


_log = logging.getLogger(__name__)


def subscriptions_of(device_id: str) -> tuple[tuple[str, int], ...]:
    """What a device subscribes to: (filter, QoS)."""
    return (topics.commands_filter(device_id), 1), (topics.receipts(device_id), 1), (topics.notice(device_id), 0)


class MqttDevice:
    """The device's side of docs/protocol.md.

    Args:
        broker: where; its client id is :func:`agent.wire.topics.user_name` of the device.
        device_id: who.
        firmware_version: sent with ``online`` and ``offline``.
        token: the device token as it is now.
        version: see :class:`~agent.transports.mqtt_connection.MqttConnection`.
        clock, receipts, timeout_s, wall_of: see :class:`~agent.transports.mqtt_uplink.MqttUplink`.
        waits: between two attempts to connect.
        first_s: how long after the start the first attempt comes, seconds.
        first_push: see :class:`~agent.transports.mqtt_source.MqttSource`.
        on_up: the connection stands; called in its thread.
        on_down: it does not, with the reason and the wait before the next attempt, seconds; likewise.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    def __init__(
        self,
        broker: Broker,
        device_id: str,
        *,
        firmware_version: str,
        token: Callable[[], Secret],
        clock: Clock,
        waits: RetryPolicy,
        version: Literal["auto", "5", "3.1.1"] = "auto",
        receipts: bool = True,
        timeout_s: float = 30.0,
        wall_of: Callable[[Moment], float | None] = lambda moment: moment.wall_s,
        first_s: float = 0.0,
        first_push: FirstPush | None = None,
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[Offline, float], None] = lambda _error, _wait_s: None,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._on_up = on_up
        self._on_down = on_down
        self.on_notice: Callable[[Notice], None] = lambda _notice: None
        """Called with each hint of the gateway, in the connection's thread."""
        status = topics.status(device_id)
        online, offline = (
            Message(status, encode(StatusMessage(status=word, firmware_version=firmware_version)), retain=True)
            for word in ("online", "offline")
        )
        self._farewell = offline
        role = Role(
            subscriptions=subscriptions_of(device_id),
            on_arrival=self._arrived,
            on_up=self._on_connected,
            greeting=online,
            will=offline,
        )
        self.connection = MqttConnection(
            broker,
            token=token,
            version=version,
            role=role,
            waits=waits,
            first_s=first_s,
            on_down=self._went_down,
            on_crash=on_crash,
        )
        self.source = MqttSource(self.connection, device_id, clock, broker.max_packet_bytes, first_push or FirstPush())
        self.uplink = MqttUplink(
            self.connection, device_id, clock, receipts=receipts, timeout_s=timeout_s, wall_of=wall_of
        )

    def start(self) -> None:
        """Begin to connect to the broker; returns at once."""
        self.connection.start()

    def stop(self) -> None:
        """Say that this device goes, and disconnect. The broker keeps what comes meanwhile."""
        self.connection.stop(self._farewell)
        self._wake()

    def _arrived(self, arrival: Arrival) -> None:
        try:
            kind = topics.parse(arrival.topic).kind
        except InvalidMessage:
            kind = None
        if kind is TopicKind.COMMAND:
            self.source.arrived(arrival)
            return
        try:
            if kind is TopicKind.RECEIPTS:
                self._receipted(arrival.payload)
            elif kind is TopicKind.NOTICE:
                self._noticed(arrival.payload)
        except InvalidMessage as error:
            _log.warning("broker=malformed a message on %s is skipped: %s", arrival.topic, error)
        finally:
            if arrival.qos:
                self.connection.acknowledge(arrival)

    def _receipted(self, payload: bytes) -> None:
        receipt = read_receipt(payload)
        for refusal in receipt.refused:
            if refusal.key is None:
                _log_unnamed_refusal(refusal)
        self.uplink.receipted(receipt)

    def _noticed(self, payload: bytes) -> None:
        notice = read_notice(payload)
        if notice.time is not None:
            self.source.set_time(notice.time)
        if notice.retry_after_s is not None:
            self.uplink.hold_back(notice.retry_after_s)
        self.on_notice(notice)

    def _on_connected(self, _session: Session) -> None:
        self._on_up()

    def _went_down(self, error: Offline, wait_s: float) -> None:
        self._wake()
        self._on_down(error, wait_s)

    def _wake(self) -> None:
        self.source.went_down()
        self.uplink.went_down()


def _log_unnamed_refusal(refusal: Refusal) -> None:
    _log.warning("broker=refused the gateway did not understand a message: %s: %s", refusal.error, refusal.message)


def probe(broker: Broker, device_id: str, token: Secret, version: Literal["auto", "5", "3.1.1"]) -> Version:
    """Connect, subscribe, disconnect; the version that was spoken.

    What the broker keeps for the device stays there, and no ``online`` is sent. A running agent with
    the same id would lose its connection: ask only when there is none.

    Raises:
        Offline: it did not work, and why.
    """
    role = Role(
        subscriptions=subscriptions_of(device_id),
        on_arrival=lambda _arrival: None,  # not acknowledged, so the agent gets it
        on_up=lambda session: session.end(),
    )
    attempts: tuple[Version, ...] = ("5", "3.1.1") if version == "auto" else (version,)
    for attempt in attempts:
        session = Session(broker, token, attempt, role)
        error = session.run()
        if session.up_at_s is not None:
            return attempt
        if not session.was_connected or (session.was_answered and error.state != "unsupported_version"):
            break
    raise error
