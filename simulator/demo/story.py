"""The demo's story, act by act. It acts and records what must come of it; the proofs judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.errors import ErrorAnswer, UnexpectedAnswer
from agent.wire.command_states import CommandStatus
from agent.wire.sending import SendCommand
from simulator.demo.onboard import USER_ID, Onboarded, make_product, print_labels, register
from simulator.demo.orders import NEVER, CommandSender, Order
from simulator.demo.proofs import OutboxCounters, Proof, prove_removal
from simulator.demo.readback import DeviceReadBack, read_device
from simulator.demo.real_agent import INTERVAL_S, SENSOR, WITNESS, RealAgent
from simulator.demo.screen import Screen
from simulator.demo.service_process import ServiceProcess
from simulator.demo.stage import DemoSettings, Stage, wait_online
from simulator.fleet.device.handlers import SENSOR as VIRTUAL_SENSOR
from simulator.fleet.runner import DeviceIdentity, FleetThread
from simulator.gateway.broker import Broker
from simulator.gateway.process import GatewayProcess
from simulator.report_parts.values import Outage, Tone
from simulator.wire.client import ServiceClient

_ENDED_S: Final = 60.0
_BEGUN_S: Final = 60.0
_DRAINED_S: Final = 60.0
_OFF_S: Final = 1.5
_CALM_S: Final = 2.0
_ROUND_S: Final = 0.4
_QUIET_S: Final = 6.0
_LOOK_S: Final = 0.05
_REST_S: Final = 3600.0
_OK: Final = 200

# Slow commands that are under way when the power goes: the first must not run again, the second does.
_CAUGHT: Final = (
    Order("caught opening the valve", {"command": "open_valve", "seconds": 3.0}, "failed", "indeterminate"),
    Order("caught testing itself", {"command": "self_test", "seconds": 3.0}, runs=frozenset({2})),
)
# Worth nothing a second later, and its device is off: it must expire, and never run.
_NOW_OR_NEVER: Final = Order(
    "ping that expires", {"command": "ping", "echo": "now or never"}, "expired", runs=NEVER, ttl_s=1
)


@dataclass(slots=True)
class DemoOutcome:
    """What was played, for the proofs and the report.

    Attributes:
        onboarded: devices and labels.
        orders: every command that was sent.
        proofs: those that were decided on the way.
        outages: when which device was off.
        ends: when each process of the real agent was ended, and when the next one was started; epoch seconds, and
            infinite after the last one.
        read_back: every device as the service has it, by device id.
        outbox: the real agent's own counters at the end.
    """

    onboarded: Onboarded
    orders: CommandSender
    service: ServiceProcess
    gateway: GatewayProcess
    agent: RealAgent
    fleet: FleetThread
    proofs: list[Proof] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)
    read_back: dict[str, DeviceReadBack] = field(default_factory=dict)
    outbox: OutboxCounters | None = None


class Story:
    """Plays the demo, act by act.

    Args:
        stage: processes and devices, ended by whoever made it.
        screen: shows each step.
        settings: how many devices, and the seed.
    """

    def __init__(self, stage: Stage, screen: Screen, settings: DemoSettings) -> None:
        self._stage = stage
        self._screen = screen
        self._settings = settings

    def play(self) -> DemoOutcome:
        """All acts in order.

        Raises:
            ServiceNotStarted: there is no service, so there is no story.
            AgentError: something that the rest of the story needs did not happen; the text says what.
        """
        service, client = self._open_service()
        outcome = self._onboard(service, client)
        self._wait_quietly(_CALM_S)
        self._send_daily_commands(outcome)
        self._cut_power(outcome)
        self._wait_quietly(_QUIET_S)
        self._remove_one(client, outcome)
        self._drain(client, outcome)
        self._read_back(client, outcome)
        return outcome

    # --- act 1: from nothing to twenty devices online ---

    def _open_service(self) -> tuple[ServiceProcess, ServiceClient]:
        with self._screen.doing("starting the service"):
            service, client = self._stage.open_service()
        self._screen.show("service", f"started on {service.base_url}, data on the disk", Tone.ACCENT)
        return service, client

    def _onboard(self, service: ServiceProcess, client: ServiceClient) -> DemoOutcome:
        screen, count = self._screen, self._settings.devices
        opened = self._stage.open_gateway(service)  # it starts while the labels are made
        product = make_product(client)
        screen.show("product", f'"{product.name}" created, it understands {len(product.commands)} commands')
        with screen.doing("making labels") as say:
            batch, labels_read = print_labels(
                product.product_id, count, self._stage.folder, lambda done, all_: say(f"labels {done} of {all_}")
            )
        screen.show("labels", f"{labels_read.found.split(',')[0]} back from {count} PNG files", _tone(labels_read))
        with screen.doing("registering devices") as say:
            onboarded, _, registered = register(client, batch, lambda done, all_: say(f"registered {done} of {all_}"))
        screen.show("onboarding", f"{count} devices scanned, registered and listed", _tone(registered))
        outcome = self._start_devices(service, client, onboarded, *opened)
        outcome.proofs += [labels_read, registered]
        return outcome

    def _start_devices(
        self,
        service: ServiceProcess,
        client: ServiceClient,
        onboarded: Onboarded,
        gateway: GatewayProcess,
        broker: Broker,
    ) -> DemoOutcome:
        screen, devices = self._screen, onboarded.devices
        with screen.doing("waiting for the gateway"):
            gateway.wait_until_ready()
        screen.show("gateway", f"process {gateway.pid} holds the keys; broker: {broker.name}", Tone.ACCENT)
        with screen.doing("starting the real agent"):
            agent = self._stage.open_agent(gateway, broker, devices.real)
        screen.show(devices.real.name, f"device-agent over MQTT, process {agent.pid}, reads this machine", Tone.ACCENT)
        fleet = self._stage.open_fleet(service, devices.virtual, client.discover(), self._settings.seed)
        screen.show("virtual", f"{len(devices.virtual)} devices switched on", Tone.ACCENT)
        with screen.doing("waiting for every device") as say:
            missing = wait_online(
                client, devices.all, lambda: agent.running, lambda seen: say(f"online {seen} of {len(devices.all)}")
            )
        agent.require_running()
        if missing:
            raise UnexpectedAnswer(
                f"{missing} of {len(devices.all)} devices never asked for commands: look into {self._stage.folder.logs}"
            )
        screen.show("service", f"all {len(devices.all)} devices online")
        return DemoOutcome(onboarded, CommandSender(client), service, gateway, agent, fleet)

    # --- act 2: commands to everybody ---

    def _send_daily_commands(self, outcome: DemoOutcome) -> None:
        devices, sender = outcome.onboarded.devices, outcome.orders
        self._screen.mark("commands")
        orders = {
            device: _daily_orders(number, is_real=device == devices.real) for number, device in enumerate(devices.all)
        }
        with self._screen.doing("sending commands to every device"):
            for round_ in zip(*orders.values(), strict=True):
                for device, order in zip(orders, round_, strict=True):
                    sender.send(device, order)
                time.sleep(_ROUND_S)
        self._screen.show(
            "operator",
            f"{len(sender.sent)} commands sent, {len(devices.all)} of them unknown, {len(devices.all)} invalid",
            Tone.ACCENT,
        )
        self._wait(outcome, devices.all)

    # --- act 3: kill -9, power cuts, and a command for a device that is off ---

    def _cut_power(self, outcome: DemoOutcome) -> None:
        devices, sender, screen = outcome.onboarded.devices, outcome.orders, self._screen
        off_s = screen.elapsed_s()
        outcome.fleet.switch_off([devices.switched_off.device_id])
        screen.show(devices.switched_off.name, "switched off", Tone.WARN)
        sender.send(devices.switched_off, Order("ping while it is off", {"command": "ping", "echo": "are you there?"}))
        caught = {
            device.name: [sender.send(device, order) for order in _CAUGHT]
            for device in (devices.real, devices.power_cut)
        }
        self._wait_begun(outcome, set(caught[devices.real.name]), caught[devices.power_cut.name])
        # By now the poll that the device left behind has ended: it would have taken the command with it.
        sender.send(devices.switched_off, _NOW_OR_NEVER)
        cut_s = screen.elapsed_s()
        outcome.fleet.switch_off([devices.power_cut.device_id])
        screen.show(devices.power_cut.name, "power cut in the middle of two commands", Tone.BAD)
        ended_s, killed_s = time.time(), screen.elapsed_s()
        outcome.agent.kill()
        screen.show(devices.real.name, "SIGKILL in the middle of two commands", Tone.BAD)
        screen.mark("kill -9")
        sender.send(devices.real, Order("ping while it is dead", {"command": "ping", "echo": "get up"}, runs=None))
        with screen.doing("three devices are down"):
            time.sleep(_OFF_S)
        outcome.ends.append((ended_s, time.time()))
        outcome.agent.start()
        screen.show(devices.real.name, f"started again, process {outcome.agent.pid}", Tone.WARN)
        screen.mark("started again")
        outcome.fleet.switch_on([devices.power_cut.device_id, devices.switched_off.device_id])
        screen.show("virtual", f"{devices.power_cut.name} and {devices.switched_off.name} have power again", Tone.WARN)
        on_s = screen.elapsed_s()
        outcome.outages += [
            Outage(devices.real.name, killed_s, on_s, "killed with SIGKILL"),
            Outage(devices.power_cut.name, cut_s, on_s, "power cut"),
            Outage(devices.switched_off.name, off_s, on_s, "switched off"),
        ]
        self._wait(outcome, (devices.real, devices.power_cut, devices.switched_off))

    def _wait_begun(self, outcome: DemoOutcome, real: set[str], virtual: list[str]) -> None:
        """Until both devices are in the middle of both commands."""
        device_id = outcome.onboarded.devices.power_cut.device_id
        deadline_s = time.monotonic() + _BEGUN_S
        with self._screen.doing("waiting for the slow commands to begin"):
            while time.monotonic() < deadline_s:
                states = [outcome.orders.status_of(device_id, command_id) for command_id in virtual]
                if real <= outcome.agent.runs().keys() and all(state == CommandStatus.IN_PROGRESS for state in states):
                    return
                time.sleep(_LOOK_S)
        raise UnexpectedAnswer(
            f"the slow commands did not begin within {_BEGUN_S:g} s: look into {self._stage.folder.logs}"
        )

    # --- act 4: one device goes ---

    def _remove_one(self, client: ServiceClient, outcome: DemoOutcome) -> None:
        screen, device = self._screen, outcome.onboarded.devices.removed
        outcome.fleet.sample(on=False)
        outcome.fleet.settle(_DRAINED_S)
        outcome.fleet.switch_off([device.device_id])
        outcome.read_back[device.device_id] = read_device(client, device.device_id)
        client.remove_device(device.device_id)
        ping = SendCommand(device_id=device.device_id, command_payload={"command": "ping"})
        answers = {
            "its commands": _status(lambda: client.device_commands(device.device_id)),
            "sending to it": _status(lambda: client.send_command(ping)),
            "removing it again": _status(lambda: client.remove_device(device.device_id)),
        }
        listed = any(found.device_id == device.device_id for found in client.user_devices(USER_ID))
        proof = prove_removal(device.name, answers, listed)
        outcome.proofs.append(proof)
        screen.show(device.name, f"removed; afterwards {proof.found}", _tone(proof))
        screen.mark("one removed")
        outcome.outages.append(Outage(device.name, screen.elapsed_s(), float("inf"), "removed"))

    # --- act 5: everything that was to be handed over is, then what is stored is read back ---

    def _drain(self, client: ServiceClient, outcome: DemoOutcome) -> None:
        real = outcome.onboarded.devices.real
        for order in agent_intervals(_REST_S):
            outcome.orders.send(real, order)
        outcome.orders.wait([real.device_id], _ENDED_S, lambda _done, _total: None)
        with self._screen.doing("letting everything drain"):
            late = outcome.fleet.settle(_DRAINED_S)
            time.sleep(INTERVAL_S)  # a read that had begun before has its number then
            deadline_s = time.monotonic() + _DRAINED_S
            code, outbox = self._stop_drained(client, outcome, deadline_s)
        tone = Tone.GOOD if code == 0 and not late and not outbox.waiting else Tone.BAD
        text = f"nothing waits in its outbox; stopped with exit code {code}"
        if outbox.waiting or late:
            text = f"not drained: {outbox.waiting} readings of the real agent, {', '.join(late) or 'no other device'}"
        self._screen.show(real.name, text, tone)

    def _stop_drained(
        self, client: ServiceClient, outcome: DemoOutcome, deadline_s: float
    ) -> tuple[int | None, OutboxCounters]:
        """Stop the real agent with an empty outbox: its exit code, and its counters.

        A reading may come, and a receipt may be on its way, between the last look and the stop. Then the agent is
        started again and delivers it; what waits even so at the deadline stays where it is.
        """
        agent, real = outcome.agent, outcome.onboarded.devices.real
        while True:
            while _is_in_transit(client, agent, real) and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
            ended_s = time.time()
            code, outbox = agent.stop(), agent.outbox()
            if not outbox.waiting or time.monotonic() > deadline_s:
                outcome.ends.append((ended_s, float("inf")))
                return code, outbox
            self._screen.show(real.name, f"stopped with {outbox.waiting} in its outbox: started again", Tone.WARN)
            outcome.ends.append((ended_s, time.time()))
            agent.start()
            time.sleep(INTERVAL_S)  # it reads each sensor once as it starts

    def _read_back(self, client: ServiceClient, outcome: DemoOutcome) -> None:
        devices = outcome.onboarded.devices
        with self._screen.doing("reading everything back") as say:
            for device in devices.all:
                if device.device_id not in outcome.read_back:
                    say(f"reading back {device.name}")
                    outcome.read_back[device.device_id] = read_device(client, device.device_id)
            outcome.outbox = outcome.agent.outbox()
        readings = sum(len(device.readings) for device in outcome.read_back.values())
        commands = sum(len(device.commands) for device in outcome.read_back.values())
        self._screen.show("service", f"read back: {commands} commands, {readings} readings", Tone.ACCENT)

    def _wait_quietly(self, seconds: float) -> None:
        with self._screen.doing("a few quiet seconds of readings"):
            time.sleep(seconds)

    def _wait(self, outcome: DemoOutcome, devices: Sequence[DeviceIdentity]) -> None:
        began_s = self._screen.elapsed_s()
        with self._screen.doing("waiting for results") as say:
            left = outcome.orders.wait(
                [device.device_id for device in devices],
                _ENDED_S,
                lambda done, total: say(f"commands ended: {done} of {total}"),
            )
        took_s = self._screen.elapsed_s() - began_s
        if left:
            self._screen.show("operator", f"{left} commands have not ended within {_ENDED_S:g} s", Tone.BAD)
        else:
            self._screen.show("operator", f"all {len(outcome.orders.sent)} commands have ended, {took_s:.1f} s later")


def _daily_orders(number: int, *, is_real: bool) -> list[Order]:
    """The commands of every device; nobody outside of the real agent counts the runs of its built-in handlers."""
    counted = None if is_real else frozenset({1})
    sensor = SENSOR if is_real else VIRTUAL_SENSOR
    interval = {"command": "set_interval", "name": sensor}
    return [
        Order("ping", {"command": "ping", "echo": number}, runs=counted),
        Order("read the sensors", {"command": "read_sensors", "names": [sensor]}, runs=counted),
        Order("read more often", {**interval, "interval_s": 0.5}, runs=counted),
        Order("unknown command", {"command": "make_coffee", "cups": 2}, "rejected", "unknown_command", NEVER),
        Order("invalid payload", {**interval, "interval_s": "soon"}, "rejected", "invalid_payload", NEVER),
        Order("slow self test", {"command": "self_test", "seconds": 1.5}),
    ]


def agent_intervals(interval_s: float | None) -> list[Order]:
    """Set how often the real agent reads each of its sensors; None goes back to its configuration."""
    return [
        Order(f"read {name} {'again' if interval_s is None else 'hourly'}",
              {"command": "set_interval", "name": name, "interval_s": interval_s}, runs=None)
        for name in (SENSOR, WITNESS)
    ]  # fmt: skip


def _is_in_transit(client: ServiceClient, agent: RealAgent, device: DeviceIdentity) -> bool:
    """Whether the real agent read or took in something that the service has not stored.

    ``outbox.waiting`` is not exact while the agent runs: what was delivered may be deleted up to 90 s later. And the
    newest number of the witness may be between its program and the outbox.
    """
    outbox, witnessed = agent.outbox(), agent.witnessed()
    stored = read_device(client, device.device_id)
    taken = outbox.accepted - outbox.set_aside - outbox.dropped
    newest = {made.fact.key for made in witnessed[-1:]}
    return taken > len(stored.readings) or not newest <= {fact.key for fact in stored.by_sequence()}


def _status(call: Callable[[], object]) -> int:
    """The status code that a call was answered with."""
    try:
        call()
    except ErrorAnswer as error:
        return error.status
    return _OK


def _tone(proof: Proof) -> Tone:
    return Tone.GOOD if proof.held else Tone.BAD
