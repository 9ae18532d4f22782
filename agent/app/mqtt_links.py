"""Source and uplink over a broker. Apart from :mod:`agent.app.links`: an agent on HTTP imports nothing of this."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.adapters.mqtt_device import MqttDevice
from agent.adapters.mqtt_session import Broker, Tls
from agent.adapters.mqtt_source import FirstPush
from agent.adapters.renewed_token import RenewedToken
from agent.app.links import LinkParts, Links, list_source, make_discovery
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.core.first_contact import SETTING as FIRST_CONTACT
from agent.core.first_contact import lacks_time
from agent.errors import ConfigurationError, InvalidMessage
from agent.runtime.broker_watch import BrokerWatch
from agent.runtime.retry_policy import RetryPolicy
from agent.wire.secret import Secret
from agent.wire.topics import user_name

if TYPE_CHECKING:
    from agent.adapters.hybrid_source import HybridSource
    from agent.config.mqtt import MqttConfig
    from agent.ports import CommandSource
    from agent.wire.device_client import DeviceClient
    from agent.wire.mqtt_messages import Notice


def mqtt_links(
    config: AgentConfig, mqtt: MqttConfig, credentials: Credentials, client: DeviceClient | None, parts: LinkParts
) -> Links:
    """Commands, readings and results over the broker; with a client the list of commands is asked for as well.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    device = _mqtt_device(config, mqtt, credentials, parts)
    source: CommandSource = device.source
    wait_s: Callable[[], float] = lambda: config.commands.long_poll_wait_s  # noqa: E731 - with its type
    if client is not None:
        client.connection.on_traffic = parts.on_traffic
        source = _hybrid(device, list_source(config, client, make_discovery(config, client, parts)), mqtt, parts)
        wait_s = lambda: 0.0 if parts.poll_is_set() else config.commands.long_poll_wait_s  # noqa: E731 - as above
    receipts = mqtt.delivered_when == "receipt"
    return Links(
        source=source,
        uplink=device.uplink,
        poll_wait_s=wait_s,
        # With receipts each reading has a key of its own; a broker alone knows no keys.
        settles_lazily=lambda _outcome: receipts,
        retry_max_s=mqtt.reconnect_max_s,
        repeats_batches=False,
        only_pushed=client is None,
        start=device.start,
        stop=device.stop,
    )


def _mqtt_device(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials, parts: LinkParts) -> MqttDevice:
    broker = make_broker(config, mqtt)
    watch = BrokerWatch(parts.clock, parts.health, config.logging.repeat_after_s)

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
            gather=config.commands.first_contact == "latest",
        ),
        on_up=up,
        on_traffic=parts.on_traffic,
        on_down=watch.down,
        on_crash=parts.on_crash,
    )
    device.on_notice = noticed
    parts.when_known(device.uplink.time_is_known)
    return device


def _hybrid(device: MqttDevice, truth: CommandSource, mqtt: MqttConfig, parts: LinkParts) -> HybridSource:
    from agent.adapters.hybrid_source import HybridSource  # only with both ways

    source = HybridSource(
        device.source,
        truth,
        clock=parts.clock,
        slow_s=mqtt.list_every_s,
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
        keepalive_s=mqtt.keepalive_s,
        connect_timeout_s=mqtt.connect_timeout_s,
        session_expiry_s=mqtt.session_expiry_s,
        max_packet_bytes=mqtt.max_message_bytes,
    )


def make_token(credentials: Credentials) -> Callable[[], Secret]:
    """The device token as its file holds it now."""
    if credentials.token_path is None:
        return lambda: credentials.secret
    return RenewedToken(credentials.token_path, credentials.secret).current
