"""A worker's devices as the scenario wants them: over its transport, with the agent's core or as pure load."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.fleet.device.http_load import HttpLoad, RequestKind
from simulator.fleet.scenario.model import RequestsScenario, Scenario
from simulator.fleet.workload.devices import Address, Devices, DeviceSpecs, WorkerContext, load_devices
from simulator.fleet.workload.http_devices import HttpDevices, http_engine, templates_of
from simulator.fleet.workload.links import Links
from simulator.fleet.workload.mqtt_devices import MqttDevices


def make_devices(scenario: Scenario, address: Address, specs: DeviceSpecs, context: WorkerContext) -> Devices:
    """The devices as the scenario wants them.

    Raises:
        ConfigurationError: an address, a key or a certificate cannot be used.
    """
    if isinstance(scenario, RequestsScenario):
        return WireDevices(scenario, address, specs, context)
    of_protocol = HttpDevices if scenario.target.traits.protocol == "http" else MqttDevices
    return of_protocol(scenario, address, specs, context)


class WireDevices:
    """Pure load: requests as devices send them, without devices."""

    def __init__(
        self, scenario: RequestsScenario, address: Address, specs: DeviceSpecs, context: WorkerContext
    ) -> None:
        self._engine = http_engine(scenario, address, context)
        self._links = Links(self._engine, context.clock, context.wheel, scenario.seed)
        self._load = HttpLoad(
            self._links if scenario.faults else self._engine,
            context.wheel,
            templates_of(address, specs, scenario.fleet.devices),
            load_devices(specs),
            specs.fleet,
            first_index=specs.first_index,
            observer=context.observer,
            timeout_s=scenario.target.timeout_s,
            on_news=context.on_news,
        )
        self._online: set[int] = set()
        self._arrivals = scenario.arrivals
        self.lose = self._links.lose
        self.restore = self._links.state.restore
        self.apply_link_faults = self._links.apply_link_faults
        self.has_link_fault = self._links.has_link_fault
        self._share = len(specs.members) / scenario.fleet.devices
        self._users_are_on = False
        self._is_draining = False

    def switch_on(self, device: int) -> None:
        """A device counts from now on; the plan's arrivals go by it. The first one brings the closed users."""
        self._online.add(device)
        if not self._is_draining:
            self.sample(on=True)

    def switch_off(self, device: int) -> None:
        """Take a device out of those that are on."""
        self._online.discard(device)

    def arrive(self, stream: int, device: int, due_s: float) -> None:
        """A request of one of the scenario's open arrivals, due at that time on the worker's clock."""
        self._load.send(RequestKind(self._arrivals[stream].operation), device, due_s)

    def sample(self, *, on: bool) -> None:
        """Read the sensors, or stop reading them; pure load begins or ends its users. See :class:`Devices`."""
        if on == self._users_are_on:
            return
        self._users_are_on = on
        if not on:
            self._load.stop_users()
            return
        for arrivals in self._arrivals:
            if arrivals.kind == "closed":
                users = max(1, round(arrivals.users * self._share))
                self._load.start_users(RequestKind(arrivals.operation), users, arrivals.pause_s)

    def unsettled(self) -> list[int]:
        """Devices that have something to hand over; their number is what it costs.

        See :class:`Devices`: those whose requests are under way, which end by themselves.
        """
        return list({request.device for request in self._load.under_way})

    def has_settled(self) -> bool:
        """Whether none has; costs the same for any number of devices. See :class:`Devices`."""
        return not self._load.under_way

    def await_requests(self, before_s: float) -> None:
        """The phases were over at this time: what fell due before and has no answer yet keeps them unsettled.

        See :class:`Devices`: requests under way are waited for whenever they fell due.
        """
        del before_s
        self._is_draining = True

    def had_contact(self, device: int) -> bool:
        """Whether this device ever had a list of its commands, so that nothing in the next one is history to it.

        See :class:`Devices`: no device carries anything out here.
        """
        del device
        return True

    def gauges(self) -> Mapping[str, float]:
        """The gauges of all of them: ``online``, ``waiting_readings``, ``connections`` and others, by name."""
        return {
            "online": float(len(self._online)),
            "waiting_readings": float(len(self._load.under_way)),
            "connections": float(self._engine.connections),
        }

    async def close(self) -> int:
        """Close every connection. See :class:`Devices`."""
        self._load.end()
        await self._links.close()
        return self._load.undelivered
