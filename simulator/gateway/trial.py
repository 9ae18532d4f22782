"""Broker, gateway and two devices of the user's own, for ``fleet-simulator up``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from agent.wire.network import is_this_machine
from simulator.children import ChildProcess, NotStarted, program_path
from simulator.gateway.broker import Broker, running_broker
from simulator.gateway.program import issue_tokens, run_gateway
from simulator.keys import Keys, write_secret
from simulator.listening import check_port

HTTP_PORT_OPTION: Final = "--gateway-port"
MQTT: Final = "MQTT"
HTTP: Final = "HTTP"
IDENTIFIERS: Final = {MQTT: "UP-YOURS", HTTP: "UP-YOURS-TOO"}
"""How a device that stands ready talks, and its label."""
_ADDRESS: Final = re.compile(r"http=listening at (https?://\S+)")
_READY_S: Final = 60.0


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

    @property
    def agent(self) -> str:
        """The command line that runs its agent."""
        return f"device-agent run --config {shlex.quote(str(self.agent_config))}"


class Gateway:
    """``device-gateway run`` beside a local service and a local broker.

    Args:
        folder: where its configuration, keys and state go.
        log: of its process.

    Attributes:
        url: where it serves devices over HTTP, once it does.
        config: its configuration.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.url = ""
        self._folder = folder
        self._log = log
        self._tls = folder / "tls"
        self.config = folder / "gateway.yaml"
        self._child = ChildProcess("gateway", log)

    def start(self, service_url: str, keys: Keys, broker: Broker, host: str, port: int) -> None:
        """Start it, and wait until devices are served both ways; a state from before stays.

        Args:
            service_url: of the service.
            keys: the key pair, which goes into this folder and to no device.
            broker: where its MQTT devices come from.
            host: for devices that speak HTTP; anything but loopback is served with TLS, by a certificate made here.
            port: for them; 0 takes any free one.

        Raises:
            UnexpectedAnswer: the certificate could not be made.
            ConfigurationError: the port is taken.
            NotStarted: it did not start; the text ends with its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        http: dict[str, Any] = {"host": host, "port": port}
        if not is_this_machine(host):
            run_gateway("certificates", "--host", host, "--dir", str(self._tls))
            http |= {"certificate": str(self._tls / "server.pem"), "private_key": str(self._tls / "server.key")}
        configuration = {
            # The service is this machine's own, at whatever address it listens.
            "service": {"base_url": service_url, "allow_plain_http": True},
            "auth": {
                "api_key_file": str(write_secret(self._folder / "api_key", keys.api_key)),
                "secret_key_file": str(write_secret(self._folder / "secret_key", keys.secret_key.reveal())),
            },
            "state_dir": str(self._folder / "state"),
            "http": http,
            "mqtt": {"enabled": True, "port": broker.port, **({} if broker.speaks_v5 else {"version": "3.1.1"})},
            "commands": {"poll_s": 0.5, "reconcile_s": 60},
            "metrics": {"enabled": False},
        }
        self.config.write_text(yaml.safe_dump(configuration, sort_keys=False))
        log_begins = self._log.stat().st_size if self._log.exists() else 0

        def serves() -> bool:
            with self._log.open("rb") as file:
                file.seek(log_begins)
                text = file.read().decode(errors="replace")
            found = _ADDRESS.search(text)
            self.url = found.group(1) if found else ""
            return found is not None and "mqtt=connected" in text

        self._child.start([str(program_path("device-gateway")), "run", "--config", str(self.config)])
        try:
            self._child.wait_until(serves, "it served devices", _READY_S)
        except NotStarted:
            self.end()  # so that the port is not its own
            check_port(host, port, HTTP_PORT_OPTION)
            raise

    @property
    def ca_file(self) -> Path | None:
        """The authority of its certificate; None where it is served without TLS."""
        return self._tls / "ca.pem" if self.url.startswith("https") else None

    def look(self) -> None:
        """Raise :class:`~simulator.children.ChildFailed` when it has ended."""
        self._child.look()

    def end(self) -> None:
        """End it; harmless when it has ended."""
        self._child.end()

    def add_device(self, transport: str, device_id: str, broker: Broker, folder: Path) -> TrialDevice:
        """A device with a new token, and a ready configuration of the agent in ``folder``.

        Raises:
            UnexpectedAnswer: the program failed.
        """
        options = [
            *("--config-out", str(folder), "--device-dir", str(folder), "--plain"),
            *("--url", self.url),
            *(("--broker", f"127.0.0.1:{broker.port}") if transport == MQTT else ()),
            *(("--ca", str(self.ca_file)) if self.ca_file else ()),
        ]
        token = issue_tokens(self.config, [device_id], *options)[device_id]
        config = folder / "config.yaml"
        state = folder / "state"
        state.mkdir(exist_ok=True, mode=0o700)
        values = yaml.safe_load(config.read_text()) | {"state_dir": str(state)}
        if transport == MQTT and not broker.speaks_v5:
            values["mqtt"]["version"] = "3.1.1"
        config.write_text(yaml.safe_dump(values))
        return TrialDevice(transport, device_id, token.reveal(), config)

    def invite(self, product_id: str, user_id: str) -> str:
        """A code with which one more device of a product enrolls, within an hour.

        Raises:
            UnexpectedAnswer: the program failed.
        """
        words = ("--product-id", product_id, "--user-id", user_id, "--url", self.url)
        plain = () if self.ca_file else ("--plain",)
        printed = run_gateway("devices", "invite", *words, *plain, "--json", "--config", str(self.config))
        return str(json.loads(printed)["code"])


@dataclass(frozen=True, slots=True)
class Trial:
    """What was started: broker, gateway, and one device of each transport."""

    broker: Broker
    gateway: Gateway
    devices: tuple[TrialDevice, ...]

    def look(self) -> None:
        """Raise when broker or gateway has ended.

        Raises:
            ChildFailed: which one, and how.
        """
        self.broker.look()
        self.gateway.look()


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
        NotStarted: one of them could not be started.
        UnexpectedAnswer: a device got no token.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with running_broker(folder / "broker", folder / "broker.log", mqtt_port) as broker:
        gateway = Gateway(folder / "gateway", folder / "gateway.log")
        try:
            gateway.start(service_url, keys, broker, host, port)
            made = (
                gateway.add_device(transport, device_id, broker, folder / f"{transport.lower()}-device")
                for transport, device_id in device_ids.items()
            )
            yield Trial(broker, gateway, tuple(made))
        finally:
            gateway.end()
