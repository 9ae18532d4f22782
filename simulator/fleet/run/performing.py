"""A run from its scenario to its record: the way that docs/fleet.md draws, read from top to bottom."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from agent.errors import AgentError
from agent.wire.times import to_rfc3339
from simulator.fleet.audit.findings import AuditSettings, audit_run
from simulator.fleet.metrics.judging import judge
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.saturation import Saturation
from simulator.fleet.metrics.stages import stages_of, without_stages
from simulator.fleet.metrics.thresholds import parse
from simulator.fleet.plan.digest import digest_of
from simulator.fleet.plan.plan import Plan
from simulator.fleet.play.network import check_network_faults
from simulator.fleet.record import AuditRecord, RunRecord, Second, Span, Verdict, Word
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.live import RunView
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.standing import RunHead, Standing, StreamSoFar, WorkerStanding, WorkerState
from simulator.fleet.report.writing import read_seconds
from simulator.fleet.run.capacity import check_capacity
from simulator.fleet.run.conductor import Conducted, Conductor, PlannedPhase, Score
from simulator.fleet.run.crew import Crew, Gone
from simulator.fleet.run.preparing import Prepared, Setting, count_workers, prepare
from simulator.fleet.run.verdict import Findings, judge_run
from simulator.fleet.run.worker import work
from simulator.fleet.scenario.conditions import parse_condition
from simulator.fleet.scenario.faults import fault_end_s
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.asking import Keyring, open_desk
from simulator.fleet.target.gateway_tokens import wait_until_handed_on
from simulator.fleet.target.safety import Permission, is_here
from simulator.fleet.target.trust import trust
from simulator.fleet.target.way import Way
from simulator.report.values import Tone

_SLOWEST_KEPT: Final = 20
_GATEWAY_S: Final = 300.0
_NOT_YET: Final = Verdict(Word.INTERRUPTED, 130, ("the run has not ended",))

MakeView = Callable[[RunHead], RunView]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run is to be performed.

    Attributes:
        file: the scenario.
        way: to the target.
        folder: of the run; must hold none yet.
        permission: to load the target, with its caps.
        is_audited: keep books and read everything back at the end.
    """

    file: ScenarioFile
    way: Way
    folder: Path
    permission: Permission
    is_audited: bool = True


def perform(stage: Stage, make_view: MakeView) -> RunRecord:
    """The whole run; its folder has record and seconds afterwards, whatever happened.

    Raises:
        ConfigurationError: it cannot be run as the scenario says; nothing was sent.
        ServiceError: the target could not be prepared; no load was made.
    """
    scenario, plan = stage.file.scenario, Plan(stage.file.scenario)
    if scenario.target.tls is not None and scenario.target.tls.ca_file is not None:
        trust(stage.file.folder / scenario.target.tls.ca_file)
    check_network_faults(scenario)
    workers = count_workers(scenario)
    needs = check_capacity(scenario, workers, target_is_here=is_here(stage.way.base_url))
    head = _head(scenario, stage.way, workers)
    with ExitStack() as ends:
        secrets = Path(ends.enter_context(TemporaryDirectory(prefix="fleet-simulator-")))
        setting = Setting(stage.file, plan, stage.way, stage.folder, secrets, workers, stage.is_audited)
        folder = ends.enter_context(RunFolder(stage.folder))
        view = ends.enter_context(make_view(head))
        for need in needs:
            if not need.fits:
                view.note(str(need), Tone.WARN)
        view.stage("planning")
        record = _first_record(stage, plan, head)
        folder.keep(record)
        view.stage("preparing devices")
        prepared = asyncio.run(prepare(setting, lambda done, whole: view.stage("preparing devices", done, whole)))
        view.stage("")
        hall = _Hall(folder, view, record, prepared, scenario)
        conducted, merger = _conduct(scenario, prepared, hall)
        audit, trouble = _audit(setting, prepared, conducted, view)
        record = _last_record(hall, conducted, merger, audit, trouble)
        for sentence in finish_run(folder, record).missing:
            view.note(sentence, Tone.BAD)
        view.end(record)
    return record


def _conduct(scenario: Scenario, prepared: Prepared, hall: _Hall) -> tuple[Conducted, Merger]:
    merger = Merger(range(len(prepared.jobs)))
    with Crew(work, prepared.jobs) as crew:
        conducted = Conductor(crew, _score(scenario), merger, hall).conduct()
    return conducted, merger


def _audit(
    setting: Setting, prepared: Prepared, conducted: Conducted, view: RunView
) -> tuple[AuditRecord | None, str | None]:
    """What the service gives back, and why it could not be read to its end."""
    for summary in conducted.summaries.values():
        if summary.audit is not None:
            return summary.audit, None
    if not prepared.is_audited:
        return None, None
    if conducted.unreachable:
        again = "the target was gone: audit the folder with 'fleet-simulator audit' when it is back"
        return AuditRecord(None, None, complete=False, sentences=(again,)), None
    way = setting.way

    async def read() -> AuditRecord:
        async with open_desk(way.base_url, Keyring(way.keys), timeout_s=setting.file.scenario.target.timeout_s) as desk:
            return await audit_run(
                setting.folder,
                desk.pages,
                AuditSettings(late_after_s=setting.file.scenario.audit.late_after_s),
                lambda done, whole: view.stage("reading everything back", done, whole),
            )

    try:
        _let_gateway_finish(setting, view)
        with _stage(view, "reading everything back"):
            audit = asyncio.run(read())
    except (AgentError, KeyboardInterrupt) as error:
        return AuditRecord(None, None, complete=False), str(error) or "the audit was ended by hand"
    missed = sum(summary.missed for summary in conducted.summaries.values())
    whole = audit.complete and not missed and len(conducted.summaries) == len(prepared.jobs)
    return replace(audit, complete=whole), None


def _let_gateway_finish(setting: Setting, view: RunView) -> None:
    """What a gateway has confirmed may not be in the service yet; read back before, it would count as lost."""
    target, folder = setting.file.scenario.target, setting.way.gateway_folder
    if folder is None or (target.transport != "mqtt" and target.through != "gateway"):
        return
    with _stage(view, "the gateway hands on what it holds"):
        left = wait_until_handed_on(folder, _GATEWAY_S, lambda _left: None)
    if left:
        view.note(f"the gateway still holds {left} readings and results: they count as lost below", Tone.WARN)


@contextmanager
def _stage(view: RunView, text: str) -> Iterator[None]:
    view.stage(text)
    try:
        yield
    finally:
        view.stage("")


def _head(scenario: Scenario, way: Way, workers: int) -> RunHead:
    score = _score(scenario)
    begin_s, phases = 0.0, []
    for phase in score.phases:
        phases.append(Span(phase.name, phase.kind, begin_s, begin_s + phase.duration_s, phase.devices))
        begin_s += phase.duration_s
    return RunHead(
        name=scenario.scenario,
        level=scenario.level,
        transport=scenario.target.transport,
        target=way.base_url,
        devices=scenario.fleet.devices,
        workers=workers,
        phases=tuple(phases),
        faults=score.faults,
        duration_s=begin_s,
    )


def _score(scenario: Scenario) -> Score:
    devices = scenario.fleet.devices
    phases = tuple(
        PlannedPhase(
            name=phase.name,
            kind=phase.kind,
            duration_s=phase.duration_s,
            devices=devices,
            until=parse_condition(phase.until) if phase.until else None,
            within_s=phase.until_within_s,
        )
        for phase in scenario.phases
    )
    faults = tuple(
        Span(fault.kind, fault.kind, fault.at_s, fault_end_s(fault), round(fault.share * devices))
        for fault in scenario.faults
    )
    return Score(phases, devices, faults, scenario.drain_s)


def _first_record(stage: Stage, plan: Plan, head: RunHead) -> RunRecord:
    scenario = stage.file.scenario
    return RunRecord(
        name=scenario.scenario,
        seed=scenario.seed,
        digest=digest_of(plan),
        level=scenario.level,
        transport=scenario.target.transport,
        workers=head.workers,
        devices=scenario.fleet.devices,
        began_at=to_rfc3339(time.time()),
        ended_at="",
        duration_s=0.0,
        machine=_machine(),
        version=version("device-agent"),
        target=stage.way.base_url,
        verdict=_NOT_YET,
        phases=head.phases,
        faults=head.faults,
        operations={},
        health=Merger(()).health,
        scenario_text=stage.file.text,
    )


def _last_record(
    hall: _Hall, conducted: Conducted, merger: Merger, audit: AuditRecord | None, audit_trouble: str | None
) -> RunRecord:
    scenario = hall.scenario
    is_open = any(arrivals.kind == "open" for arrivals in scenario.arrivals)
    assessment = hall.saturation.assess(is_open=is_open)
    totals = merger.totals
    summaries = [conducted.summaries[number] for number in sorted(conducted.summaries)]
    record = replace(
        hall.record,
        ended_at=to_rfc3339(time.time()),
        duration_s=conducted.duration_s,
        phases=tuple(conducted.phases),
        faults=tuple(span for summary in summaries for span in summary.faults) or hall.record.faults,
        operations=without_stages(totals),
        health=merger.health,
        audit=audit,
        command_stages=stages_of(totals),
        slowest=tuple(
            sorted((found for summary in summaries for found in summary.slowest), key=lambda found: -found.count)
        )[:_SLOWEST_KEPT],
        gaps=merger.gaps,
        extras=_extras(conducted, assessment.notes),
    )
    phases = [phase.name for phase in scenario.phases]
    wanted = [parse(expression, phases=phases) for expression in scenario.thresholds]
    results = judge(wanted, replace(record, operations=totals), read_seconds(hall.folder.path))
    failures = [*conducted.failures, *(failure for summary in summaries for failure in summary.failures)]
    failures += [*assessment.failures, *([audit_trouble] if audit_trouble else [])]
    if conducted.late_count:
        names = ", ".join(conducted.late[:3])
        failures.append(f"{conducted.late_count} devices still held something after {scenario.drain_s:g} s ({names})")
    verdict = judge_run(
        Findings(
            audit=audit,
            thresholds=results,
            unreachable=conducted.unreachable,
            interrupted=conducted.interrupted,
            saturated=assessment.saturated,
            gaps=merger.gaps,
            failures=failures,
        )
    )
    return replace(record, thresholds=results, verdict=verdict)


def _extras(conducted: Conducted, notes: tuple[str, ...]) -> Mapping[str, Any]:
    extras: dict[str, Any] = {}
    for summary in conducted.summaries.values():
        for name, value in summary.extras.items():
            if isinstance(value, Mapping) and isinstance(extras.get(name), Mapping):
                extras[name] = {**extras[name], **value}
            else:
                extras[name] = value
    told = [*notes, *conducted.troubles]
    return {**extras, **({"notes": told} if told else {})}


def _machine() -> str:
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"


@dataclass(slots=True)
class _Hall:
    """Where the run is heard: its folder and its view (:class:`~simulator.fleet.run.conductor.Audience`)."""

    folder: RunFolder
    view: RunView
    record: RunRecord
    prepared: Prepared
    scenario: Scenario
    saturation: Saturation = field(default_factory=Saturation)
    dead: set[int] = field(default_factory=set)

    def second(self, second: Second, phase: Span | None, waiting_for: str) -> None:
        """See :class:`~simulator.fleet.run.conductor.Audience`."""
        self.saturation.feed(second)
        self.view.show(second, self._standing(second, phase, waiting_for))
        self.folder.append(second)

    def phase(self, conducted: Conducted) -> None:
        """See :class:`~simulator.fleet.run.conductor.Audience`."""
        self.record = replace(self.record, phases=tuple(conducted.phases))
        self.folder.keep(self.record)

    def lost(self, gone: Gone) -> None:
        """See :class:`~simulator.fleet.run.conductor.Audience`."""
        self.dead.add(gone.worker)
        self.view.note(f"worker {gone.worker}: {gone.reason}", Tone.BAD)

    def trouble(self, sentence: str) -> None:
        """See :class:`~simulator.fleet.run.conductor.Audience`."""
        self.view.note(sentence, Tone.WARN)

    def _standing(self, second: Second, phase: Span | None, waiting_for: str) -> Standing:
        gauges = second.gauges
        workers = tuple(
            WorkerStanding(number, WorkerState.DEAD if number in self.dead else WorkerState.RUNNING)
            for number in range(len(self.prepared.jobs))
        )
        audit = {}
        if "readings_sent" in gauges:
            audit["readings"] = StreamSoFar(
                int(gauges["readings_sent"]), int(gauges["readings_accepted"]), int(gauges["readings_unanswered"])
            )
            ordered, reported = int(gauges["commands_ordered"]), int(gauges["commands_reported"])
            audit["commands"] = StreamSoFar(ordered, reported, ordered - reported)
        faults = tuple(f for f in self.record.faults if f.begin_s <= second.second < f.end_s)
        return Standing(phase, waiting_for, faults, workers, audit)
