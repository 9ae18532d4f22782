"""Broker, gateway and one device of the user's own, for ``fleet-simulator up``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.demo.children import ChildProcess
from simulator.gateway.broker import Broker, running_broker
from simulator.gateway.process import GatewayProcess
from simulator.keys import Keys

IDENTIFIER: Final = "UP-YOURS"
"""The label of the device that stands ready."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What stands, and a device that nobody plays yet.

    Attributes:
        url: where the gateway serves devices over HTTP.
        agent_config: a ready configuration of the agent, over MQTT.
    """

    url: str
    broker: Broker
    device_id: str
    token: str
    agent_config: Path

    def lines(self) -> list[tuple[str, str]]:
        """Name and text of what a person may paste."""
        topic = f"v1/devices/{self.device_id}/sensor-data"
        reading = shlex.quote('{"sensor_data":{"t":21.5}}')
        state = shlex.quote(str(self.agent_config.parent / "state"))
        agent = f"device-agent run --config {shlex.quote(str(self.agent_config))}"
        return [
            ("gateway", self.url),
            ("broker", f"mqtt://127.0.0.1:{self.broker.port} ({self.broker.name})"),
            ("device", f"{self.device_id}, token {self.token}"),
            ("play it", f"DEVICE_AGENT_STATE_DIR={state} {agent}"),
            ("by HTTP", f"curl -H 'authorization: Bearer {self.token}' {self.url}/devices/{self.device_id}/commands"),
            ("by MQTT", f"mosquitto_pub -p {self.broker.port} -i {self.device_id} -q 1 -t {topic} -m {reading}"),
        ]


@contextmanager
def running_trial(folder: Path, service_url: str, keys: Keys, device_id: str, port: int) -> Iterator[Trial]:
    """Broker and gateway, for the length of the block.

    Args:
        folder: where everything of them goes.
        service_url: of the service.
        keys: of the gateway alone.
        device_id: which device gets a token.
        port: for devices that speak HTTP; 0 takes any free one.

    Raises:
        ChildFailed: one of them could not be started.
        UnexpectedAnswer: the device got no token.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with running_broker(folder / "broker", folder / "broker.log") as broker:
        child = ChildProcess("gateway", folder / "gateway.log")
        try:
            gateway = GatewayProcess(folder / "gateway", child, folder / "gateway.log")
            gateway.configure(service_url, keys, broker, port)
            gateway.begin()
            gateway.wait_until_ready()
            own = folder / "device"
            token = gateway.hand_out(device_id, broker, own)
            yield Trial(gateway.base_url, broker, device_id, token, own / "config.yaml")
        finally:
            child.end()
