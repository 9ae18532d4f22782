"""Broker, gateway and two devices of the user's own, for ``fleet-simulator up``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire import topics
from simulator.children import ChildFailed, ChildProcess
from simulator.gateway.broker import Broker, running_broker
from simulator.gateway.process import GatewayProcess
from simulator.keys import Keys, curl_line
from simulator.listening import check_port

HTTP_PORT_OPTION: Final = "--gateway-port"
MQTT: Final = "MQTT"
HTTP: Final = "HTTP"
IDENTIFIERS: Final = {MQTT: "UP-YOURS", HTTP: "UP-YOURS-TOO"}
"""How a device that stands ready talks, and its label."""


@dataclass(frozen=True, slots=True)
class TrialDevice:
    """A device that the gateway knows and no program runs yet.

    Attributes:
        transport: :data:`MQTT` or :data:`HTTP`.
        token: for the gateway, or with the broker.
        agent_config: a ready configuration of the agent.
    """

    transport: str
    device_id: str
    token: str
    agent_config: Path

    def lines(self, service_url: str, keys: Keys) -> list[tuple[str, str]]:
        """Name and text of what a person may paste: the agent, a command to it, what came of it, its readings."""
        state = shlex.quote(str(self.agent_config.parent / "state"))
        ping = json.dumps({"device_id": self.device_id, "command_payload": {"command": "ping"}})
        agent = f"device-agent run --config {shlex.quote(str(self.agent_config))}"
        return [
            (f"{self.transport} agent", f"DEVICE_AGENT_STATE_DIR={state} {agent}"),
            ("  send", curl_line(service_url, keys, "/commands/send", ping)),
            ("  look", curl_line(service_url, keys, f"/devices/{self.device_id}/commands")),
            ("  readings", curl_line(service_url, keys, f"/sensor-data?device_id={self.device_id}")),
        ]


@dataclass(frozen=True, slots=True)
class Trial:
    """What was started: broker, gateway and devices.

    Attributes:
        url: where the gateway serves devices over HTTP.
        devices: one of each transport.
        gateway: its process.
    """

    url: str
    broker: Broker
    devices: tuple[TrialDevice, ...]
    gateway: GatewayProcess

    def look(self) -> None:
        """Raise when broker or gateway has ended.

        Raises:
            ChildFailed: which one, and how.
        """
        self.broker.look()
        self.gateway.look()

    def lines(self, service_url: str, keys: Keys) -> list[tuple[str, str]]:
        """Name and text of what a person may paste; the keys are for the service, a device's token for the gateway."""
        lines = [
            ("gateway", f"{self.url}; it alone has the keys"),
            ("broker", f"mqtt://127.0.0.1:{self.broker.port} ({self.broker.name})"),
        ]
        for device in self.devices:
            lines += [*device.lines(service_url, keys), ("  by hand", self._by_hand(device))]
        return lines

    def _by_hand(self, device: TrialDevice) -> str:
        """What a device without the agent would send."""
        if device.transport == HTTP:
            authority = shlex.quote(str(device.agent_config.with_name("ca.pem")))
            trust = f"--cacert {authority} " if self.url.startswith("https") else ""
            bearer = f"-H 'authorization: Bearer {device.token}'"
            return f"curl {trust}{bearer} {self.url}/devices/{device.device_id}/commands"
        # Without a client id: the device's own is its agent's, which the broker would put out.
        reading = shlex.quote('{"sensor_data":{"t":21.5}}')
        return f"mosquitto_pub -p {self.broker.port} -q 1 -t {topics.sensor_data(device.device_id)} -m {reading}"


@contextmanager
def running_trial(
    folder: Path,
    service_url: str,
    keys: Keys,
    device_ids: Mapping[str, str],
    host: str,
    port: int,
    *,
    mqtt_port: int | None = None,
) -> Iterator[Trial]:
    """Broker and gateway, for the length of the block.

    Args:
        folder: where everything of them goes.
        service_url: of the service.
        keys: of the gateway alone.
        device_ids: which devices get a token, by how they talk.
        host: where devices that speak HTTP reach the gateway.
        port: for them; 0 takes any free one.
        mqtt_port: of the broker, as in :func:`~simulator.gateway.broker.running_broker`.

    Raises:
        ConfigurationError: a port is taken.
        ChildFailed: one of them could not be started.
        UnexpectedAnswer: a device got no token.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with running_broker(folder / "broker", folder / "broker.log", mqtt_port) as broker:
        child = ChildProcess("gateway", folder / "gateway.log")
        try:
            gateway = GatewayProcess(folder / "gateway", child, folder / "gateway.log")
            gateway.configure(service_url, keys, broker, host, port)
            gateway.begin()
            try:
                gateway.wait_until_ready()
            except ChildFailed:
                child.end()  # so that the port is not its own
                check_port(host, port, HTTP_PORT_OPTION)
                raise
            devices = []
            for transport, device_id in device_ids.items():
                own = folder / f"{transport.lower()}-device"
                token = gateway.hand_out(device_id, broker if transport == MQTT else None, own)
                devices.append(TrialDevice(transport, device_id, token, own / "config.yaml"))
            yield Trial(gateway.base_url, broker, tuple(devices), gateway)
        finally:
            child.end()
