"""The MQTT front: a message is acknowledged to the broker once the service has it, so the broker's queue is the store.

For a message of a device: service first, receipt second, PUBACK last (see :mod:`agent.wire.topics`). What the
service cannot take now stays unacknowledged and is tried again here; after a lost connection the broker sends it again.
paho has a thread of its own; it hands each message to the event loop, where everything else happens.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakValueDictionary

from pydantic import ValidationError

from agent.errors import ErrorAnswer, InvalidMessage, LockedOut, NotFound, Offline, Refused, ServiceError
from agent.health import REPEAT_AFTER_S, FailureLog, RetryPolicy
from agent.transports.mqtt_connection import (
    Arrival,
    Broker,
    Message,
    MqttConnection,
    Role,
    Session,
    Tls,
    try_connection,
)
from agent.wire import topics
from agent.wire.encoding import encode_json, parse_json
from agent.wire.limits import BATCH_MAX, BODY_BYTES
from agent.wire.models import CommandResult, JsonObject, describe_faults
from agent.wire.secret import Secret, never_show
from agent.wire.server import KEY_REUSED
from agent.wire.topics import (
    KEY_CHARACTERS,
    Notice,
    ReadingMessage,
    Receipt,
    Refusal,
    ResultMessage,
    StatusMessage,
    TopicKind,
    encode,
)
from gateway.commands import Commands, seconds_left
from gateway.config import MqttFrontConfig
from gateway.readings import Reading, Uplink
from gateway.service import Service, Unavailable
from gateway.tokens import Tokens

_log = logging.getLogger(__name__)

RECEIVE_MAXIMUM: Final = 2 * BATCH_MAX
"""Messages that the broker sends before it waits for acknowledgements: one batch fills while another is sent."""
SESSION_S: Final = 3600
"""How long the broker keeps devices' messages for a gateway that is away, seconds."""
NOTICE_S: Final = 60.0
"""How long a device is asked to hold readings back while the service takes none, and how often it is asked, seconds."""
_RECONNECT_MAX_S: Final = 10.0  # short: it is one client, and all devices wait for it
_RETRY_S: Final = 1.0
_RETRY_MAX_S: Final = 30.0
_POST_AGAIN_S: Final = 0.02
_NOTICED_MAX: Final = 10_000
_STATUS_WORDS: Final = {b"online", b"offline"}
_HERE: Final = Message(topics.GATEWAY_STATUS, encode(StatusMessage(status="online")), retain=True)
_AWAY: Final = replace(_HERE, payload=encode(StatusMessage(status="offline")))


# --- what devices send, read ------------------------------------------------------------------------------------------


def read_readings(raw: bytes) -> tuple[list[ReadingMessage], list[Refusal]]:
    """The readings of a ``sensor-data`` message, each checked alone: a bad one spoils no other. Never raises."""
    try:
        value = parse_json(raw, max_bytes=BODY_BYTES)
    except InvalidMessage as error:
        return [], [Refusal(error="invalid_json", message=str(error))]
    items = value if isinstance(value, list) else [value]
    if len(items) > BATCH_MAX:
        text = f"{len(items)} readings in one message are more than {BATCH_MAX}: send several messages"
        return [], [Refusal(error="too_many_readings", message=text)]
    readings: list[ReadingMessage] = []
    refused: list[Refusal] = []
    for item in items:
        try:
            readings.append(ReadingMessage.model_validate(item))
        except ValidationError as error:
            refused.append(Refusal(key=_key_of(item), error="validation_error", message=describe_faults(error)))
    return readings, refused


def read_result(raw: bytes) -> ResultMessage | Refusal:
    """The result in a message, or what is wrong with it."""
    try:
        value = parse_json(raw, max_bytes=BODY_BYTES)
    except InvalidMessage as error:
        return Refusal(error="invalid_json", message=str(error))
    try:
        return ResultMessage.model_validate(value)
    except ValidationError as error:
        return Refusal(key=_key_of(value), error="validation_error", message=describe_faults(error))


def read_status(raw: bytes) -> StatusMessage:
    """Parse a status message.

    Raises:
        InvalidMessage: neither one of the two words nor an object with ``status``.
    """
    if raw in _STATUS_WORDS:
        return StatusMessage.receive({"status": raw.decode()})
    return StatusMessage.receive(parse_json(raw))


def _key_of(item: Any) -> str | None:
    key = item.get("key") if isinstance(item, dict) else None
    return key if isinstance(key, str) and 0 < len(key) <= KEY_CHARACTERS else None


# --- the front --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class MqttFront:
    """Serves devices behind a broker, for one event loop.

    Attributes:
        service: what the gateway says of its clock.
        uplink: takes readings and results.
        commands: has the open commands.
        tokens: says which devices are served; messages of others are dropped and counted.
        counts: what happened, by name.
    """

    config: MqttFrontConfig
    service: Service
    uplink: Uplink
    commands: Commands
    tokens: Tokens
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failure_log = FailureLog(_log, time.monotonic, REPEAT_AFTER_S)
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._result_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._noticed: OrderedDict[str, float] = OrderedDict()
        # device -> whether to publish all its commands again; device -> what was published over this connection
        self._to_publish: dict[str, bool] = {}
        self._has_work = asyncio.Event()
        self._published: dict[str, set[str]] = {}
        self._connection = MqttConnection(
            broker_of(self.config),
            token=self._password,
            role=Role(
                subscriptions=tuple((each, 1) for each in topics.GATEWAY_FILTERS),
                on_arrival=lambda arrival: self._call(self._arrived, arrival),
                on_up=self._came_up,
                will=_AWAY,
                retained=True,
            ),
            waits=RetryPolicy(random.SystemRandom().random, cap_s=_RECONNECT_MAX_S),
            on_down=lambda error, wait_s: self._call(self._went_down, error, wait_s),
        )
        self.commands.on_change = self._changed

    def start(self) -> asyncio.Task[None]:
        """Begin; connecting goes on in the background. Returns the task that publishes commands until :meth:`stop`."""
        self._connection.start()
        return self._start(self._publish_commands(), "mqtt")

    async def stop(self) -> None:
        """Publish that the gateway goes offline, and end. Messages without acknowledgement come again later."""
        await asyncio.to_thread(self._connection.stop, _AWAY)
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def state(self) -> tuple[str, str]:
        """State of the connection: ``ok``, or a word and a sentence."""
        if self._connection.is_up:
            return "ok", ""
        trouble = self._connection.trouble
        return trouble.state, explain(trouble, self._connection.broker)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """From paho's thread: have it called in the event loop."""
        with suppress(RuntimeError):  # the loop has ended, and the gateway with it
            self._loop.call_soon_threadsafe(function, *arguments)

    def _came_up(self, session: Session) -> None:
        session.post(_HERE)
        self._call(self._connected, session)

    def _password(self) -> Secret:
        try:
            return read_password(self.config)
        except OSError as error:
            path = self.config.password_file
            self._call(self._complain, "password_unreadable", f"mqtt.password_file {path} cannot be read: {error}")
            return Secret("")

    def _connected(self, session: Session) -> None:
        self._session = session
        text = f"mqtt=connected {self._connection.broker}, MQTT {self._connection.broker.version}"
        self._failure_log.report("connected", text, level=logging.INFO)
        # What was published over the last connection may be lost, and what was canceled since is taken back.
        for device_id in {*self.commands.busy_devices(), *self._published}:
            self._changed(device_id, again=True)

    def _went_down(self, error: Offline, wait_s: float) -> None:
        self._session = None
        text = f"{explain(error, self._connection.broker)}; next try in {wait_s:.0f} s"
        self._complain(error.state, text)

    # --- what devices send --------------------------------------------------------------------------------------------

    def _arrived(self, arrival: Arrival) -> None:
        self._session = arrival.session  # kept messages come before the subscriptions are confirmed
        try:
            topic = topics.parse(arrival.topic)
            is_served = self.tokens.serves(topic.device_id)
        except InvalidMessage as error:
            self._drop(arrival, "bad_topic", str(error))
            return
        except sqlite3.Error as error:
            self._complain("tokens_unreadable", f"messages wait until the file of tokens can be read: {error}")
            self._loop.call_later(_RETRY_S, self._arrived_again, arrival)
            return
        if not is_served:
            self._drop(arrival, "unknown_device", f"device {topic.device_id[:80]} has no token here: issue one")
        elif arrival.retain and topic.kind is not TopicKind.STATUS:
            arrival.acknowledge()  # a retained copy, sent at each connection: the message itself has come before
        elif topic.kind is TopicKind.SENSOR_DATA:
            self.counts["messages"] += 1
            self._start(self._take_readings(arrival, topic.device_id))
        elif topic.kind is TopicKind.RESULT:
            self.counts["messages"] += 1
            self._start(self._take_result(arrival, topic.device_id, topic.command_id or ""))
        else:
            self._take_status(arrival, topic.device_id)

    def _arrived_again(self, arrival: Arrival) -> None:
        if arrival.session is self._session:
            self._arrived(arrival)

    async def _take_readings(self, arrival: Arrival, device_id: str) -> None:
        messages, refused = read_readings(arrival.payload)
        readings = [Reading(device_id, each.sensor_data, each.recorded_at, each.key) for each in messages]

        async def send() -> None:
            try:
                await self.uplink.send(readings)
            except ServiceError:
                self._hold_readings(device_id)
                raise

        if not await self._until_taken(arrival, send):
            return
        stored = []
        for each in readings:
            why = each.rejection
            # The service knows the key with another body: only the time differs, guessed by a device without a clock.
            if why is not None and (each.key is None or why.error != KEY_REUSED):
                refused.append(Refusal(key=each.key, error=why.error, message=why.message))
            elif each.key is not None:
                stored.append(each.key)
        await self._settle(arrival, device_id, stored, refused)

    async def _take_result(self, arrival: Arrival, device_id: str, command_id: str) -> None:
        message = read_result(arrival.payload)
        if isinstance(message, Refusal):
            await self._settle(arrival, device_id, [], [message])
            return
        result = CommandResult(status=message.status, result=message.result, error=message.error)
        refused: list[Refusal] = []

        async def send() -> None:
            try:
                await self.uplink.send_result(device_id, command_id, result)
            except Refused as why:
                refused.append(Refusal(key=message.key, error=why.error, message=why.message))

        # Progress and final result of a command are never sent at the same time.
        async with self._result_turns.setdefault(device_id, asyncio.Lock()):
            is_taken = await self._until_taken(arrival, send)
        if is_taken:
            if not refused and result.status != "in_progress":
                self.commands.concluded(device_id, command_id)
            await self._settle(arrival, device_id, [] if refused or not message.key else [message.key], refused)

    def _take_status(self, arrival: Arrival, device_id: str) -> None:
        try:
            status = read_status(arrival.payload)
        except InvalidMessage as error:
            self._drop(arrival, "bad_status", f"device {device_id[:80]}: {error}")
            return
        if status.status == "online":
            self._notify(device_id)
            # For a device that has just come, ask the service at once; for those that were there before, in turn.
            self.commands.came(device_id, soon=not arrival.retain)
            if not arrival.retain:
                self.tokens.note_device(device_id)
            self._changed(device_id, again=True)
        else:
            self.commands.left(device_id)
        arrival.acknowledge()

    # --- what becomes of a message ------------------------------------------------------------------------------------

    async def _until_taken(self, arrival: Arrival, send: Callable[[], Awaitable[None]]) -> bool:
        """Try until the service has taken or refused it; False when the connection it came over has ended."""
        wait_s = _RETRY_S
        while arrival.session is self._session:
            try:
                await send()
            except ServiceError as error:
                retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer | Unavailable) else None
                self._complain("held_back", f"messages wait for the service: {error}", type(error).__name__)
                await asyncio.sleep(min(retry_after_s or wait_s, _RETRY_MAX_S))
                wait_s = min(2 * wait_s, _RETRY_MAX_S)
            else:
                return True
        return False

    def _hold_readings(self, device_id: str) -> None:
        """Ask the device, at most once a minute, to hold its readings back, so that the broker's queue stays short."""
        if time.monotonic() - self._noticed.get(device_id, float("-inf")) >= NOTICE_S:
            self._notify(device_id, NOTICE_S)

    async def _settle(self, arrival: Arrival, device_id: str, stored: list[str], refused: list[Refusal]) -> None:
        """Acknowledge what is stored or refused: first the receipt, so a crash in between only makes it come again."""
        for refusal in refused:
            self._complain(refusal.error, f"device {device_id[:80]}: {refusal.message}")
        if stored or refused:
            receipt = Receipt(stored=tuple(dict.fromkeys(stored)), refused=tuple(refused))
            if not await self._post(Message(topics.receipts(device_id), encode(receipt))):
                return  # the connection has ended, and the message comes again over the next one
        arrival.acknowledge()

    def _drop(self, arrival: Arrival, word: str, text: str) -> None:
        self._complain(word, f"a message is dropped: {text}")
        arrival.acknowledge()

    async def _post(self, message: Message) -> bool:
        """Hand a message to the broker, and wait while it takes no more; False when the connection has ended."""
        session = self._session
        while session is not None and session is self._session:
            if session.post(message):
                return True
            await asyncio.sleep(_POST_AGAIN_S)
        return False

    def _notify(self, device_id: str, retry_after_s: float | None = None) -> None:
        """Send the device the service's time, and how long to hold readings back; this message may be lost."""
        notice = Notice(time=self.service.now(), retry_after_s=retry_after_s)
        if self._session is not None:
            self._session.post(Message(topics.notice(device_id), encode(notice), qos=0))
        if retry_after_s is not None:
            self._noticed[device_id] = time.monotonic()
            self._noticed.move_to_end(device_id)
            if len(self._noticed) > _NOTICED_MAX:
                self._noticed.popitem(last=False)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _changed(self, device_id: str, *, again: bool = False) -> None:
        """Publish the device's open commands soon; with ``again`` also those that were published before."""
        self._to_publish[device_id] = again or self._to_publish.get(device_id, False)
        self._has_work.set()

    async def _publish_commands(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._session is not None and self._to_publish:
                device_id = next(iter(self._to_publish))
                await self._publish(device_id, again=self._to_publish.pop(device_id))

    async def _publish(self, device_id: str, *, again: bool) -> None:
        before = self._published.get(device_id, set())
        now_open: dict[str, JsonObject] = {each["id"]: each for each in self.commands.known(device_id)}
        done = set() if again else before & now_open.keys()
        vanished = before - now_open.keys()
        if vanished:
            self._start(self._take_back(device_id, vanished))
        for command_id, record in now_open.items():
            if command_id not in done:
                if not await self._post_command(device_id, record):
                    return  # all go out again over the next connection
                done.add(command_id)
        if done:
            self._published[device_id] = done
        else:
            self._published.pop(device_id, None)

    async def _take_back(self, device_id: str, vanished: set[str]) -> None:
        """Tell the device which of the commands that are no longer open were canceled."""
        while self._session is not None:
            left = {each for each in vanished if not self.commands.has_concluded(device_id, each)}
            try:
                canceled = await self.commands.canceled(device_id, left) if left else []
            except NotFound:
                return
            except ServiceError:
                await asyncio.sleep(_RETRY_MAX_S)
                continue
            for record in canceled:
                await self._post_command(device_id, record)
            return

    async def _post_command(self, device_id: str, record: JsonObject) -> bool:
        left_s = seconds_left(record, self.service.now())
        is_over = left_s is not None and left_s <= 0
        if is_over and record["status"] != "canceled":
            return True  # it ended while those before it were posted
        try:
            topic = topics.command(device_id, record["id"])
        except InvalidMessage:
            return True  # its id fits into no topic: the device gets it over HTTP
        expiry_s = None if left_s is None or is_over else max(1, int(left_s))
        is_posted = await self._post(Message(topic, encode_json(record), expiry_s=expiry_s))
        self.counts["commands_published"] += is_posted
        return is_posted

    # --- inside -------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("mqtt=failed a fault of the program: report this as a bug", exc_info=task.exception())

    def _complain(self, word: str, text: str, kind: str = "") -> None:
        self.counts[word] += 1
        self._failure_log.report(f"{word} {kind}", f"mqtt={word} {text}")


def explain(error: Offline, broker: Broker) -> str:
    """The error in words for whoever runs the gateway; the connection's own are written for a device."""
    if error.state == "taken_over":
        return (
            f"another client takes the gateway's client id {broker.client_id} at {broker}, or the broker restarts "
            "again and again: run one gateway at this broker"
        )
    if isinstance(error, LockedOut):
        return (
            f"the broker {broker} refuses the gateway ({error.state}): check mqtt.user_name, mqtt.password_file and "
            "the broker's access rules (device-gateway broker-config writes them)"
        )
    return str(error)


def read_password(config: MqttFrontConfig) -> Secret:
    """The gateway's password at the broker as it is now.

    Raises:
        OSError: its file cannot be read.
    """
    text = "" if config.password_file is None else config.password_file.read_text("utf-8").strip()
    never_show(text)
    return Secret(text)


def check_broker_port(config: MqttFrontConfig) -> str | None:
    """Connect once and leave: why the gateway could not, or None when it can."""
    try:
        password = read_password(config)
    except OSError as error:
        return f"mqtt.password_file {config.password_file} cannot be read: {error.strerror}"
    broker = replace(broker_of(config), session_expiry_s=0)
    trouble = try_connection(broker, password)
    return None if trouble is None else explain(trouble, broker)


def broker_of(config: MqttFrontConfig) -> Broker:
    """The section ``mqtt`` as the connection takes it."""
    return Broker(
        config.host,
        config.port,
        config.user_name,
        version=config.version,
        tls=Tls(config.ca_file) if config.tls else None,
        keepalive_s=30,
        session_expiry_s=SESSION_S,
        receive_maximum=RECEIVE_MAXIMUM,
        user_name=config.user_name,
    )
