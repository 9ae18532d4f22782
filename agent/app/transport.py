"""The ways to the other side, built from the configuration: over HTTP, over MQTT, or commands over both.

Each is imported only where it is used: an agent on HTTP does not carry paho, nor one on MQTT httpx.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.config.model import MqttConfig, ServiceConfig
from agent.core.values import Command
from agent.errors import ConfigurationError, InvalidMessage
from agent.ports import CommandSource, Uplink
from agent.retry import RetryPolicy
from agent.runtime.clocks import ServiceClock
from agent.wire.secret import BearerToken, Credential, KeyPair, RenewedToken, Secret
from agent.wire.topics import user_name

if TYPE_CHECKING:
    from agent.app.run import AgentProcess
    from agent.transports.mqtt_connection import Broker
    from agent.transports.mqtt_device import MqttDevice
    from agent.wire.client import DeviceClient

_PUSH_WAIT_S: Final = 25.0
"""How long to wait for a push before looking again; it makes no request."""
_LIST_EVERY_S: Final = 900.0
"""With a broker and a service: how often to ask over HTTP which commands are open, while the broker is there."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The ways to the other side.

    Attributes:
        poll_wait_s: how long one poll may wait for news, seconds.
        has_lists: polls bring the list of what is open; else commands are only pushed.
        takes_arrays: one request carries many readings.
        repeats_batches: see :class:`~agent.runtime.sending.ReadingStream`.
        device: the connection to the broker, where there is one; started and stopped by the caller.
    """

    source: CommandSource
    uplink: Uplink
    poll_wait_s: float
    has_lists: bool = True
    takes_arrays: Callable[[], bool] = lambda: True
    repeats_batches: bool = True
    device: MqttDevice | None = None


def make_client(service: ServiceConfig, credentials: Credentials) -> DeviceClient:
    """A client for the configured service.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    from agent.wire.client import DeviceClient  # httpx

    if service.ca_file is not None and not os.access(service.ca_file, os.R_OK):
        raise ConfigurationError([f"service.ca_file: {service.ca_file} cannot be read; mend the path or its mode"])
    credential: Credential
    if credentials.token_path is None:
        credential = KeyPair(credentials.api_key, credentials.secret)
    else:
        credential = BearerToken(make_token(credentials))
    client = DeviceClient(
        service.base_url,
        credential,
        timeout_s=service.timeout_s,
        ca_file=service.ca_file,
        user_agent=f"device-agent/{VERSION}",
    )
    client.dialect = service.dialect.dialect()
    return client


def make_transport(
    process: AgentProcess,
    client: DeviceClient | None,
    service_clock: ServiceClock,
    *,
    first_s: float,
    fraction: Callable[[], float],
    on_older_state: Callable[[str], object],
    on_connected: Callable[[], object],
) -> Transport:
    """Make the connections that the configuration asks for: HTTP by this client, MQTT, or both; nothing is started.

    Args:
        first_s: how long after the start the first contact comes, seconds.
        fraction: random numbers in [0, 1).
        on_older_state: called with a sentence when the service knows more of this device than its journal does.
        on_connected: called when broker or gateway is there again, from another thread: back-offs need not end first.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    config, credentials, clock, store = process.config, process.credentials, process.clock, process.store
    device, mqtt, service = config.device, config.mqtt, config.service

    if client is not None and service is not None:
        from agent.transports.http import Discovery, HttpDevice
        from agent.transports.rolled_back import find_later_life

        discovery = Discovery(client, clock, store.journal, service.base_url)
        table = client.dialect.results_table

        def check_first(commands: Sequence[Command]) -> None:
            started_s = service_clock.recorded_at(process.started)
            reason = find_later_life(commands, client, device, table, store.journal, store.found, started_s)
            if reason is not None:
                on_older_state(reason)

        wait_s = config.commands.long_poll_s
        lists = HttpDevice(
            client,
            device.device_id,
            discovery,
            product_id=device.product_id,
            may_hold=wait_s > 0,
            recorded_at=service_clock.recorded_at,
            check_first=check_first,
        )
        if mqtt is None:
            return Transport(lists, lists, wait_s, takes_arrays=lists.takes_arrays)
    if mqtt is None:
        raise ConfigurationError(["service: there is neither a service nor a broker"])

    from agent.transports.mqtt_device import HybridSource, MqttDevice

    pushes = MqttDevice(
        make_broker(config, mqtt),
        device.device_id,
        firmware_version=VERSION,
        token=make_token(credentials),
        clock=clock,
        health=process.health,
        waits=RetryPolicy(fraction, cap_s=mqtt.reconnect_max_s),
        first_s=first_s,
        receipt_timeout_s=mqtt.receipt_timeout_s,
        recorded_at=service_clock.recorded_at,
        on_time=service_clock.observe,
        on_ready=on_connected,
        on_crash=process.supervisor.crashed,
    )
    if client is None:
        return Transport(pushes, pushes, _PUSH_WAIT_S, has_lists=False, repeats_batches=False, device=pushes)
    both = HybridSource(
        pushes,
        lists,
        clock=clock,
        list_every_s=_LIST_EVERY_S,
        is_first_contact=store.journal.is_empty,
    )
    pushes.on_poll_hint = lambda poll_s: setattr(both, "list_every_s", poll_s)
    return Transport(both, pushes, wait_s, repeats_batches=False, device=pushes)


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
        version=mqtt.version,
        tls=Tls(mqtt.ca_file, mqtt.cert_file, mqtt.key_file) if mqtt.tls else None,
    )


def make_token(credentials: Credentials) -> Callable[[], Secret]:
    """The device token as its file holds it now."""
    if credentials.token_path is None:
        return lambda: credentials.secret
    return RenewedToken(credentials.token_path, credentials.secret).current
