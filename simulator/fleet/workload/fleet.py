"""One worker's devices in a run: switched by the plan, measured, and written to the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire.extensions import COMMAND_STATUS
from simulator.fleet.audit.ledger import Ledger
from simulator.fleet.device.driver import Member
from simulator.fleet.device.model import SharedSettings, TransportOptions
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.metrics.ages import ReadingAges
from simulator.fleet.metrics.health import GcFreeze
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.metrics.stages import CommandTracker
from simulator.fleet.plan import Event, EventFeed, EventKind, Plan
from simulator.fleet.target.key_pool import headers_of
from simulator.fleet.target.target import read_keys
from simulator.fleet.workload.agenda import Agenda
from simulator.fleet.workload.base import DeviceJob, Leftover, WorkloadSummary
from simulator.fleet.workload.devices import Address, Devices, WorkerParts, make_devices
from simulator.fleet.workload.measurement import Measurement, TrackedLedger
from simulator.fleet.workload.models import build_models
from simulator.fleet.workload.operator import EXPIRY_MARGIN_S, Operator, OrderContext
from simulator.fleet.workload.switchboard import Switchboard
from simulator.watched import into_loop, start_task

_AHEAD_S: Final = 2.0
_OPEN: Final = frozenset({EventKind.COMMAND, EventKind.ARRIVAL})
"""What comes at its time whatever the target does; a device's own requests wait for each other."""
_LATE_SHOWN: Final = 10
_CONTACT_LOOK_S: Final = 0.1
_NO_CONTACT: Final = (
    "their devices never had an answer to a poll, and a server that lists no states would have shown them as history"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJob(DeviceJob):
    """One worker's part of a fleet, pickled.

    Attributes:
        address: where devices talk to, and as whom.
        operator_url: where commands are sent.
        operator_ca_file: the authorities that alone are trusted there; None trusts the system's.
        worker: its number.
        origin_s: when what is played once begins, seconds since the epoch.
        device_offers: the extensions of whatever the devices talk to: the service, or the gateway in front of it.
        run: identifies this run.
    """

    address: Address
    operator_url: str
    worker: int
    origin_s: float
    device_offers: frozenset[str]
    run: str
    operator_ca_file: Path | None = None

    def make(self, recorder: Recorder) -> FleetWorkload:
        """Build everything; called in the running loop. Nothing is sent yet."""
        return FleetWorkload(self, recorder)


class FleetWorkload:
    """Plays a ``fleet`` scenario: devices are switched on and off, act when they are due, and suffer faults.

    Args:
        job: what to play.
        recorder: counts.
    """

    def __init__(self, job: FleetJob, recorder: Recorder) -> None:
        self._job = job
        self._keys = read_keys(job.keys)
        self._clock = LoopClock()
        self._wheel = Wheel(self._clock)
        self._recorder = recorder
        self._origin_s = job.origin_s
        self._build_models()
        self._measurement = Measurement(recorder)
        self._commands = CommandTracker(recorder, [command.name for command in job.scenario.commands])
        self._file_ledger = None if job.ledger is None else job.ledger.open(into_loop(asyncio.get_running_loop()))
        kept: Ledger = self._file_ledger or Ledger()
        self._tracked = TrackedLedger(kept, self._commands)
        # Without devices behind them commands get no further than the service.
        self._ledger: Ledger = kept if job.scenario.kind == "requests" else self._tracked
        self._feed = EventFeed(Plan(job.scenario), job.devices)
        self._agenda = Agenda(self._wheel, 0.0, self.happen)
        self._began_s = 0.0
        self._filing: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._devices: Devices | None = None
        self._operator: Operator | None = None
        self._operator_engine = Http1Engine(
            HttpOptions(read_origin(job.operator_url, job.operator_ca_file), pool=8), self._wheel
        )
        self._switches: Switchboard | None = None
        self._drained_from_s: float | None = None
        self._held: dict[int, list[Event]] = {}  # orders to devices that were never in contact, by device
        job_waits = job.scenario.kind == "devices" and not job.scenario.target.traits.is_pushed
        self._waits_for_contact = job_waits and COMMAND_STATUS not in job.offers
        self._is_over = False
        self._news = asyncio.Event()
        self._heap = GcFreeze()  # before the run begins: it takes a moment, in which nothing could be sent

    @property
    def devices(self) -> int:
        """How many devices this worker plays. See :class:`~simulator.fleet.workload.base.Workload`."""
        return len(self._job.device_ids)

    def begin(self, at_s: float) -> None:
        """Build the devices; the plan's events begin at ``at_s``."""
        job = self._job
        self._began_s = self._tracked.began_s = at_s
        self._agenda = Agenda(self._wheel, at_s, self.happen)
        self._origin_s = time.time() + at_s - time.monotonic()
        faults = ActiveFaults(at_s, self._origin_s)
        fleet = SharedSettings(
            job.device_offers,
            job.scenario.seed,
            job.run,
            numbered=job.ledger is not None and job.ledger.numbered,
            first_number=job.ledger.first_number if job.ledger is not None else 0,
            ledger=self._ledger,
            began_s=at_s,
            faults=faults if job.scenario.kind == "devices" and job.scenario.faults else None,
            dialect=job.scenario.target.dialect.dialect(),
            base_url=job.address.base_url,
            ages=ReadingAges(self._recorder),
        )
        members = [
            Member(device_id, job.product_id, self._models[number])
            for device_id, number in zip(job.device_ids, job.model_numbers, strict=True)
        ]
        parts = WorkerParts(members, fleet, self._clock, self._wheel, job.connections)
        options: TransportOptions = {
            "first_index": job.devices.start,
            "observer": self._measurement,
            "timeout_s": job.scenario.target.timeout_s,
            "on_news": self._news.set,
        }
        self._devices = make_devices(job.scenario, job.address, parts, options)
        self._measurement.is_excused = self._devices.has_link_fault
        self._switches = Switchboard(job.scenario, faults, self._devices, self._wheel, self._clock, job.devices)
        self._switches.begin(self._feed.moved)
        self._operator = self._make_operator(at_s)
        self._filing = start_task(self._file_events(), "plan")
        self._flushing = start_task(self._flush(), "ledger-flush")

    def enter_phase(self, index: int, at_s: float) -> None:
        """What comes behind a barrier has its time now, where the phase before this one waited at it."""
        if not self._feed.enter(index, at_s - self._began_s):
            return
        if self._switches is not None:
            self._switches.begin(self._feed.moved)
        if self._drained_from_s is None:
            self._file(time.monotonic() - self._began_s + _AHEAD_S)  # what the phase begins with is due now

    def gauges(self) -> Mapping[str, float]:
        """What is the case now, such as ``online``; asked once a second."""
        if self._devices is None:
            return {}
        found = {**self._devices.figures(), "open_commands": float(len(self._commands) + self._held_orders)}
        if self._file_ledger is not None:
            counts = self._file_ledger.counts
            found |= {
                "readings_sent": float(counts["sent"]),
                "readings_accepted": float(counts["accepted"]),
                "readings_unanswered": float(counts["unanswered"]),
                "commands_ordered": float(counts["ordered"]),
                "commands_reported": float(counts["reported"]),
            }
        return found

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """No new readings and commands; what fell due and what waits is handed over."""
        self._drained_from_s = from_s
        devices, switches, operator = self._devices, self._switches, self._operator
        if devices is None or switches is None or operator is None:
            return Leftover()
        if self._filing is not None:
            self._filing.cancel()
        self._file(from_s - self._began_s)
        self._agenda.keep(_OPEN, from_s - self._began_s)
        devices.await_requests(from_s)
        devices.sample(on=False)
        await switches.end()
        has_devices = self._job.scenario.kind == "devices"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                while (
                    self._agenda
                    or not devices.has_settled()
                    or operator.under_way
                    or self._commands
                    or self._held
                    or (has_devices and self._commands.count_unordered() < operator.count_unnumbered())
                ):
                    self._news.clear()
                    await self._news.wait()
        late = devices.unsettled()
        names = self._job.names
        first = self._job.devices.start
        return Leftover(tuple(names[device - first] for device in late[:_LATE_SHOWN]), len(late))

    async def close(self) -> WorkloadSummary:
        """Close every connection and file; the last word. See :class:`~simulator.fleet.workload.base.Workload`."""
        self._is_over = True
        broken = await self._end_tasks()
        self._heap.close()
        self._commands.close(time.monotonic())
        never_sent = 0 if broken else self._never_sent(time.monotonic())
        self._recorder.intended += never_sent
        self._recorder.undelivered += never_sent
        self._agenda.clear()
        if self._switches is not None:
            self._switches.stop()
        aside = 0 if self._devices is None else round(self._devices.figures().get("results_put_aside", 0.0))
        if self._devices is not None:
            self._recorder.undelivered += await self._devices.close()
            if self._job.scenario.kind == "devices":  # pure load has no power to lose
                for device in self._job.devices:
                    self._devices.switch_off(device)
        if self._operator is not None:
            self._recorder.undelivered += self._operator.end()
        await self._operator_engine.close()
        gaps = self._file_ledger.close() if self._file_ledger is not None else ()
        if broken is not None:
            raise broken  # events that were not filed, or a ledger that was not written: no figure is worth anything
        names = list(zip(self._job.device_ids, self._job.names, strict=True))
        refused = self._operator.refused if self._operator is not None else {}
        failures = [f"{count} commands were refused: {why}" for why, count in refused.items()]
        if self._held:
            failures.append(f"{self._held_orders} commands were not sent: {_NO_CONTACT}")
        # Each worker knows this of the whole fleet: the first one reports it.
        faults = () if self._job.worker or self._switches is None else self._switches.truths()
        return WorkloadSummary(
            faults=faults,
            slowest=self._measurement.slowest(names, self._job.devices.start),
            failures=tuple(failures),
            missed=sum(gap.records for gap in gaps),
            commands=self._operator.command_ends(self._job.scenario.commands, self._commands.ends)
            if self._operator
            else (),
            extras={
                **({"errors": dict(self._measurement.sentences)} if self._measurement.sentences else {}),
                **({"results": {"put_aside": aside}} if aside else {}),
            },
        )

    async def _end_tasks(self) -> Exception | None:
        """End what goes on beside the devices; why one of them had ended before, None when none had."""
        tasks = [task for task in (self._filing, self._flushing) if task is not None]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return next((error for error in ended if isinstance(error, Exception)), None)

    def _build_models(self) -> None:
        """The models, for a run that begins at ``self._origin_s``."""
        job = self._job
        self._models = build_models(job.scenario, job.folder, self._origin_s)

    async def _file_events(self) -> None:
        """Keep the wheel filled."""
        while True:
            now_s = time.monotonic() - self._began_s
            self._file(now_s + _AHEAD_S)
            await asyncio.sleep(_AHEAD_S / 8)

    def _file(self, horizon_s: float) -> None:
        """The events until then; while a barrier waits until now, since it may open at any time."""
        self._agenda.add(self._feed.take(horizon_s))

    def _never_sent(self, now_s: float) -> int:
        """How many open arrivals and commands fell due and never went out; once, at the end."""
        if self._devices is None:
            return 0
        until_s = (now_s if self._drained_from_s is None else self._drained_from_s) - self._began_s
        self._file(until_s)
        return self._agenda.count(_OPEN, until_s)

    def happen(self, event: Event) -> None:
        """An event's time has come."""
        devices, switches, operator = self._devices, self._switches, self._operator
        if devices is None or switches is None or operator is None or self._is_over:
            return
        due_s = self._began_s + event.time_s
        match event.kind:
            case EventKind.SWITCH_ON:
                switches.give_back("power", event.device)
            case EventKind.SWITCH_OFF:
                switches.take("power", event.device)
            case EventKind.RECONNECT:
                switches.give_back("link", event.device)
            case EventKind.DISCONNECT:
                switches.take("link", event.device)
            case EventKind.COMMAND:
                self._order(event, due_s, devices, operator)
            case EventKind.ARRIVAL:
                devices.arrive(event.number, event.device, due_s)

    def _order(self, event: Event, due_s: float, devices: Devices, operator: Operator) -> None:
        """Send a command; on a server that lists no states, not before its device has had a list.

        What such a server lists at a device's first contact is history to the device, and never carried out.
        """
        if not self._waits_for_contact or devices.had_contact(event.device):
            operator.send(event.device, event.number, event.serial, due_s)
            return
        if not self._held:
            self._wheel.at(time.monotonic() + _CONTACT_LOOK_S, self._send_held)
        self._held.setdefault(event.device, []).append(event)

    def _send_held(self) -> None:
        """Send what waited for its device's first contact: it is due from then on."""
        devices, operator, now_s = self._devices, self._operator, time.monotonic()
        if devices is None or operator is None or self._is_over:
            return
        for device in [device for device in self._held if devices.had_contact(device)]:
            for event in self._held.pop(device):
                operator.send(event.device, event.number, event.serial, now_s)
        if self._held:
            self._wheel.at(now_s + _CONTACT_LOOK_S, self._send_held)

    @property
    def _held_orders(self) -> int:
        return sum(map(len, self._held.values()))

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self._commands.expire(time.monotonic() - EXPIRY_MARGIN_S):
                self._news.set()
            self._heap.look(0 if self._devices is None else round(self._devices.figures().get("online", 0.0)))
            if self._file_ledger is not None:
                self._file_ledger.flush()

    def _make_operator(self, began_s: float) -> Operator:
        job = self._job
        origin = read_origin(job.operator_url, job.operator_ca_file)
        orders = OrderContext(
            self._operator_engine,
            [RequestTemplate(origin, headers_of(pair)) for pair in self._keys],
            self._wheel,
            time.monotonic,
            job.scenario.target.timeout_s,
            job.offers,
            job.run,
        )
        return Operator(
            orders,
            job.device_ids,
            job.devices.start,
            [(command.payload, command.ttl_s) for command in job.scenario.commands],
            ledger=self._ledger,
            observer=self._measurement,
            began_s=began_s,
            on_ordered=lambda each: self._commands.ordered(each.command_id, each.stream, each.due_s, each.expires_s),
        )
