"""A run from its scenario to its record: in the order that docs/fleet.md draws, read from top to bottom."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.errors import AgentError, ConfigurationError, StorageError
from simulator.fleet.audit.run_audit import AuditSettings, audit_run
from simulator.fleet.audit.run_database import has_ledgers
from simulator.fleet.forecast import busiest_rate
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.plan import Plan
from simulator.fleet.record import AuditRecord, RunRecord
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.formatting import error_text
from simulator.fleet.report.live import RunView
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.run_status import RunHead
from simulator.fleet.run.clocks import WallClock
from simulator.fleet.run.coordinator import Coordinator, RunOutcome
from simulator.fleet.run.device_lock import claimed_devices
from simulator.fleet.run.place import Place, place_of
from simulator.fleet.run.preparing import Prepared, RunContext, check_gateway, prepare
from simulator.fleet.run.recording import first_record, head_of, last_record, schedule_of
from simulator.fleet.run.reporter import Registering, RunReporter
from simulator.fleet.run.worker import work
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.safety import Permission
from simulator.fleet.target.target import Target
from simulator.fleet.verdict import without_reports
from simulator.report_parts.values import Tone
from simulator.watched import describe

_log = logging.getLogger(__name__)


MakeView = Callable[[RunHead], RunView]


class RunInterrupted(Exception):
    """The run was ended by hand before its load began, or a second time while it ended; the text has how far it was.

    Attributes:
        registered: devices that are at the target at least.
    """

    def __init__(self, text: str, registered: int = 0) -> None:
        super().__init__(text)
        self.registered = registered


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a run is to be performed.

    Attributes:
        file: the scenario.
        target: how to reach it.
        folder: of the run; must hold none yet.
        permissions: to load each machine that the target is made of, with its caps.
        is_audited: keep ledgers and read everything back at the end.
        cluster: the address of the Ray cluster that makes the load, or ``auto``; None for this machine alone.
        cluster_resource: Ray's name of what a machine of it must have one of for each worker; None for no more than a
            core.
    """

    file: ScenarioFile
    target: Target
    folder: Path
    permissions: tuple[Permission, ...]
    is_audited: bool = True
    cluster: str | None = None
    cluster_resource: str | None = None


def perform_run(options: RunOptions, make_view: MakeView) -> RunRecord:
    """The whole run; its folder has record and seconds afterwards, whatever happened since it began.

    Raises:
        ConfigurationError: it cannot be run as the scenario says; nothing was sent.
        ServiceError: the target could not be prepared; no load was made, and there is no folder of a run.
        RunInterrupted: Ctrl-C, or a signal like it, before the load began, or once more while the run was ended in
            order: during the load, and while ledgers are fetched and everything is read back, the first one does that.
    """
    scenario, plan = options.file.scenario, Plan(options.file.scenario)
    _check_caps(options, plan)
    check_gateway(scenario, options.target)
    with ExitStack() as ends:
        place = ends.enter_context(place_of(options.cluster, options.cluster_resource))
        workers = place.count_workers(scenario)
        needs = place.check(options.file, options.target, workers)
        head = head_of(scenario, options.target.base_url, workers)
        ends.enter_context(claimed_devices(scenario, options.target.base_url))
        secrets = Path(ends.enter_context(TemporaryDirectory(prefix="fleet-simulator-")))
        context = RunContext(options.file, plan, options.target, options.folder, secrets, workers, options.is_audited)
        folder = ends.enter_context(RunFolder(options.folder))
        try:
            view = ends.enter_context(make_view(head))
        except AgentError:
            folder.discard()
            raise
        for need in needs:
            if not need.fits:
                view.note(str(need), Tone.WARN)
        if machines := place.describe():
            view.note(f"workers: {machines}", Tone.PLAIN)
        record, prepared = _prepare(context, head, folder, view, machines)
        try:
            reporter = RunReporter(folder, view, record, prepared, scenario)
            record = _play(options, context, reporter, place)
        except KeyboardInterrupt:
            fix = f"'fleet-simulator report {options.folder}' makes the reports of what there is"
            raise RunInterrupted(f"ended by hand at once: {fix}") from None
        view.end(record)
    return record


def _prepare(
    context: RunContext, head: RunHead, folder: RunFolder, view: RunView, machines: str
) -> tuple[RunRecord, Prepared]:
    """What is known before the first second, and the devices; the folder is gone when there is no run."""
    registering = Registering(view)
    try:
        view.stage("planning")
        record = first_record(context.file, context.target.base_url, context.plan, head, machines)
        folder.keep(record)
        view.stage("preparing devices")
        prepared = asyncio.run(prepare(context, registering))
        view.stage("")
    except AgentError:
        folder.discard()
        raise
    except KeyboardInterrupt:
        folder.discard()
        far = f", at {registering.done:,} of {registering.whole:,}" if registering.whole else ""
        sentence = f"ended by hand while devices were being prepared{far}: no load was made"
        raise RunInterrupted(sentence, registering.done) from None
    return record, prepared


def _play(options: RunOptions, context: RunContext, reporter: RunReporter, place: Place) -> RunRecord:
    """The load, the audit, the record and its reports."""
    prepared = reporter.prepared
    outcome, merger = _conduct(reporter, place)
    audit = _audit(context, prepared, outcome, reporter.view)
    record = last_record(reporter, outcome, merger, audit)
    return _report(reporter.folder, record, reporter.view)


def _report(folder: RunFolder, record: RunRecord, view: RunView) -> RunRecord:
    """All reports of the record; it passes no more when an error ends the making of them."""
    try:
        with _stage(view, "making the reports"):
            made = finish_run(folder, record)
        missing = made.missing
    except AgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a mistake of this program's: the record is to say so
        _log.exception("the reports could not be made")
        missing = (f"the reports could not be made: {describe(error)}; make them with 'fleet-simulator report'",)
        with suppress(StorageError):
            folder.finish(replace(record, verdict=without_reports(record.verdict, missing)))
    for sentence in missing:
        view.note(sentence, Tone.BAD)
    # After a full disk not in the record: 'fleet-simulator report' makes what is missing, and the run is what it was.
    return replace(record, verdict=without_reports(record.verdict, missing))


def _check_caps(options: RunOptions, plan: Plan) -> None:
    """Whether every machine of the target allows a run of this size."""
    busiest = busiest_rate(plan)
    for permission in options.permissions:
        permission.check(devices=plan.scenario.fleet.devices, requests_per_s=busiest)


def _conduct(reporter: RunReporter, place: Place) -> tuple[RunOutcome, Merger]:
    jobs = reporter.prepared.jobs
    merger, wall_clock = Merger(range(len(jobs))), WallClock()
    with place.make_workers(work) as workers:
        try:
            workers.start(jobs)
        except ConfigurationError:
            reporter.folder.discard()  # nothing was sent: the same command can be given again
            raise
        outcome = Coordinator(workers, schedule_of(reporter.scenario), merger, reporter).conduct()
        try:
            missing = workers.collect(lambda done, whole: reporter.view.stage("fetching the ledgers", done, whole))
        except KeyboardInterrupt:
            missing = ("not every ledger was fetched: that was ended by hand",)
        reporter.view.stage("")
        outcome.problems += missing
        outcome.broken += missing
        outcome.has_all_ledgers = not missing
    if (why := wall_clock.look()) is not None:
        outcome.broken.append(f"the conductor: {why}")
    return outcome, merger


def _audit(context: RunContext, prepared: Prepared, outcome: RunOutcome, view: RunView) -> AuditRecord | None:
    """What the service gives back; None without ledgers."""
    for summary in outcome.summaries.values():
        if summary.audit is not None:
            return summary.audit
    if not prepared.is_audited:
        return None
    if (without := _without_audit(context, outcome)) is not None:
        return without
    target = context.target

    async def read() -> AuditRecord:
        timeout_s = context.file.scenario.target.timeout_s
        async with open_client(
            target.base_url, Keyring(target.keys), timeout_s=timeout_s, offers=prepared.offers, ca_file=target.ca_file
        ) as client:
            return await audit_run(
                context.folder,
                client.pages,
                AuditSettings(ended_s=time.time()),
                lambda done, whole: view.stage("reading everything back", done, whole),
            )

    try:
        with _stage(view, "reading everything back"):
            audit = asyncio.run(read())
    except (AgentError, KeyboardInterrupt) as error:
        why = error_text(error) if isinstance(error, AgentError) else "the audit was ended by hand"
        return AuditRecord(None, None, complete=False, unjudged=(why,))
    except Exception as error:  # noqa: BLE001 - a mistake of this program's: the run's record is to be written
        _log.exception("reading everything back ended unexpectedly")
        sentence = f"reading everything back ended unexpectedly: {describe(error)}"
        return AuditRecord(None, None, complete=False, unjudged=(sentence,))
    missed = sum(summary.missed for summary in outcome.summaries.values())
    has_all = outcome.has_all_ledgers and len(outcome.summaries) == len(prepared.jobs)
    return audit if not missed and has_all else replace(audit, complete=False, unjudged_counts=())


def _without_audit(context: RunContext, outcome: RunOutcome) -> AuditRecord | None:
    """The record of an audit that cannot begin, without the target or without ledgers; None where it can begin."""
    if outcome.unreachable:
        again = "the target was gone: audit the folder with 'fleet-simulator audit' when it is back"
        return AuditRecord(None, None, complete=False, sentences=(again,))
    if not has_ledgers(context.folder):
        why = "not one ledger of the workers is here: what was sent cannot be compared with what the service has"
        return AuditRecord(None, None, complete=False, unjudged=(why,))
    return None


@contextmanager
def _stage(view: RunView, text: str) -> Iterator[None]:
    view.stage(text)
    try:
        yield
    finally:
        view.stage("")
