"""A worker's range of devices: switched by the plan, driven by their own cores, measured and written down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent.wire.extensions import COMMAND_STATUS
from simulator.fleet.audit.file_ledger import LedgerTarget
from simulator.fleet.audit.fleet_ledger import FleetLedger, NoLedger
from simulator.fleet.device.circumstances import Circumstances
from simulator.fleet.device.driver import Member
from simulator.fleet.device.model import Fleetwide
from simulator.fleet.device.quiet_heap import QuietHeap
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.engine import Http1Engine, HttpOptions
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.fleet.faults.base import DeviceFault
from simulator.fleet.metrics.ages import ReadingAges
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.metrics.stages import CommandWays
from simulator.fleet.models.interference import NO_INTERFERENCE
from simulator.fleet.plan.events import Event, EventKind
from simulator.fleet.plan.plan import Plan
from simulator.fleet.play.afflictions import Afflictions, device_faults, read_device_faults, truths
from simulator.fleet.play.base import Leftover, PlaySummary
from simulator.fleet.play.devices import Address, Cast, Devices, Ground, make_devices, slow_target
from simulator.fleet.play.measurement import Measurement, StagedLedger
from simulator.fleet.play.models import build_models, device_model
from simulator.fleet.play.network import NetworkFaults
from simulator.fleet.play.operator import EXPIRY_MARGIN_S, Operator, Way
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.python_file import Program
from simulator.fleet.target.asking import Keyring
from simulator.fleet.target.way import KeyPairFile, read_keys
from simulator.watched import into_loop, start_task

_AHEAD_S: Final = 2.0
_KINDS: Final = frozenset(
    {EventKind.SWITCH_ON, EventKind.SWITCH_OFF, EventKind.RECONNECT, EventKind.DISCONNECT}
    | {EventKind.COMMAND, EventKind.ARRIVAL}
)
_OPEN: Final = frozenset({EventKind.COMMAND, EventKind.ARRIVAL})
"""What comes at its time whatever the target does; a device's own requests wait for each other."""
_LATE_SHOWN: Final = 10
_CONTACT_LOOK_S: Final = 0.1
_NO_CONTACT: Final = (
    "their devices never had an answer to a poll, and a server that lists no states would have shown them as history"
)


@dataclass(frozen=True, slots=True)
class FleetJob:
    """One worker's part of a fleet, pickled.

    Attributes:
        scenario: the whole one.
        address: where devices talk to, and as whom.
        keys: of the run, for the operator.
        operator_url: where commands are sent.
        operator_ca_file: the authorities that alone are trusted there; None trusts the system's.
        worker: its number.
        devices: the range of this worker, in the fleet.
        device_ids, names: of those devices.
        folder: of the scenario's file: relative paths in it start there.
        origin_s: when what is played once begins, seconds since the epoch.
        model_numbers: the model of each device of the range.
        offers: the service's extensions, for the operator.
        device_offers: those of whatever the devices talk to: the service, or the gateway in front of it.
        run: tells this run from all others.
        ledger: where this worker's ledger goes; None keeps none.
        connections: for devices that share them.
        program: gives the readings; None where the signals do.
    """

    scenario: Scenario
    address: Address
    keys: tuple[KeyPairFile, ...]
    operator_url: str
    worker: int
    devices: range
    device_ids: tuple[str, ...]
    names: tuple[str, ...]
    product_id: str
    folder: Path
    origin_s: float
    model_numbers: tuple[int, ...]
    offers: frozenset[str]
    device_offers: frozenset[str]
    run: str
    ledger: LedgerTarget | None
    connections: int
    program: Program | None = None
    operator_ca_file: Path | None = None

    def make(self, recorder: Recorder) -> FleetPlay:
        """See :class:`~simulator.fleet.run.worker.Job`."""
        return FleetPlay(self, recorder)


class FleetPlay:
    """See :class:`~simulator.fleet.play.base.Play`.

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
        self._fault_settings = read_device_faults(job.scenario)
        self._measurement = Measurement(recorder)
        self._ways = CommandWays(recorder, [command.name for command in job.scenario.commands])
        self._file_ledger = None if job.ledger is None else job.ledger.open(into_loop(asyncio.get_running_loop()))
        kept: FleetLedger = self._file_ledger or NoLedger()
        self._staged = StagedLedger(kept, self._ways)
        # Without devices behind them commands get no further than the service.
        self._ledger: FleetLedger = kept if job.scenario.level == "wire" else self._staged
        self._entered = Plan(job.scenario)
        self._plan = self._entered.waiting(0)
        self._plan.prepare(job.devices)
        self._replanning: asyncio.Task[None] | None = None
        self._phase = 0
        self._began_s = 0.0
        self._filed_s = 0.0
        self._filing: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._troupe: Devices | None = None
        self._operator: Operator | None = None
        self._operator_engine = Http1Engine(
            HttpOptions(read_origin(job.operator_url, job.operator_ca_file), pool=8), self._wheel
        )
        self._afflictions: Afflictions | None = None
        self._network: NetworkFaults | None = None
        self._faults: dict[int, DeviceFault[Any]] = {}  # those whose time is certain, by place in the scenario
        self._drained_from_s: float | None = None
        self._owed: deque[float] = deque()
        self._held: dict[int, list[Event]] = {}  # orders to devices that were never in contact, by device
        job_waits = job.scenario.level == "core" and job.scenario.target.transport != "mqtt"
        self._waits_for_contact = job_waits and COMMAND_STATUS not in job.offers
        self._is_over = False
        self._news = asyncio.Event()
        self._heap = QuietHeap()  # before the run begins: it takes a moment, in which nothing could be sent

    @property
    def devices(self) -> int:
        """See :class:`~simulator.fleet.play.base.Play`."""
        return len(self._job.device_ids)

    def begin(self, at_s: float) -> None:
        """Build the devices; the plan's events begin at ``at_s``."""
        job = self._job
        self._began_s = self._staged.began_s = at_s
        self._origin_s = time.time() + at_s - time.monotonic()
        if any(model.eventful for model in self._models):
            self._build_models()
        around = self._circumstances(at_s)
        fleet = Fleetwide(
            job.device_offers,
            job.scenario.seed,
            job.run,
            numbered=job.ledger is not None and job.ledger.header.sequence_name is not None,
            first_number=job.ledger.header.first_number if job.ledger is not None else 0,
            ledger=self._ledger,
            began_s=at_s,
            circumstances=None if job.scenario.level == "wire" else around,
            dialect=job.scenario.target.dialect.dialect(),
            base_url=job.address.base_url,
            ages=ReadingAges(self._recorder),
        )
        members = [
            Member(device_id, job.product_id, self._kinds[number])
            for device_id, number in zip(job.device_ids, job.model_numbers, strict=True)
        ]
        signals = [self._models[number].signals for number in job.model_numbers]
        cast = Cast(job.devices.start, members, signals, fleet)
        ground = Ground(self._clock, self._wheel, self._measurement, self._news.set, job.connections)
        self._troupe = make_devices(job.scenario, job.address, cast, ground)
        self._measurement.is_excused = self._troupe.is_afflicted
        if around is not None:
            self._afflictions = Afflictions(
                self._troupe, around, self._wheel, self._clock, seed=job.scenario.seed, range_of=job.devices
            )
            self._network = NetworkFaults(
                self._troupe,
                around,
                self._wheel,
                seed=job.scenario.seed,
                range_of=job.devices,
                slow=slow_target(job.scenario, job.address),
                part=len(job.device_ids) / job.scenario.fleet.devices,
            )
            self._troupe = self._afflictions
            self._begin_faults()
        self._operator = self._make_operator(at_s)
        self._filing = start_task(self._file_events(), "plan")
        self._flushing = start_task(self._flush(), "ledger-flush")

    def enter_phase(self, index: int, at_s: float) -> None:
        """The plan moves with the phase where the one before it waited at its barrier."""
        if index == 0:
            return
        self._phase = index
        if not self._entered.timeline.spans[index - 1].waits:
            return  # it begins when it was planned to, and everything of it has its time
        entered_s = at_s - self._began_s
        self._entered = self._entered.entered(index, entered_s)
        self._begin_faults()
        if self._drained_from_s is None:
            self._replanning = start_task(self._replan(self._entered.waiting(index), entered_s), "phase-plan")

    async def _replan(self, plan: Plan, from_s: float) -> None:
        """Follow another plan from a time on. It is made beside the loop, which has devices to serve."""
        await asyncio.to_thread(plan.prepare, self._job.devices)
        self._plan = plan
        # What was filed while the barrier waited was the devices' own power, which does no harm twice.
        self._filed_s = min(self._filed_s, from_s)
        self._file(time.monotonic() - self._began_s + _AHEAD_S)  # what the phase begins with is due now

    def gauges(self) -> Mapping[str, float]:
        """See :class:`~simulator.fleet.play.base.Play`."""
        if self._troupe is None:
            return {}
        found = {**self._troupe.gauges(), "open_commands": float(len(self._ways) + self._held_orders)}
        if self._file_ledger is not None:
            counts = self._file_ledger.counts
            found |= {
                "readings_sent": float(counts.sent),
                "readings_accepted": float(counts.accepted),
                "readings_unanswered": float(counts.unanswered),
                "commands_ordered": float(counts.ordered),
                "commands_reported": float(counts.reported),
            }
        return found

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """No new readings and commands; what fell due and what waits is handed over."""
        self._drained_from_s = from_s
        troupe, operator = self._troupe, self._operator
        if troupe is None or operator is None:
            return Leftover()
        if self._filing is not None:
            self._filing.cancel()
        if self._replanning is not None:
            await asyncio.wait([self._replanning])
        self._file(from_s - self._began_s)
        if self._afflictions is not None:
            self._afflictions.end()
        if self._network is not None:
            await self._network.end()
        # Whoever is off by the plan comes back, so that what its disk holds can be handed over, too.
        for device in self._job.devices:
            troupe.restore(device)
            troupe.switch_on(device)
        troupe.sample(on=False)
        troupe.await_requests(from_s)
        has_devices = self._job.scenario.level == "core"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                while (
                    self._owes(from_s)
                    or not troupe.has_settled()
                    or operator.tally.under_way
                    or self._ways
                    or self._held
                    or (has_devices and self._ways.count_unordered() < operator.count_unnumbered())
                ):
                    self._news.clear()
                    await self._news.wait()
        late = troupe.unsettled()
        names = self._job.names
        first = self._job.devices.start
        return Leftover(tuple(names[device - first] for device in late[:_LATE_SHOWN]), len(late))

    async def close(self) -> PlaySummary:
        """See :class:`~simulator.fleet.play.base.Play`."""
        self._is_over = True
        broken = await self._end_tasks()
        self._heap.close()
        self._ways.close(time.monotonic())
        never_sent = 0 if broken else self._never_sent(time.monotonic())
        self._recorder.intended += never_sent
        self._recorder.undelivered += never_sent
        if self._network is not None:
            await self._network.end()
        aside = 0 if self._troupe is None else round(self._troupe.gauges().get("results_put_aside", 0.0))
        if self._troupe is not None:
            self._recorder.undelivered += await self._troupe.close()
            if self._job.scenario.level == "core":  # pure load has no power to lose
                for device in self._job.devices:
                    self._troupe.switch_off(device)
        if self._operator is not None:
            self._recorder.undelivered += self._operator.end()
        await self._operator_engine.close()
        gaps = self._file_ledger.close() if self._file_ledger is not None else ()
        if broken is not None:
            raise broken  # events that were not filed, or a ledger that was not written: no figure is worth anything
        names = list(zip(self._job.device_ids, self._job.names, strict=True))
        refused = self._operator.tally.refused if self._operator is not None else {}
        failures = [f"{count} commands were refused: {why}" for why, count in refused.items()]
        if self._held:
            failures.append(f"{self._held_orders} commands were not sent: {_NO_CONTACT}")
        scenario = self._job.scenario
        # Every worker would tell the same of the whole fleet: one does.
        faults = () if self._job.worker else truths(self._played_faults(), scenario.seed, scenario.fleet.devices)
        return PlaySummary(
            faults=faults,
            slowest=self._measurement.slowest(names, self._job.devices.start),
            failures=tuple(failures),
            missed=sum(gap.records for gap in gaps),
            commands=self._operator.command_ends(self._job.scenario.commands, self._ways.ends)
            if self._operator
            else (),
            extras={
                **({"faults": dict(self._measurement.sentences)} if self._measurement.sentences else {}),
                **({"results": {"put_aside": aside}} if aside else {}),
            },
        )

    async def _end_tasks(self) -> Exception | None:
        """End what goes on beside the devices; why one of them had ended before, None when none had."""
        tasks = [task for task in (self._filing, self._flushing, self._replanning) if task is not None]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return next((error for error in ended if isinstance(error, Exception)), None)

    def _build_models(self) -> None:
        """The models, for a run that begins at ``self._origin_s``."""
        job = self._job
        target = job.scenario.target
        self._models = build_models(job.scenario, job.folder, self._origin_s, job.program)
        self._kinds = [
            device_model(
                settings,
                model,
                held=target.transport != "http_poll",
                defies=target.on_limited == "defy",
            )
            for settings, model in zip(job.scenario.fleet.models, self._models, strict=True)
        ]

    def _circumstances(self, at_s: float) -> Circumstances | None:
        """What is the case beside the signals, None for nothing. Pure load meets faults of the network only."""
        # Without devices nothing has a state or a clock; faults of the network go by the requests.
        is_wire = self._job.scenario.level == "wire"
        eventful = not is_wire and any(model.states or model.clock for model in self._models)
        if not eventful and not self._fault_settings:
            return None
        has_clocks = not is_wire and any(model.clock for model in self._models)
        return Circumstances(at_s, self._origin_s, NO_INTERFERENCE, has_clocks=has_clocks)

    def _begin_faults(self) -> None:
        """Begin the faults whose time is certain by now, each once: those behind a barrier wait until it opens."""
        if self._afflictions is None or self._network is None:
            return
        timeline, planned = self._entered.timeline, self._entered.planned
        moved = partial(timeline.moved, planned=planned, entered=self._phase)
        certain = device_faults(self._fault_settings, self._origin_s, moved)
        new = [fault for number, fault in certain.items() if number not in self._faults]
        self._faults = certain | self._faults
        self._afflictions.begin(new)
        self._network.begin(new, self._clock.time())

    def _played_faults(self) -> tuple[DeviceFault[Any], ...]:
        return tuple(self._faults[number] for number in sorted(self._faults))

    async def _file_events(self) -> None:
        """Keep the wheel filled."""
        while True:
            now_s = time.monotonic() - self._began_s
            self._file(now_s + _AHEAD_S)
            await asyncio.sleep(_AHEAD_S / 8)

    def _file(self, horizon_s: float) -> None:
        """The events until then; while a barrier waits until now, since it may open at any time."""
        timeline = self._plan.timeline
        barrier = timeline.spans[timeline.barrier_from(self._phase)]
        if barrier.waits:
            now_s = time.monotonic() - self._began_s
            horizon_s = min(horizon_s, max(barrier.begin_s + barrier.duration_s, now_s))
        if horizon_s <= self._filed_s:
            return
        for event in self._plan.events(self._job.devices, self._filed_s, horizon_s, _KINDS):
            due_s = self._began_s + event.time_s
            if event.kind in _OPEN:
                self._owed.append(due_s)
            self._wheel.at(due_s, partial(self.happen, event))
        self._filed_s = horizon_s

    def _owes(self, until_s: float) -> bool:
        """Whether something that was due by then has not gone out."""
        return bool(self._owed) and self._owed[0] < until_s

    def _never_sent(self, now_s: float) -> int:
        """How many open arrivals and commands fell due and never went out; once, at the end."""
        if self._troupe is None:
            return 0
        until_s = now_s if self._drained_from_s is None else self._drained_from_s
        self._file(until_s - self._began_s)
        return sum(due_s < until_s for due_s in self._owed)

    def happen(self, event: Event) -> None:
        """An event's time has come."""
        troupe, operator = self._troupe, self._operator
        if troupe is None or operator is None or self._is_over:
            return
        due_s = self._began_s + event.time_s
        # In the drain only what was due before it still happens: commands and arrivals, late.
        if self._drained_from_s is not None and (event.kind not in _OPEN or due_s >= self._drained_from_s):
            return
        if event.kind in _OPEN:
            self._owed.popleft()
        match event.kind:
            case EventKind.SWITCH_ON:
                troupe.switch_on(event.device)
            case EventKind.SWITCH_OFF:
                troupe.switch_off(event.device)
            case EventKind.RECONNECT:
                troupe.restore(event.device)
            case EventKind.DISCONNECT:
                troupe.lose(event.device)
            case EventKind.COMMAND:
                self._order(event, due_s, troupe, operator)
            case EventKind.ARRIVAL:
                troupe.arrive(event.number, event.device, due_s)

    def _order(self, event: Event, due_s: float, troupe: Devices, operator: Operator) -> None:
        """Send a command; on a server that lists no states, not before its device has had a list.

        What such a server lists at a device's first contact is history to the device, and never carried out.
        """
        if not self._waits_for_contact or troupe.had_contact(event.device):
            operator.send(event.device, event.number, event.serial, due_s)
            return
        if not self._held:
            self._wheel.at(time.monotonic() + _CONTACT_LOOK_S, self._send_held)
        self._held.setdefault(event.device, []).append(event)

    def _send_held(self) -> None:
        """Send what waited for its device's first contact: it is due from then on."""
        troupe, operator, now_s = self._troupe, self._operator, time.monotonic()
        if troupe is None or operator is None or self._is_over:
            return
        for device in [device for device in self._held if troupe.had_contact(device)]:
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
            if self._ways.expire(time.monotonic() - EXPIRY_MARGIN_S):
                self._news.set()
            self._heap.look(0 if self._troupe is None else round(self._troupe.gauges().get("online", 0.0)))
            if self._file_ledger is not None:
                self._file_ledger.flush()

    def _make_operator(self, began_s: float) -> Operator:
        job = self._job
        way = Way(
            self._operator_engine,
            RequestTemplate(
                read_origin(job.operator_url, job.operator_ca_file), Keyring(self._keys).headers(job.worker)
            ),
            self._wheel,
            time.monotonic,
            job.scenario.target.timeout_s,
            job.offers,
            job.run,
        )
        return Operator(
            way,
            job.device_ids,
            job.devices.start,
            [(command.payload, command.ttl_s) for command in job.scenario.commands],
            ledger=self._ledger,
            observer=self._measurement,
            began_s=began_s,
            on_ordered=lambda each: self._ways.ordered(each.command_id, each.stream, each.due_s, each.expires_s),
        )
