"""A run from its scenario to its record, step by step: check, prepare, conduct, audit, report."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.errors import AgentError, StorageError
from simulator.fleet.audit.run_audit import AuditSettings, audit_run
from simulator.fleet.audit.run_database import has_ledgers
from simulator.fleet.forecast import busiest_rate
from simulator.fleet.plan import Plan
from simulator.fleet.record import AuditRecord, RunRecord
from simulator.fleet.report.folder import RunFolder
from simulator.fleet.report.formatting import Tone, clock_text, error_text
from simulator.fleet.report.making import finish_run
from simulator.fleet.report.views import RunView
from simulator.fleet.run.clocks import WallClock
from simulator.fleet.run.cluster.ray_workers import RayWorkers
from simulator.fleet.run.coordinator import Coordinator
from simulator.fleet.run.device_lock import claimed_devices
from simulator.fleet.run.ending import last_record
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.preparing import Preparation, check_gateway
from simulator.fleet.run.run import Run, first_record
from simulator.fleet.run.worker import work
from simulator.fleet.scenario.model import REGISTERED_PER_S
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.safety import Permission
from simulator.fleet.target.target import Target
from simulator.fleet.verdict import without_reports
from simulator.watched import describe

_log = logging.getLogger(__name__)

MakeView = Callable[[RunRecord], RunView]


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
    """What is to be run where.

    Attributes:
        file: the scenario.
        target: how to reach it.
        folder: of the run; must hold none yet.
        permissions: to load each machine that the target is made of, with its caps.
        is_audited: keep ledgers and read everything back at the end.
        cluster: the address of the Ray cluster that makes the load, or ``auto``; None for this machine alone.
    """

    file: ScenarioFile
    target: Target
    folder: Path
    permissions: tuple[Permission, ...]
    is_audited: bool = True
    cluster: str | None = None


def perform_run(options: RunOptions, make_view: MakeView) -> RunRecord:
    """The whole run; its folder has record and seconds afterwards, whatever happened since it began.

    Raises:
        ConfigurationError: it cannot be run as the scenario says; nothing was sent.
        ServiceError: the target could not be prepared; no load was made, and there is no folder of a run.
        RunInterrupted: Ctrl-C, or a signal like it, before the load began, or once more while the run was ended in
            order: during the load, and while ledgers are fetched and everything is read back, the first one does that.
    """
    file, target = options.file, options.target
    scenario, plan = file.scenario, Plan(file.scenario)
    for permission in options.permissions:
        permission.check(devices=scenario.fleet.devices, requests_per_s=busiest_rate(plan))
    check_gateway(scenario, target)
    with ExitStack() as ends:
        workers = LocalWorkers(work) if options.cluster is None else RayWorkers(work, options.cluster)
        ends.enter_context(workers)
        count = workers.count_workers(scenario)
        needs = workers.check(file, target, count)
        ends.enter_context(claimed_devices(scenario, target.base_url))
        secrets = Path(ends.enter_context(TemporaryDirectory(prefix="fleet-simulator-")))
        folder = ends.enter_context(RunFolder(options.folder))
        try:
            record = first_record(file, target.base_url, plan, count, workers.describe())
            view = ends.enter_context(make_view(record))
            for need in needs:
                if not need.fits:
                    view.note(str(need), Tone.WARN)
            run = Run(scenario, folder, record, view)
            folder.keep(record)
            preparation = Preparation(file, plan, target, options.folder, secrets, count, options.is_audited)
            _prepare(preparation, view)
            workers.start(preparation.jobs)
        except (AgentError, RunInterrupted):
            folder.discard()  # no load was made: the same command can be given again
            raise
        try:
            _conduct(run, workers)
            audit = _audit(run, preparation)
            record = _report(run, last_record(run, audit, preparation.device_names()))
        except KeyboardInterrupt:
            fix = f"'fleet-simulator report {options.folder}' makes the reports of what there is"
            raise RunInterrupted(f"ended by hand at once: {fix}") from None
        view.end(record)
    return record


def _prepare(preparation: Preparation, view: RunView) -> None:
    """The devices at the target, and the workers' jobs."""
    done = whole = 0

    def show(now: int, wanted: int) -> None:
        nonlocal done, whole
        if not whole and now < wanted:
            about = clock_text(math.ceil((wanted - now) / REGISTERED_PER_S))
            view.note(f"registering {wanted - now:,} devices: about {about} at {REGISTERED_PER_S:g}/s")
        done, whole = now, wanted
        view.stage("preparing devices", done, whole)

    try:
        with _stage(view, "preparing devices"):
            asyncio.run(preparation.prepare(show))
    except KeyboardInterrupt:
        far = f", at {done:,} of {whole:,}" if whole else ""
        sentence = f"ended by hand while devices were being prepared{far}: no load was made"
        raise RunInterrupted(sentence, done) from None


def _conduct(run: Run, workers: LocalWorkers | RayWorkers) -> None:
    """The load, and the workers' ledgers."""
    wall_clock = WallClock()
    Coordinator(run, workers).conduct()
    try:
        missing = workers.collect(lambda done, whole: run.view.stage("fetching the ledgers", done, whole))
    except KeyboardInterrupt:
        missing = ("not every ledger was fetched: that was ended by hand",)
    run.view.stage("")
    run.problems += missing
    run.broken += missing
    run.has_all_ledgers = not missing and len(run.summaries) == run.record.workers
    if (why := wall_clock.new_jump()) is not None:
        run.broken.append(f"the conductor: {why}")


def _audit(run: Run, preparation: Preparation) -> AuditRecord | None:
    """What the service gives back; None without ledgers."""
    for summary in run.summaries.values():
        if summary.audit is not None:
            return summary.audit
    if not preparation.is_audited:
        return None
    folder, target = run.folder.path, preparation.target
    if run.unreachable:
        again = "the target was gone: audit the folder with 'fleet-simulator audit' when it is back"
        return AuditRecord(None, None, complete=False, sentences=(again,))
    if not has_ledgers(folder):
        why = "not one ledger of the workers is here: what was sent cannot be compared with what the service has"
        return AuditRecord(None, None, complete=False, unjudged=(why,))

    async def read() -> AuditRecord:
        async with open_client(
            target.base_url,
            Keyring(target.keys),
            timeout_s=run.scenario.target.timeout_s,
            offers=preparation.offers,
            ca_file=target.ca_file,
        ) as client:
            return await audit_run(
                folder,
                client.pages,
                AuditSettings(ended_s=time.time()),
                lambda done, whole: run.view.stage("reading everything back", done, whole),
            )

    try:
        with _stage(run.view, "reading everything back"):
            audit = asyncio.run(read())
    except (AgentError, KeyboardInterrupt) as error:
        why = error_text(error) if isinstance(error, AgentError) else "the audit was ended by hand"
        return AuditRecord(None, None, complete=False, unjudged=(why,))
    except Exception as error:  # noqa: BLE001 - a mistake of this program's: the run's record is to be written
        _log.exception("reading everything back ended unexpectedly")
        sentence = f"reading everything back ended unexpectedly: {describe(error)}"
        return AuditRecord(None, None, complete=False, unjudged=(sentence,))
    is_whole = run.has_all_ledgers and not any(summary.missed for summary in run.summaries.values())
    return audit if is_whole else replace(audit, complete=False, unjudged_counts=())


def _report(run: Run, record: RunRecord) -> RunRecord:
    """All reports of the record; it passes no more when an error ends the making of them."""
    try:
        with _stage(run.view, "making the reports"):
            missing = finish_run(run.folder, record).missing
    except AgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a mistake of this program's: the record is to say so
        _log.exception("the reports could not be made")
        missing = (f"the reports could not be made: {describe(error)}; make them with 'fleet-simulator report'",)
        with suppress(StorageError):
            run.folder.finish(replace(record, verdict=without_reports(record.verdict, missing)))
    for sentence in missing:
        run.view.note(sentence, Tone.BAD)
    # After a full disk not in the record: 'fleet-simulator report' makes what is missing, and the run is what it was.
    return replace(record, verdict=without_reports(record.verdict, missing))


@contextmanager
def _stage(view: RunView, text: str) -> Iterator[None]:
    view.stage(text)
    try:
        yield
    finally:
        view.stage("")
