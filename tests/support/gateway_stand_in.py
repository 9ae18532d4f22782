"""The gateway's side of docs/protocol.md in memory, for tests of a device: it stores, sends receipts and commands."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho

from agent.errors import InvalidMessage
from agent.wire import topics
from agent.wire.topics import Notice, Receipt, Refusal, ResultMessage, TopicKind, encode
from gateway.mqtt import read_readings, read_result, read_status
from tests.support.mosquitto import Mosquitto, end_client

SOON_S = 60.0


class GatewayStandIn:
    """Subscribes as a gateway does, and keeps what came.

    Attributes:
        readings: what was stored, by key or by a number for those without a key.
        repeats: how many readings came again under a key that was there.
        results: (command id, status) -> what was told.
        statuses: what devices said of themselves, in order.
        commands: open commands by id: sent when the device comes online, until a final result is there.
        confirms: False keeps the receipts back.
        tells_time: False sends a device that comes online no notice.
    """

    def __init__(self, broker: Mosquitto, *, confirms: bool = True, **login: str) -> None:
        self.readings: dict[Any, dict[str, float]] = {}
        self.repeats = 0
        self.results: dict[tuple[str, str], ResultMessage] = {}
        self.statuses: list[tuple[str, str]] = []
        self.commands: dict[str, dict[str, Any]] = {}
        self.confirms = confirms
        self.tells_time = True
        self.refuse: Callable[[dict[str, float]], bool] = lambda _values: False
        self._changed = threading.Condition()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, "gateway-1", protocol=paho.MQTTv5)
        if login:
            self._client.username_pw_set(login["user"], login["password"])
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._arrived
        self._client.on_socket_open = _send_at_once
        self._is_up = False
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        self.wait_until(lambda: self._is_up)

    def close(self) -> None:
        end_client(self._client)

    def wait_until(self, is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
        """Wait until something that came made it so."""
        with self._changed:
            assert self._changed.wait_for(is_so, within_s), f"not within {within_s} s: {self.__dict__}"

    def send(self, device_id: str, command_id: str, payload: dict[str, Any], **members: Any) -> None:
        """Send a command, now and at each time that the device comes online."""
        record = {
            "id": command_id,
            "device_id": device_id,
            "command_payload": payload,
            "status": "queued",
            "created_at": "2026-01-01T00:00:00Z",
            **members,
        }
        self.commands[command_id] = record
        self._publish_command(record)

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """Anything."""
        self._client.publish(topic, payload, qos)

    def status_of(self, device_id: str) -> str | None:
        """What the device said last."""
        return next((status for device, status in reversed(self.statuses) if device == device_id), None)

    def _connected(self, client: paho.Client, *_: Any) -> None:
        client.subscribe([(topic_filter, 1) for topic_filter in topics.GATEWAY_FILTERS])

    def _subscribed(self, *_: Any) -> None:
        with self._changed:
            self._is_up = True
            self._changed.notify_all()

    def _arrived(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        topic = topics.parse(message.topic)
        with self._changed:
            if topic.kind is TopicKind.SENSOR_DATA:
                self._store(topic.device_id, message.payload)
            elif topic.kind is TopicKind.RESULT and topic.command_id is not None:
                self._conclude(topic.device_id, topic.command_id, message.payload)
            elif topic.kind is TopicKind.STATUS:
                self._note(topic.device_id, message.payload)
            self._changed.notify_all()

    def _store(self, device_id: str, payload: bytes) -> None:
        readings, refused = read_readings(payload)
        stored: list[str] = []
        for reading in readings:
            values = dict(reading.sensor_data)
            if self.refuse(values) and reading.key is not None:
                refused.append(Refusal(key=reading.key, error="validation_error", message="not this one"))
                continue
            self.repeats += reading.key in self.readings
            self.readings[reading.key or len(self.readings)] = values
            stored += [reading.key] if reading.key else []
        self._confirm(device_id, Receipt(stored=tuple(stored), refused=tuple(refused)))

    def _conclude(self, device_id: str, command_id: str, payload: bytes) -> None:
        result = read_result(payload)
        if isinstance(result, Refusal):
            self._confirm(device_id, Receipt(refused=(result,)))
            return
        self.results[command_id, result.status] = result
        if result.status != "in_progress":
            self.commands.pop(command_id, None)
        if result.key is not None:
            self._confirm(device_id, Receipt(stored=(result.key,)))

    def _note(self, device_id: str, payload: bytes) -> None:
        try:
            status = read_status(payload).status
        except InvalidMessage:
            return
        self.statuses.append((device_id, status))
        if status == "online":
            if self.tells_time:
                self._client.publish(topics.notice(device_id), encode(Notice(time=time.time())), 0)
            for record in list(self.commands.values()):
                if record["device_id"] == device_id:
                    self._publish_command(record)

    def _confirm(self, device_id: str, receipt: Receipt) -> None:
        if self.confirms and (receipt.stored or receipt.refused):
            self._client.publish(topics.receipts(device_id), encode(receipt), 1)

    def _publish_command(self, record: dict[str, Any]) -> None:
        self._client.publish(topics.command(record["device_id"], record["id"]), json.dumps(record), 1)


def _send_at_once(_client: paho.Client, _data: Any, connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
