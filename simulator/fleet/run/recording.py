"""The record of a run: what is known before it begins, and everything that came of it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

from agent.wire.times import to_rfc3339
from simulator.fleet.faults import count_concerned
from simulator.fleet.metrics.ages import ages_of
from simulator.fleet.metrics.judging import judge_thresholds
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.stages import stages_of, without_stages
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.plan import Plan
from simulator.fleet.record import (
    AuditRecord,
    GeneratorHealth,
    Reasons,
    RunRecord,
    Span,
    ThresholdResult,
    Verdict,
    VerdictStatus,
)
from simulator.fleet.report.run_status import RunHead
from simulator.fleet.report.writing import read_seconds
from simulator.fleet.run.command_ends import ended_otherwise, joined_ends
from simulator.fleet.run.coordinator import PhaseSchedule, RunOutcome
from simulator.fleet.run.reporter import RunReporter
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.verdict import RunFindings, judge_run
from simulator.fleet.workload.fleet import FleetJob

_SLOWEST_KEPT: Final = 20
_WITH_DRAIN: Final = frozenset({"devices", "requests", "onboarding"})
"""Kinds whose phases make all the load; history just takes its time."""
_NOUNS: Final = {"onboarding": "label"}
"""Kinds without devices, and what they have instead."""
_NOT_YET: Final = Verdict(VerdictStatus.INTERRUPTED, 130, ("the run has not ended",))


def level_of(scenario: Scenario) -> str:
    """``core``: devices with the agent's core; ``wire``: requests without them."""
    return "wire" if scenario.kind == "requests" else "core"


def head_of(scenario: Scenario, target: str, workers: int) -> RunHead:
    """What a view shows before the first second.

    Args:
        scenario: to be run.
        target: its address.
        workers: processes.
    """
    schedule = schedule_of(scenario)
    begin_s, phases = 0.0, []
    for phase in schedule.phases:
        phases.append(Span(phase.name, phase.kind, begin_s, begin_s + phase.duration_s, schedule.devices))
        begin_s += phase.duration_s
    return RunHead(
        name=scenario.scenario,
        level=scenario.kind if scenario.kind in _NOUNS else level_of(scenario),
        transport="http" if scenario.kind in _NOUNS else scenario.target.transport,
        target=target,
        devices=scenario.fleet.devices,
        workers=workers,
        phases=tuple(phases),
        faults=schedule.faults,
        duration_s=begin_s,
        noun=_NOUNS.get(scenario.kind, "device"),
    )


def schedule_of(scenario: Scenario) -> PhaseSchedule:
    """What the coordinator conducts."""
    devices = scenario.fleet.devices
    faults = tuple(
        Span(fault.title, fault.kind, fault.at_s, fault.at_s + fault.duration_s, count)
        for fault, count in zip(scenario.faults, count_concerned(scenario.faults, scenario.seed, devices), strict=True)
    )
    return PhaseSchedule(scenario.phases, devices, faults, scenario.drain_s)


def first_record(file: ScenarioFile, target: str, plan: Plan, head: RunHead, machines: str = "") -> RunRecord:
    """What is known before the first second.

    Args:
        file: the scenario.
        target: its address.
        plan: of the scenario.
        head: what a view shows before the first second.
        machines: of a cluster, with their workers; empty for this machine alone.
    """
    scenario = file.scenario
    return RunRecord(
        name=scenario.scenario,
        seed=scenario.seed,
        digest=plan.digest,
        level=level_of(scenario),
        transport=scenario.target.transport,
        workers=head.workers,
        devices=scenario.fleet.devices,
        began_at=to_rfc3339(time.time()),
        ended_at="",
        duration_s=0.0,
        machine="; ".join(filter(None, (_machine(), machines))),
        version=version("device-agent"),
        target=target,
        verdict=_NOT_YET,
        phases=head.phases,
        faults=head.faults,
        operations={},
        health=GeneratorHealth(),
        thresholds=tuple(
            ThresholdResult(expression, held=False, observed=None, reason=_NOT_YET.sentences[0], judged=False)
            for expression in scenario.thresholds
        ),
        scenario_text=file.text,
        kind=scenario.kind,
    )


def last_record(reporter: RunReporter, outcome: RunOutcome, merger: Merger, audit: AuditRecord | None) -> RunRecord:
    """Everything that came of it, judged.

    Args:
        reporter: with the record so far.
        outcome: how it went.
        merger: what the workers measured.
        audit: what was read back; None without ledgers.
    """
    scenario = reporter.scenario
    is_open = any(arrivals.kind == "open" for arrivals in scenario.arrivals)
    assessment = reporter.saturation.assess(
        reporter.totals, is_open=is_open, is_pooled=scenario.target.is_pooled, stood_still_s=outcome.stood_still_s
    )
    totals = reporter.totals.operations
    summaries = [outcome.summaries[number] for number in sorted(outcome.summaries)]
    partial, device_names = _partial(outcome, reporter), _names(reporter)
    record = replace(
        reporter.record,
        ended_at=to_rfc3339(time.time()),
        duration_s=outcome.duration_s,
        phases=tuple(outcome.phases),
        faults=_played(
            tuple(named(span, device_names) for summary in summaries for span in summary.faults) or outcome.faults,
            outcome,
        ),
        operations=without_stages(totals),
        health=reporter.totals.health,
        audit=audit,
        command_stages=stages_of(totals),
        ages=ages_of(totals),
        seconds=merger.given,
        commands=joined_ends(summary.commands for summary in summaries),
        slowest=tuple(
            sorted((found for summary in summaries for found in summary.slowest), key=lambda found: -found.response_s)
        )[:_SLOWEST_KEPT],
        gaps=merger.gaps,
        extras=_extras(outcome, assessment.notes),
        drained_from_s=outcome.drained_from_s if scenario.kind in _WITH_DRAIN else None,
        partial=partial,
    )
    phases = [phase.name for phase in scenario.phases]
    wanted = [parse(expression, phases=phases) for expression in scenario.thresholds]
    results = judge_thresholds(wanted, replace(record, operations=totals), read_seconds(reporter.folder.path))
    failures = [*outcome.failures, *(failure for summary in summaries for failure in summary.failures)]
    failures += ended_otherwise(record.commands, whole=not partial)
    failures += assessment.failures
    if outcome.late_count:
        late = ", ".join(outcome.late[:3])
        failures.append(f"{outcome.late_count} devices still held something after {scenario.drain_s:g} s ({late})")
    reasons = Reasons(
        unreachable=outcome.unreachable or "",
        interrupted="ended by hand before its time" if outcome.interrupted else "",
        saturated=tuple(assessment.saturated),
        broken=tuple(_broken(outcome, merger, partial)),
        failures=tuple(failures),
        held=tuple(summary.held for summary in summaries if summary.held),
    )
    verdict = judge_run(RunFindings(audit, results, merger.gaps, partial, reasons))
    if verdict.word is VerdictStatus.FAILED and assessment.stood_still:
        reasons = replace(reasons, saturated=assessment.stood_still)
        verdict = judge_run(RunFindings(audit, results, merger.gaps, partial, reasons))
    return replace(record, thresholds=results, verdict=verdict, reasons=reasons)


def _played(faults: Sequence[Span], outcome: RunOutcome) -> tuple[Span, ...]:
    """Without those that were to begin after a run that ended before its time."""
    over_s = outcome.duration_s if outcome.drained_from_s is None else outcome.drained_from_s
    return tuple(span for span in faults if span.begin_s < over_s)


def _broken(outcome: RunOutcome, merger: Merger, partial: str) -> list[str]:
    """What ended by an error; a worker that was lost after its last second has no gap to be named by."""
    is_explained = outcome.broken or merger.gaps or outcome.interrupted or outcome.unreachable
    return [partial] if partial and not is_explained else outcome.broken


def named(fault: Span, names: Mapping[str, str]) -> Span:
    """What was done, with the devices' names where it has their numbers in the fleet."""
    numbers = fault.truth.get("devices")
    if not isinstance(numbers, Sequence):
        return fault
    return replace(fault, truth={**fault.truth, "devices": [names.get(str(each), str(each)) for each in numbers]})


def _names(reporter: RunReporter) -> Mapping[str, str]:
    """Number in the fleet -> name, of all devices."""
    found: dict[str, str] = {}
    for job in reporter.prepared.jobs:
        if isinstance(job, FleetJob):
            found |= {str(number): name for number, name in zip(job.devices, job.names, strict=True)}
    return found


def _partial(outcome: RunOutcome, reporter: RunReporter) -> str:
    """Why a run did not reach its end, and what of it there is; empty for one that did."""
    planned_s = reporter.scenario.duration_s
    played_s = min(outcome.duration_s if outcome.drained_from_s is None else outcome.drained_from_s, planned_s)
    workers = len(reporter.prepared.jobs)
    missing = workers - len(outcome.summaries)
    if outcome.interrupted or outcome.unreachable:
        return f"it ended after {played_s:.0f} s of {planned_s:.0f} s"
    if missing:
        return f"{missing} of {workers} workers did not come to their end"
    return ""


def _extras(outcome: RunOutcome, notes: tuple[str, ...]) -> Mapping[str, Any]:
    extras: dict[str, Any] = {}
    for summary in outcome.summaries.values():
        for name, value in summary.extras.items():
            before = extras.get(name)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                extras[name] = joined(before, value)
            else:
                extras[name] = value
    notes = (*notes, *outcome.problems)
    return {**extras, **({"notes": list(notes)} if notes else {})}


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """What two workers found of the same: counts are added up, anything else is the same for both."""
    joined = {**one, **other}
    for name in one.keys() & other.keys():
        counts = one[name], other[name]
        if all(type(count) is int for count in counts):
            joined[name] = sum(counts)
    return joined


def _machine() -> str:
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
