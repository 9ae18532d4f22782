"""The demo's stage: the processes and devices of one run, made in order and ended in reverse."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.core.poll_interval import PollIntervals
from simulator.children import ChildFailed, ChildProcess, Children
from simulator.demo.folder import DemoFolder
from simulator.demo.real_agent import RealAgent
from simulator.demo.service_process import ServiceProcess
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread
from simulator.gateway.broker import Broker, running_broker
from simulator.gateway.process import GatewayProcess
from simulator.wire.client import ServiceClient

DEVICES_MIN: Final = 5
"""The real agent, one switched off, one whose power is cut, one removed, and one that nothing happens to."""
DEVICES_MAX: Final = 200
_VIRTUAL_INTERVAL_S: Final = 1.0
_POLLING: Final = PollIntervals(fast_s=0.5, slow_s=2.0, idle_s=10.0)
_ONLINE_S: Final = 60.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What a person can choose.

    Attributes:
        out: the output folder.
        devices: how many, the real agent among them.
        seed: of what the virtual devices measure.
        keep: leave everything running until Ctrl-C.
    """

    out: Path = Path("demo-output")
    devices: int = 20
    seed: int = 1
    keep: bool = False


class ServiceNotStarted(ChildFailed):
    """The service could not be started, so there is no demo."""


@dataclass(frozen=True, slots=True)
class DemoDevices:
    """The devices of the demo, by what happens to them.

    Attributes:
        real: the device of the real agent.
        virtual: all others.
    """

    real: DeviceIdentity
    virtual: tuple[DeviceIdentity, ...]

    @property
    def all(self) -> tuple[DeviceIdentity, ...]:
        """Every device, the real one first."""
        return (self.real, *self.virtual)

    @property
    def switched_off(self) -> DeviceIdentity:
        """The device that is off while a command is sent to it."""
        return self.virtual[0]

    @property
    def power_cut(self) -> DeviceIdentity:
        """The device whose power is cut in the middle of two commands."""
        return self.virtual[1]

    @property
    def removed(self) -> DeviceIdentity:
        """The device that is removed in the end."""
        return self.virtual[-1]


class Stage:
    """Service, broker, gateway, real agent and virtual devices.

    Args:
        folder: where everything goes.
    """

    def __init__(self, folder: DemoFolder) -> None:
        self.folder = folder
        self._ends = ExitStack()
        self._children = Children()

    def __enter__(self) -> Self:
        self._ends.enter_context(self._children)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, trace)

    def open_service(self) -> tuple[ServiceProcess, ServiceClient]:
        """Start the service; it, and a client of it.

        Raises:
            ServiceNotStarted: it could not be started.
        """
        try:
            service = ServiceProcess(self.folder, self._children.add(ServiceProcess.child(self.folder)))
            service.start()
        except ChildFailed as error:
            raise ServiceNotStarted(str(error)) from None
        return service, self._ends.enter_context(service.client())

    def open_gateway(self, service: ServiceProcess) -> tuple[GatewayProcess, Broker]:
        """Start a broker, and begin to start the gateway between it and the service.

        Raises:
            ChildFailed: one of them could not be started.
        """
        own, log = self.folder.gateway, self.folder.logs / "gateway.log"
        broker = self._ends.enter_context(running_broker(own / "broker", self.folder.logs / "broker.log"))
        # Entered after the broker, so ended before it.
        child = self._ends.enter_context(Children()).add(ChildProcess("gateway", log))
        gateway = GatewayProcess(own, child, log)
        gateway.configure(service.base_url, service.keys, broker, 0)
        gateway.begin()
        return gateway, broker

    def open_agent(self, gateway: GatewayProcess, broker: Broker, device: DeviceIdentity) -> RealAgent:
        """Give the real agent its token and start it."""
        agent = RealAgent(self.folder, self._children.add(RealAgent.child(self.folder)), broker, device.device_id)
        agent.take_token(gateway.hand_out(device.device_id, broker, self.folder.gateway / "device"))
        agent.start()
        return agent

    def open_fleet(
        self, service: ServiceProcess, devices: Sequence[DeviceIdentity], offers: frozenset[str], seed: int
    ) -> FleetThread:
        """Switch the virtual devices on."""
        headers = {"x-api-key": service.keys.api_key, "x-secret-key": service.keys.secret_key.reveal()}
        model = DeviceModel(interval_s=_VIRTUAL_INTERVAL_S, polling=_POLLING)
        target = FleetTarget(service.base_url, headers, offers)
        fleet = self._ends.enter_context(FleetThread(target, devices, model, seed=seed))
        fleet.switch_on()
        return fleet


def wait_online(
    client: ServiceClient, devices: Sequence[DeviceIdentity], alive: Callable[[], bool], on_look: Callable[[int], None]
) -> int:
    """Wait until the service has seen each device; how many it has not, in time.

    Args:
        client: who asks.
        devices: who is waited for.
        alive: whether waiting still makes sense.
        on_look: called with how many were seen.
    """
    wanted = {device.device_id for device in devices}
    deadline_s = time.monotonic() + _ONLINE_S
    while True:
        seen = {device.device_id for device in client.devices() if device.last_seen_at is not None}
        on_look(len(wanted & seen))
        if wanted <= seen or not alive() or time.monotonic() > deadline_s:
            return len(wanted - seen)
        time.sleep(_LOOK_S)
