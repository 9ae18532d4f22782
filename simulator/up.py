"""``fleet-simulator up``: starts service, broker, gateway and virtual devices in order, and ends them in reverse.

The service and the virtual devices run in this process; the gateway, and the broker where mosquitto is installed, are
processes of their own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from agent.wire.network import is_this_machine
from gateway.client import RegisterDevice
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.engine.preflight import raise_descriptor_limit
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.fleet.target.provisioning import load_product
from simulator.fleet.target.target import Target, remove_local, write_local
from simulator.gateway.broker import PORT_OPTION as MQTT_PORT_OPTION
from simulator.gateway.trial import HTTP_PORT_OPTION, IDENTIFIERS, Trial, running_trial
from simulator.keys import Keys, keep_keys
from simulator.listening import check_port
from simulator.options import Option
from simulator.service.config import (
    DataDir,
    Host,
    Port,
    RateLimit,
    RunsDir,
    ScenariosDir,
    ServiceConfig,
    Settings,
    Variant,
    WithConsole,
)
from simulator.service.temporary import TemporaryFolder
from simulator.wire.client import ServiceClient
from simulator.wire.limits import QUOTA_PER_MINUTE

DEVICES_MAX: Final = 500
MODEL: Final = DeviceModel(interval_s=10.0)
"""Of the virtual devices."""
_USER_ID: Final = "up-user"
LOOPBACK: Final = "127.0.0.1"


class UpSettings(Settings):
    """What is started."""

    host: Host = "127.0.0.1"
    port: Port = 8080
    data_dir: DataDir = None
    devices: Annotated[int, Field(ge=0, le=DEVICES_MAX), Option("--devices", "How many virtual devices.")] = 0
    rate_limit: RateLimit = QUOTA_PER_MINUTE
    gateway: Annotated[
        bool, Option("--no-gateway", "Leave out the broker, the gateway, and the two devices that wait for an agent.")
    ] = True
    gateway_host: Annotated[
        str,
        Option(
            "--gateway-host",
            "Address of this machine at which the gateway serves devices: one of your network for a board on the desk, "
            "which is then served with TLS.",
        ),
    ] = LOOPBACK
    gateway_port: Annotated[
        int,
        Field(ge=0, le=65535),
        Option("--gateway-port", "Port of the gateway for devices that speak HTTP; 0 takes any free one."),
    ] = 8081
    mqtt_port: Annotated[
        int | None,
        Field(ge=0, le=65535),
        Option(
            MQTT_PORT_OPTION,
            "Port of the broker; 0 takes any free one.  [default: with --data the one of the last start, else any]",
        ),
    ] = None
    variant: Variant = None
    console: WithConsole = True
    runs_dir: RunsDir = None
    scenarios_dir: ScenariosDir = None

    def faults(self) -> list[str]:
        """What cannot be used together; taken ports are among it."""
        found = []
        if (self.runs_dir or self.scenarios_dir) and not self.console:
            found.append("--runs and --scenarios are the console's, which --no-console leaves out")
        if not self.gateway:
            names = ("gateway_host", "gateway_port", "mqtt_port")
            wrong = [f"--{name.replace('_', '-')}" for name in names if name in self.model_fields_set]
            return [*found, *(f"{option} is the gateway's, which --no-gateway leaves out" for option in wrong)]
        if self.gateway_host in {"0.0.0.0", "::"}:  # noqa: S104 - what is refused
            found.append("--gateway-host must be the one address at which devices reach this machine, not all of them")
        wanted = {"--port": self.port, HTTP_PORT_OPTION: self.gateway_port, MQTT_PORT_OPTION: self.mqtt_port or 0}
        for (one, port), (other, its_port) in itertools.combinations(wanted.items(), 2):
            if port and port == its_port:
                found.append(f"{one} and {other} are both {port}: give two that differ")
        return found


@dataclass(slots=True)
class Up:
    """What runs, and how to reach it.

    Attributes:
        keys: of the service's account.
        devices: the virtual ones.
        trial: broker and gateway; None without them.
        console_url: opens the console; None without it.
        enroll: what a board elsewhere in the network enters to join; None where the gateway serves this machine alone.
    """

    base_url: str
    keys: Keys
    devices: tuple[DeviceIdentity, ...] = ()
    trial: Trial | None = None
    console_url: str | None = None
    enroll: str | None = None
    _parts: list[Callable[[], object]] = field(default_factory=list)

    def look(self) -> None:
        """Raise when one of them has ended.

        Raises:
            PartEnded: service or devices.
            ChildFailed: broker or gateway.
        """
        for look in self._parts:
            look()


@contextlib.contextmanager
def running_up(settings: UpSettings) -> Iterator[Up]:
    """Everything, for the length of the block.

    Raises:
        ConfigurationError: the settings cannot be used.
        AgentError: the devices could not be registered.
        NotStarted: broker or gateway could not be started.
    """
    from simulator.service.server import RunningService  # half a second: not for --help or a wrong option

    if settings.gateway:
        check_port(settings.gateway_host, settings.gateway_port, HTTP_PORT_OPTION)
        check_port(LOOPBACK, settings.mqtt_port or 0, MQTT_PORT_OPTION)
    raise_descriptor_limit()  # also of broker and gateway, its children: a fleet may come with ten thousand sockets
    with ExitStack() as ends:
        folder = settings.data_dir or ends.enter_context(TemporaryFolder()).path
        keys = keep_keys(folder / "keys")
        shared = {"host", "port", "data_dir", "rate_limit", "console", "runs_dir", "scenarios_dir"}
        config = ServiceConfig(**settings.model_dump(include=shared), api_key=keys.api_key, secret_key=keys.secret_key)
        service = ends.enter_context(RunningService(config, folder))
        up = Up(service.base_url, keys, console_url=service.console_url, _parts=[service.look])
        client = ends.enter_context(ServiceClient(service.base_url, keys))
        if settings.devices:
            labels = [(f"virtual-{number:03d}", f"UP-{number:06d}") for number in range(1, settings.devices + 1)]
            up.devices = _register(client, labels)
            target = FleetTarget(up.base_url, keys.headers(), client.offers())
            fleet = ends.enter_context(FleetThread(target, up.devices, MODEL, seed=1))
            fleet.switch_on()
            up._parts.append(fleet.look)
        here = Target(up.base_url, (keys,))
        if settings.gateway:
            yours = _register(client, [(f"your-{transport}-device", label) for transport, label in IDENTIFIERS.items()])
            ids = {transport: device.device_id for transport, device in zip(IDENTIFIERS, yours, strict=True)}
            where = settings.gateway_host, settings.gateway_port
            trial = ends.enter_context(
                running_trial(folder / "gateway", up.base_url, keys, ids, *where, mqtt_port=settings.mqtt_port)
            )
            up.trial = trial
            up._parts.append(trial.look)
            if not is_this_machine(settings.gateway_host):
                code = trial.gateway.invite(yours[0].product_id, _USER_ID)
                up.enroll = f"sudo device-agent enroll {trial.gateway.url} {code}"
            gateway, broker = trial.gateway, trial.broker
            way = gateway.url, gateway.config, f"mqtt://{LOOPBACK}:{broker.port}", broker.name, gateway.ca_file
            here = Target(up.base_url, (keys,), *way)
        ends.callback(remove_local, folder)
        write_local(folder, here)
        if settings.variant is not None:
            service.set_variant(settings.variant)
        yield up


def _register(client: ServiceClient, labels: Sequence[tuple[str, str]]) -> tuple[DeviceIdentity, ...]:
    """The devices (name, identifier) and their product: made, or found in a data folder that has them already."""
    wanted = load_product()
    known = next((product for product in client.products() if product.name == wanted.name), None)
    product_id = (known or client.create_product(wanted)).product_id
    found = []
    for name, identifier in labels:
        registration = RegisterDevice(
            user_id=_USER_ID, product_id=product_id, device_name=name, device_identifier=identifier
        )
        found.append(DeviceIdentity(client.register_device(registration).device_id, product_id, name))
    return tuple(found)
