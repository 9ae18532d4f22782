"""Source and uplink out of the configuration: over HTTP, over MQTT, or commands over both.

Each way is imported only when it is used: an agent on HTTP does not carry paho, nor one on MQTT httpx.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.core.admission import FIRST_CONTACT, lacks_time
from agent.core.backoff import CAP_S
from agent.core.values import Moment
from agent.errors import ConfigurationError, InvalidMessage
from agent.runtime.broker_watch import BrokerWatch
from agent.runtime.failure_log import REPEAT_AFTER_S
from agent.runtime.health import Health
from agent.runtime.retry_policy import RetryPolicy
from agent.wire.instances import INSTANCE_HEADER
from agent.wire.secret import Secret
from agent.wire.topics import user_name

if TYPE_CHECKING:
    from agent.app.instance import OwnInstance
    from agent.config.mqtt import MqttConfig
    from agent.core.listed import ListWatch
    from agent.ports import Clock, CommandSource, Uplink
    from agent.store.journal import Journal
    from agent.store.outbox import FoundOutbox
    from agent.threads import OnCrash
    from agent.transports.discovery import Discovery
    from agent.transports.hybrid_source import HybridSource
    from agent.transports.mqtt_connection import Broker
    from agent.transports.mqtt_device import MqttDevice
    from agent.wire.client import DeviceClient
    from agent.wire.mqtt_messages import Notice


_CONNECT_TIMEOUT_S: Final = 15.0
_LIST_EVERY_S: Final = 900.0
"""With a broker and a service: how often to ask over HTTP which commands are open, while the broker is there."""
_PUSH_WAIT_S: Final = 25.0
"""How long to wait for a push before looking again; it makes no request."""


def _nothing() -> None:
    """Some links have nothing to start and to stop."""


@dataclass(frozen=True, slots=True)
class LinkParts:
    """What the links need of the agent.

    Attributes:
        fraction: random numbers in [0, 1).
        wall_of: the time of a moment, epoch seconds; None when it is not known.
        on_time_known: calls once the time becomes known, from another thread.
        first_s: how long after the start the first contact comes, seconds.
        poll_is_set: a command set the poll interval, so no poll is held.
        on_connected: the other side is there again: back-offs have lost their reason. Called from another thread.
        found: the outbox as the earlier process left it.
        started: when this process began.
        instance: sent with each request as `Agent-Instance`; reads `Agent-Conflict` of the answers.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    clock: Clock
    journal: Journal
    health: Health
    fraction: Callable[[], float]
    wall_of: Callable[[Moment], float | None]
    on_time_known: Callable[[Callable[[], object]], None]
    first_s: float
    poll_is_set: Callable[[], bool]
    on_connected: Callable[[], object]
    found: FoundOutbox
    started: Moment
    instance: OwnInstance
    on_crash: OnCrash


@dataclass(frozen=True, slots=True)
class Links:
    """The ways to the other side.

    Attributes:
        poll_wait_s: how long one poll may wait for news now, seconds.
        takes_arrays: one request carries many readings.
        retry_max_s: the longest wait before readings and results are sent again, seconds.
        repeats_batches: see :class:`~agent.runtime.readings.ReadingStream`.
        only_pushed: see :class:`~agent.runtime.intake.Intake`.
        start, stop: of what runs by itself.
    """

    source: CommandSource
    uplink: Uplink
    poll_wait_s: Callable[[], float]
    takes_arrays: Callable[[], bool] = lambda: True
    retry_max_s: float = CAP_S
    repeats_batches: bool = True
    only_pushed: bool = False
    start: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing


def open_client(config: AgentConfig, credentials: Credentials) -> AbstractContextManager[DeviceClient | None]:
    """A client for the configured service; of nothing where there is none.

    Raises:
        ConfigurationError: address, keys or certificate file cannot be used.
    """
    if config.service is None:
        return nullcontext()
    from agent.app.client import make_client

    return make_client(config, config.service, credentials, VERSION)


def make_links(config: AgentConfig, credentials: Credentials, client: DeviceClient | None, parts: LinkParts) -> Links:
    """Wire the links, with a client from :func:`open_client`; nothing is started.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    if config.mqtt is not None:
        return _mqtt_links(config, config.mqtt, credentials, client, parts)
    if client is None:
        raise ConfigurationError(["service: there is neither a service nor a broker"])
    return _http_links(config, client, parts)


def _http_links(config: AgentConfig, client: DeviceClient, parts: LinkParts) -> Links:
    from agent.core.listed import ListWatch
    from agent.transports.http_uplink import HttpUplink

    discovery, device, watch = make_discovery(config, client, parts), config.device, ListWatch()

    uplink = HttpUplink(client, device.device_id, device.product_id, discovery, parts.wall_of, watch=watch)
    return Links(
        source=list_source(config, client, discovery, parts, watch),
        uplink=uplink,
        poll_wait_s=lambda: 0.0 if parts.poll_is_set() else config.commands.long_poll_s,
        takes_arrays=uplink.takes_arrays,
    )


def make_discovery(config: AgentConfig, client: DeviceClient, parts: LinkParts) -> Discovery:
    """What the service offers, with what the configuration says and the journal holds about it."""
    from agent.transports.discovery import Discovery

    if config.service is None:
        raise ConfigurationError(["service: there is none"])
    service = config.service
    return Discovery(client, parts.clock, service.dialect.dialect(), parts.journal, service.base_url)


def list_source(
    config: AgentConfig, client: DeviceClient, discovery: Discovery, parts: LinkParts, watch: ListWatch | None = None
) -> CommandSource:
    """Commands by asking for the list."""
    from agent.transports.http_source import HttpSource
    from agent.transports.later_life import LaterLife

    device = config.device
    client.connection.headers[INSTANCE_HEADER] = str(parts.instance.instance)
    client.connection.on_headers = parts.instance.read
    later_life = LaterLife(
        client,
        device.device_id,
        device.product_id,
        discovery,
        known=parts.journal.known,
        found=parts.found,
        started_s=lambda: parts.wall_of(parts.started),
        on_found=parts.instance.is_older,
    )
    return HttpSource(
        client,
        device.device_id,
        discovery,
        may_hold=config.commands.long_poll_s > 0,
        watch=watch,
        look_first=later_life.look,
    )


def _mqtt_links(
    config: AgentConfig, mqtt: MqttConfig, credentials: Credentials, client: DeviceClient | None, parts: LinkParts
) -> Links:
    """Commands, readings and results over the broker; with a client the list of commands is asked for as well.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    device = _mqtt_device(config, mqtt, credentials, parts)
    source: CommandSource = device.source
    wait_s: Callable[[], float] = lambda: _PUSH_WAIT_S  # noqa: E731 - with its type
    if client is not None:
        discovery = make_discovery(config, client, parts)
        source = _hybrid(device, list_source(config, client, discovery, parts), mqtt, parts)
        wait_s = lambda: 0.0 if parts.poll_is_set() else config.commands.long_poll_s  # noqa: E731 - as above
    return Links(
        source=source,
        uplink=device.uplink,
        poll_wait_s=wait_s,
        retry_max_s=mqtt.reconnect_max_s,
        repeats_batches=False,
        only_pushed=client is None,
        start=device.start,
        stop=device.stop,
    )


def _mqtt_device(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials, parts: LinkParts) -> MqttDevice:
    from agent.transports.mqtt_device import MqttDevice  # paho, only where there is a broker
    from agent.transports.mqtt_source import FirstPush

    broker = make_broker(config, mqtt)
    watch = BrokerWatch(parts.clock, parts.health, REPEAT_AFTER_S)

    def up() -> None:
        watch.up(f"connected to {broker} with MQTT {device.connection.version}")
        parts.on_connected()

    def noticed(_notice: Notice) -> None:
        parts.on_connected()

    device = MqttDevice(
        broker,
        config.device.device_id,
        firmware_version=VERSION,
        token=make_token(credentials),
        clock=parts.clock,
        waits=RetryPolicy(parts.fraction, cap_s=mqtt.reconnect_max_s),
        version=mqtt.version,
        receipts=mqtt.delivered_when == "receipt",
        timeout_s=mqtt.receipt_timeout_s,
        wall_of=parts.wall_of,
        first_s=parts.first_s,
        first_push=FirstPush(
            is_due=lambda: parts.journal.is_empty() or lacks_time(parts.journal.setting(FIRST_CONTACT)),
            is_dated=lambda: parts.wall_of(parts.clock.now()) is not None,
        ),
        on_up=up,
        on_down=watch.down,
        on_crash=parts.on_crash,
    )
    device.on_notice = noticed
    parts.on_time_known(device.uplink.time_is_known)
    return device


def _hybrid(device: MqttDevice, truth: CommandSource, mqtt: MqttConfig, parts: LinkParts) -> HybridSource:
    from agent.transports.hybrid_source import HybridSource  # only with both ways

    source = HybridSource(
        device.source,
        truth,
        clock=parts.clock,
        slow_s=_LIST_EVERY_S,
        is_first_contact=parts.journal.is_empty,
        fraction=parts.fraction,
    )

    def noticed(notice: Notice) -> None:
        parts.on_connected()
        if notice.poll_s is not None:
            source.set_slow_s(notice.poll_s)

    device.on_notice = noticed
    return source


def make_broker(config: AgentConfig, mqtt: MqttConfig) -> Broker:
    """The broker as the section ``mqtt`` describes it.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    from agent.transports.mqtt_connection import Broker, Tls

    try:
        client_id = user_name(config.device.device_id)
    except InvalidMessage as error:
        raise ConfigurationError([f"device.device_id: {error}"]) from None
    return Broker(
        host=mqtt.host,
        port=mqtt.port_in_use,
        client_id=client_id,
        tls=Tls(mqtt.ca_file, mqtt.cert_file, mqtt.key_file) if mqtt.tls else None,
        websocket_path=mqtt.websocket_path,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
    )


def make_token(credentials: Credentials) -> Callable[[], Secret]:
    """The device token as its file holds it now."""
    if credentials.token_path is None:
        return lambda: credentials.secret
    from agent.transports.renewed_token import RenewedToken

    return RenewedToken(credentials.token_path, credentials.secret).current
