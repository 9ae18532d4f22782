"""The ways to the other side, over HTTP, over MQTT, or commands over both; and what it says about this start.

Each is imported only where it is used: an agent on HTTP does not carry paho, nor one on MQTT httpx.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.config.model import MqttConfig, ServiceConfig
from agent.core.commands import HISTORY_LOST
from agent.core.values import Command
from agent.errors import ConfigurationError, InvalidMessage, StorageError
from agent.health import RetryPolicy
from agent.ports import CommandSource, Uplink
from agent.runtime.clocks import ServiceClock
from agent.wire.instances import CONFLICT_HEADER, INSTANCE_HEADER, OLDER_STATE, TWO_AGENTS, Instance
from agent.wire.secret import BearerToken, Credential, KeyPair, RenewedToken, Secret
from agent.wire.topics import user_name

if TYPE_CHECKING:
    from agent.app.run import AgentProcess
    from agent.health import Health
    from agent.ports import Clock
    from agent.store.journal import Journal
    from agent.transports.mqtt_connection import Broker
    from agent.transports.mqtt_device import MqttDevice
    from agent.wire.client import DeviceClient

_log = logging.getLogger(__name__)

STARTS: Final = "starts"
"""The journal's setting that counts them."""
PART: Final = "identity"
STATE_PART: Final = "state"

_TWO: Final = (
    "another agent runs under this device's identity, so each command reaches two devices: was the card copied? give "
    "one of them an identity of its own (device-agent enroll)"
)
_OVER_AFTER_S: Final = 900.0
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


class OwnInstance:
    """Detects an older state directory, or a second agent of the same device. Thread-safe.

    Args:
        journal: loses its claim to know all when the state turns out to be older.
        health: shows both.
        clock: for how long ago another agent was seen.

    Attributes:
        instance: sent with each request.
    """

    def __init__(self, journal: Journal, health: Health, clock: Clock) -> None:
        self._journal = journal
        self._health = health
        self._clock = clock
        count = 0
        with suppress(StorageError):  # a disk that refuses is nothing to stop for
            before = journal.setting(STARTS) or ""
            next_one = 1 + (int(before) if before.isdecimal() else 0)
            journal.put_setting(STARTS, str(next_one))
            count = next_one
        self.instance = Instance(count, uuid.uuid4().hex[:16])
        self._is_older = False
        self._two_at_s: float | None = None

    def read(self, headers: Mapping[str, str]) -> None:
        """The headers of a good answer; to a poll, they come before what it lists is judged.

        Raises:
            StorageError: it cannot be kept that the state is older.
        """
        conflict, now_s = headers.get(CONFLICT_HEADER), self._clock.now().monotonic_s
        if conflict == OLDER_STATE:
            self.is_older("the service knows a later start of this agent")
        elif conflict == TWO_AGENTS:
            if self._two_at_s is None:
                _log.error("identity=two_agents %s", _TWO)
            self._two_at_s = now_s
            self._health.put(PART, "two_agents", _TWO)
        elif self._two_at_s is not None and now_s - self._two_at_s > _OVER_AFTER_S:
            self._two_at_s = None
            _log.info("identity=ok no other agent was seen for %.0f s", _OVER_AFTER_S)
            self._health.put(PART, "ok")

    def is_older(self, why: str) -> None:
        """The state is older than what is known outside: what may have run is not run again.

        Raises:
            StorageError: that cannot be kept.
        """
        if self._is_older:
            return
        self._journal.put_setting(HISTORY_LOST, "1")
        self._is_older = True
        text = (
            f"the state directory is older than this device's last life, or a copy of another one's: {why}; commands "
            "that may have run are not run again. Let state_dir lie where it survives a restart (device-agent doctor)"
        )
        _log.error("state=older %s", text)
        self._health.put(STATE_PART, "older", text)


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
    own: OwnInstance,
    *,
    first_s: float,
    fraction: Callable[[], float],
    on_connected: Callable[[], object],
) -> Transport:
    """Make the connections that the configuration asks for: HTTP by this client, MQTT, or both; nothing is started.

    Args:
        first_s: how long after the start the first contact comes, seconds.
        fraction: random numbers in [0, 1).
        on_connected: called when broker or gateway is there again, from another thread: back-offs need not end first.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
    """
    config, credentials, clock, store = process.config, process.credentials, process.clock, process.store
    device, mqtt, service = config.device, config.mqtt, config.service

    if client is not None and service is not None:
        from agent.transports.http import Discovery, HttpDevice, find_later_life

        client.on_date = service_clock.observe
        client.headers[INSTANCE_HEADER] = str(own.instance)
        client.on_headers = own.read
        discovery = Discovery(client, clock, store.journal, service.base_url)
        table = client.dialect.results_table

        def check_first(commands: Sequence[Command]) -> None:
            started_s = service_clock.recorded_at(process.started)
            reason = find_later_life(commands, client, device, table, store.journal, store.found, started_s)
            if reason is not None:
                own.is_older(reason)

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
