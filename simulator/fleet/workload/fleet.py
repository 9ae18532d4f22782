"""One worker's devices in a run: switched by the plan, measured, and written to the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.wire.server import COMMAND_STATUS
from simulator.fleet.audit.ledger import Ledger, SqliteLedger
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import Fleet, Member
from simulator.fleet.engine.wheel import LoopClock, Wheel
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.metrics.ages import CommandTracker
from simulator.fleet.metrics.health import GcFreeze
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.plan import Event, EventFeed, EventKind, Plan
from simulator.fleet.workload.base import DeviceJob, Leftover, Measurement, TrackedLedger, WorkloadSummary
from simulator.fleet.workload.devices import Address, Devices, build_models, make_devices
from simulator.fleet.workload.operator import EXPIRY_MARGIN_S, Operator
from simulator.fleet.workload.requests import RequestDriver
from simulator.fleet.workload.switchboard import Agenda, Switchboard
from simulator.watched import into_loop, start_task

_AHEAD_S: Final = 2.0
_OPEN: Final = frozenset({EventKind.COMMAND, EventKind.ARRIVAL})
"""What comes at its time whatever the target does; a device's own requests wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJob(DeviceJob):
    """One worker's part of a fleet, pickled.

    Attributes:
        address: where devices talk to, and as whom.
        device_offers: the extensions of whatever the devices talk to: the service, or the gateway in front of it.
    """

    address: Address
    device_offers: frozenset[str]

    def make(self, recorder: Recorder) -> FleetWorkload:
        """Build everything; called in the running loop. Nothing is sent yet."""
        return FleetWorkload(self, recorder)


class FleetWorkload:
    """Plays devices or requests: they are switched on and off, act when they are due, and suffer faults.

    Args:
        job: what to play.
        recorder: counts.
    """

    _devices: Devices
    _operator: Operator
    _switches: Switchboard
    _agenda: Agenda

    def __init__(self, job: FleetJob, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        self._wheel = Wheel(LoopClock())
        self._models = build_models(job.scenario, job.folder)
        self._measurement = Measurement(recorder)
        self._commands = CommandTracker(recorder, [command.name for command in job.scenario.commands])
        on_failure = into_loop(asyncio.get_running_loop())
        self._file_ledger = None if job.ledger is None else SqliteLedger(job.ledger, on_failure)
        self._feed = EventFeed(Plan(job.scenario), job.devices)
        self._has_begun = self._is_over = False
        self._began_s = 0.0
        self._drained_from_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._heap = GcFreeze()  # before the run begins: it takes a moment, in which nothing could be sent

    @property
    def devices(self) -> int:
        """How many devices this worker plays."""
        return len(self._job.device_ids)

    def begin(self, at_s: float) -> None:
        """Build the devices; the plan's events begin at ``at_s``."""
        job, scenario = self._job, self._job.scenario
        self._began_s = at_s
        faults = ActiveFaults(at_s, time.time() + at_s - time.monotonic())
        kept: Ledger = self._file_ledger or Ledger()
        fleet = Fleet(
            wheel=self._wheel,
            offers=job.device_offers,
            seed=scenario.seed,
            run=job.run,
            first_index=job.devices.start,
            numbered=job.ledger is not None and job.ledger.numbered,
            first_number=job.ledger.first_number if job.ledger is not None else 0,
            ledger=TrackedLedger(kept, self._commands, at_s),
            began_s=at_s,
            timeout_s=scenario.target.timeout_s,
            faults=faults if scenario.faults else None,
            dialect=scenario.target.dialect.dialect(),
            base_url=job.address.base_url,
            observer=self._measurement,
            on_news=self._news.set,
        )
        members = [
            Member(device_id, job.product_id, self._models[number])
            for device_id, number in zip(job.device_ids, job.model_numbers, strict=True)
        ]
        self._devices = devices = make_devices(scenario, job.address, fleet, members, job.connections)
        self._measurement.is_excused = self._devices.links.has_fault
        self._switches = Switchboard(scenario, faults, self._devices, fleet, job.devices)
        self._switches.begin(self._feed.moved)
        lists_no_states = COMMAND_STATUS not in job.offers
        had_contact = devices.had_contact if isinstance(devices, HttpDriver) and lists_no_states else None
        self._operator = Operator(job, fleet, self._measurement, self._commands.ordered, had_contact)
        self._agenda = Agenda(self._wheel, at_s, self._happen)
        self._has_begun = True
        self._task = start_task(self._keep_going(), "plan and ledger")

    def enter_phase(self, index: int, at_s: float) -> None:
        """What comes behind a barrier has its time now, where the phase before this one waited at it."""
        if not self._feed.enter(index, at_s - self._began_s):
            return
        self._switches.begin(self._feed.moved)
        if self._drained_from_s is None:
            self._file(time.monotonic() - self._began_s + _AHEAD_S)  # what the phase begins with is due now

    def gauges(self) -> Mapping[str, float]:
        """What is the case now, such as ``online``; asked once a second."""
        if not self._has_begun:
            return {}
        found = {**self._devices.figures(), "open_commands": float(len(self._commands) + self._operator.held)}
        if self._file_ledger is not None:
            counts = self._file_ledger.counts
            found |= {f"readings_{event}": float(counts[event]) for event in ("sent", "accepted", "unanswered")}
            found |= {f"commands_{event}": float(counts[event]) for event in ("ordered", "reported")}
        return found

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """No new readings and commands; what fell due and what waits is handed over."""
        self._drained_from_s = from_s
        if not self._has_begun:
            return Leftover()
        self._file(from_s - self._began_s)
        self._agenda.keep(_OPEN, from_s - self._began_s)
        devices, operator = self._devices, self._operator
        devices.drain(from_s)
        await self._switches.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                while (
                    self._agenda.events
                    or not devices.has_settled()
                    or operator.is_busy
                    or self._commands
                    or self._commands.count_unordered() < operator.unanswered
                ):
                    self._news.clear()
                    await self._news.wait()
        return Leftover.of(list(map(self._job.scenario.fleet.identifier, devices.unsettled())))

    async def close(self) -> WorkloadSummary:
        """Close every connection and file; what the whole part was."""
        self._is_over = True
        broken = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            broken = None if self._task.cancelled() else self._task.exception()
        self._heap.close()
        self._commands.close(time.monotonic())
        undelivered = 0
        if self._has_begun:
            undelivered = await self._close_devices(count_unsent=broken is None)
        missed = self._file_ledger.close() if self._file_ledger is not None else 0
        if broken is not None:
            raise broken  # events that were not filed, or a ledger that was not written: no figure is worth anything
        self._recorder.undelivered += undelivered
        return self._summary(missed) if self._has_begun else WorkloadSummary(missed=missed)

    async def _close_devices(self, *, count_unsent: bool) -> int:
        """Close devices and operator; how many open arrivals never ended, and how many commands never went out."""
        unsent = 0
        if count_unsent:  # what fell due and never went out
            until_s = time.monotonic() if self._drained_from_s is None else self._drained_from_s
            self._file(until_s - self._began_s)
            self._agenda.keep(_OPEN, until_s - self._began_s)
            unsent = len(self._agenda.events)
            self._recorder.intended += unsent
        self._switches.stop()
        undelivered = unsent + await self._devices.close()
        for device in self._job.devices:
            self._devices.switch_off(device)
        await self._operator.close()
        return undelivered

    def _summary(self, missed: int) -> WorkloadSummary:
        undeliverable = round(self._devices.figures().get("results_put_aside", 0.0))
        return WorkloadSummary(
            # Each worker knows this of the whole fleet: the first one reports it.
            faults=() if self._job.devices.start else self._switches.truths(),
            failures=tuple(self._operator.failures()),
            missed=missed,
            commands=self._operator.command_ends(self._commands.ends),
            extras={
                **self._measurement.errors,
                **({"results": {"put_aside": undeliverable}} if undeliverable else {}),
            },
        )

    # --- the plan's events --------------------------------------------------------------------------------------------

    async def _keep_going(self) -> None:
        """Keep the wheel filled; each second write, and note commands that expired at the service."""
        flushed_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if self._drained_from_s is None:
                self._file(now_s - self._began_s + _AHEAD_S)
            if now_s >= flushed_s + 1.0:
                flushed_s = now_s
                self._flush(now_s)
            await asyncio.sleep(_AHEAD_S / 8)

    def _flush(self, now_s: float) -> None:
        if self._commands.expire(now_s - EXPIRY_MARGIN_S):
            self._news.set()
        if self._file_ledger is not None:
            self._file_ledger.flush()

    def _file(self, horizon_s: float) -> None:
        """The events until then; while a barrier waits until now, since it may open at any time."""
        self._agenda.add(self._feed.take(horizon_s))

    def _happen(self, event: Event) -> None:
        """An event's time has come."""
        if self._is_over:
            return
        due_s, switches = self._began_s + event.time_s, self._switches
        match event.kind:
            case EventKind.SWITCH_ON:
                switches.give_back("power", event.device)
            case EventKind.SWITCH_OFF:
                switches.take("power", event.device)
            case EventKind.COMMAND:
                self._operator.send(event, due_s)
            case EventKind.ARRIVAL:
                if isinstance(self._devices, RequestDriver):  # only they have any
                    self._devices.arrive(event.number, event.device, due_s)
