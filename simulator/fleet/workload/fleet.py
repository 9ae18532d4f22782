"""One worker's devices in a run: switched by the plan, measured, and recorded in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Final

from agent.wire.server import COMMAND_STATUS
from simulator.fleet.audit.ledger import Ledger, SqliteLedger
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import Fleet, Member
from simulator.fleet.engine.timers import LoopClock, Timers
from simulator.fleet.faults import ActiveFaults
from simulator.fleet.metrics.ages import CommandTracker
from simulator.fleet.metrics.health import GcFreeze
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.plan import Event, EventFeed, EventKind
from simulator.fleet.workload.base import Job, Leftover, Measurement, TrackedLedger, WorkloadSummary
from simulator.fleet.workload.devices import build_models, make_devices
from simulator.fleet.workload.operator import EXPIRY_MARGIN_S, Operator
from simulator.fleet.workload.requests import RequestDriver
from simulator.fleet.workload.switchboard import Agenda, Switchboard
from simulator.watched import into_loop, start_task

_AHEAD_S: Final = 2.0
_TICK_S: Final = 0.5
_OPEN: Final = frozenset({EventKind.COMMAND, EventKind.ARRIVAL})
"""Events that happen at their time whatever the target does; a device's own requests wait for each other."""


class FleetWorkload:
    """Runs devices, or plain requests: switches them on and off, and applies the scenario's faults and commands.

    Args:
        job: what to do.
        recorder: of the worker.
    """

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        scenario, ledger = job.scenario, job.ledger
        measurement = self._measurement = Measurement(recorder)
        self._commands = CommandTracker(recorder, [command.name for command in scenario.commands])
        on_failure = into_loop(asyncio.get_running_loop())
        self._file_ledger = None if ledger is None else SqliteLedger(ledger, on_failure)
        self._ledger = TrackedLedger(self._file_ledger or Ledger(), self._commands)
        self._news = asyncio.Event()
        self._faults = ActiveFaults()
        self._fleet = fleet = Fleet(
            timers=Timers(LoopClock()),
            offers=job.device_offers,
            seed=scenario.seed,
            run=job.run,
            first_index=job.devices.start,
            numbered=ledger is not None and ledger.numbered,
            first_number=ledger.first_number if ledger is not None else 0,
            ledger=self._ledger,
            timeout_s=scenario.target.timeout_s,
            faults=self._faults if scenario.faults else None,
            dialect=scenario.target.dialect.dialect(),
            base_url=job.device_url,
            observer=measurement,
            on_news=self._news.set,
        )
        models = build_models(scenario, job.folder)
        members = [
            Member(device_id, job.product_id, models[number])
            for device_id, number in zip(job.device_ids, job.model_numbers, strict=True)
        ]
        self._devices = devices = make_devices(job, fleet, members)
        measurement.is_excused = devices.links.has_fault
        lists_no_states = COMMAND_STATUS not in job.offers
        had_contact = devices.had_contact if isinstance(devices, HttpDriver) and lists_no_states else None
        self._operator = Operator(job, fleet, measurement, self._commands.ordered, had_contact)
        self._feed = EventFeed(scenario, job.devices)
        self._agenda = Agenda(fleet, self._happen)
        self._switches = Switchboard(scenario, self._faults, devices, fleet, job.devices)
        self._is_over = False
        self._drained_from_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._heap = GcFreeze()  # before the run begins: it takes a moment, in which nothing could be sent

    def begin(self, at_s: float) -> None:
        """Start the plan at ``at_s``."""
        self._fleet.began_s = self._ledger.began_s = self._faults.began_s = at_s
        self._faults.origin_s = time.time() + at_s - time.monotonic()
        self._switches.begin(self._feed.moved)
        self._task = start_task(self._keep_going(), "plan and ledger")

    def enter_phase(self, index: int, at_s: float) -> None:
        """Schedule what a barrier at the end of the phase before this one held back."""
        if not self._feed.enter(index, at_s - self._fleet.began_s):
            return
        self._switches.begin(self._feed.moved)
        if self._drained_from_s is None:
            self._schedule_until(time.monotonic() - self._fleet.began_s + _AHEAD_S)  # its first events are due now

    def gauges(self) -> Mapping[str, float]:
        """See :meth:`Workload.gauges`."""
        found = {**self._devices.figures(), "open_commands": float(len(self._commands) + self._operator.held)}
        if self._file_ledger is not None:
            counts = self._file_ledger.counts
            found |= {f"readings_{event}": float(counts[event]) for event in ("sent", "accepted", "unanswered")}
            found |= {f"commands_{event}": float(counts[event]) for event in ("ordered", "reported")}
        return found

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Make no new readings and commands; send what fell due and what waits."""
        self._drained_from_s = from_s
        self._schedule_until(from_s - self._fleet.began_s)
        self._agenda.keep(_OPEN, from_s - self._fleet.began_s)
        devices, operator = self._devices, self._operator
        devices.drain(from_s)
        self._switches.end()
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
        """Close every connection and file, and sum up."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._count_unsent()
        self._heap.close()
        self._commands.close(time.monotonic())
        self._switches.stop()
        self._recorder.undelivered += await self._devices.close()
        for device in self._job.devices:
            self._devices.switch_off(device)
        await self._operator.close()
        undeliverable = round(self._devices.figures().get("results_put_aside", 0.0))
        results = {"results": {"put_aside": undeliverable}} if undeliverable else {}
        return WorkloadSummary(
            # Every worker knows this for the whole fleet; only the first one reports it.
            faults=() if self._job.devices.start else self._switches.truths(),
            failures=tuple(self._operator.failures()),
            missed=self._file_ledger.close() if self._file_ledger is not None else 0,
            commands=self._operator.command_ends(self._commands.ends),
            extras={**self._measurement.errors, **results},
        )

    def _count_unsent(self) -> None:
        """Count events that fell due and were never sent as intended and undelivered."""
        until_s = time.monotonic() if self._drained_from_s is None else self._drained_from_s
        self._schedule_until(until_s - self._fleet.began_s)
        self._agenda.keep(_OPEN, until_s - self._fleet.began_s)
        self._recorder.intended += len(self._agenda.events)
        self._recorder.undelivered += len(self._agenda.events)

    # --- the plan's events --------------------------------------------------------------------------------------------

    async def _keep_going(self) -> None:
        """Twice a second: fill the agenda, flush the ledger, and note commands that expired at the service."""
        while True:
            now_s = time.monotonic()
            if self._drained_from_s is None:
                self._schedule_until(now_s - self._fleet.began_s + _AHEAD_S)
            if self._commands.expire(now_s - EXPIRY_MARGIN_S):
                self._news.set()
            if self._file_ledger is not None:
                self._file_ledger.flush()
            await asyncio.sleep(_TICK_S)

    def _schedule_until(self, horizon_s: float) -> None:
        """Schedule the plan's events before ``horizon_s``, as far as no barrier holds them back."""
        self._agenda.add(self._feed.take(horizon_s))

    def _happen(self, event: Event) -> None:
        """Carry out an event of the plan."""
        if self._is_over:
            return
        due_s, switches = self._fleet.began_s + event.time_s, self._switches
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
