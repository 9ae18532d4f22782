"""``fleet-simulator onboard campaign``: a click command, no logic."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import click

from agent.error_text import bounded
from simulator.announced import ask_offers
from simulator.exit_codes import ExitCode
from simulator.interrupts import terminations_as_interrupts
from simulator.onboarding.campaign import Campaign, key_of
from simulator.onboarding.campaign_report import campaign_faults, campaign_json, campaign_lines
from simulator.onboarding.cli.options import PREFIX, check_ids, takes_access
from simulator.onboarding.connecting import Connected, ServiceAccess, connected
from simulator.onboarding.folder import open_run, write_report
from simulator.onboarding.outcomes import CampaignReport, Plan
from simulator.onboarding.retrying import ATTEMPTS
from simulator.onboarding.sources import FoundLabels, find_labels
from simulator.onboarding.steps import MARK, RunContext
from simulator.onboarding.tally import Tally
from simulator.terminal import advice, end, errors_in_one_line, option, show_progress, stop_code

_FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """The options of one call."""

    user_id: str
    remove: bool
    rate: float | None
    concurrency: int
    attempts: int


@click.command("campaign")
@click.argument("labels", nargs=-1, required=True, type=click.Path(path_type=Path))
@takes_access
@option("--user-id", required=True, help="Account that the devices are linked to.")
@option("--out", required=True, type=click.Path(path_type=Path), help="Folder for journal and report.")
@option("--rate", type=click.FloatRange(min=0, min_open=True), help="Labels that arrive in a second; as many as fit.")
@option("--concurrency", type=click.IntRange(1, 64), default=8, help="Labels in flight at once.")
@option("--attempts", type=click.IntRange(1, 100), default=ATTEMPTS, help="Requests for one step; 429 does not count.")
@option("--remove/--keep", default=False, help="Remove each device again, or keep it.")
@option("--pictures/--manifest", default=False, help="Read a folder's pictures, or take its manifest.json at its word.")
@option("--json", "as_json", envvar=f"{PREFIX}_CAMPAIGN_JSON", is_flag=True, help="Print the report as JSON.")
def campaign_command(
    *,
    labels: tuple[Path, ...],
    access: ServiceAccess,
    user_id: str,
    out: Path,
    rate: float | None,
    concurrency: int,
    attempts: int,
    remove: bool,
    pictures: bool,
    as_json: bool,
) -> None:
    """Onboard labels by the thousand, each exactly once, through lost answers, quotas and kills.

    LABELS are folders with a manifest.json, such files, or pictures. The same command again goes on where an earlier
    one was killed, by the journal in --out. Exit code 0: every device is there exactly once. 1: it is not, or a label
    was refused. 2: usage, or the keys were refused. 5: the service cannot be reached. 130: ended by Ctrl-C; the same
    command goes on.
    """
    check_ids(user_id=user_id)
    wanted = CampaignOptions(user_id, remove, rate, concurrency, attempts)
    stop = threading.Event()
    with errors_in_one_line():
        found = find_labels(labels, pictures=pictures)
        with connected(access, connections=concurrency + 2, sleep=stop.wait) as service, terminations_as_interrupts():
            extensions = service.product_account.retrier.call(lambda: ask_offers(service.client))
            header = {
                "kind": "campaign",
                "base_url": service.base_url,
                "user_id": user_id,
                "remove": remove,
                "labels": found.digest,
            }
            with open_run(out, header, resumable=True) as run:
                key = key_of(run.run) if "idempotency-key" in extensions else None
                tally = Tally()
                context = RunContext(service.account, user_id, journal=run.journal, tally=tally, key_of=key)
                report, plan = _run(found, service, context, wanted, stop)
            refusals = service.account.gate.refusals
            document = campaign_json(report, plan, tally.as_json(), found.copies, refusals)
            write_report(out, document)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        for name, text in [*campaign_lines(report, document), ("report", str(out / "report.json"))]:
            click.echo(f"{name:<13} {text}")
    _print_faults(report, found)
    return end(_exit_code(report, found))


def _run(
    found: FoundLabels, service: Connected, context: RunContext, wanted: CampaignOptions, stop: threading.Event
) -> tuple[CampaignReport, Plan]:
    run = str(context.journal.header["run"])
    plan = Plan(run, wanted.user_id, wanted.remove, wanted.rate, wanted.concurrency, wanted.attempts)
    subjects = [replace(one, device_name=f"{MARK}{run}:{one.device_identifier}") for one in found.subjects]
    with show_progress("labels onboarded") as on_progress:
        report = Campaign(plan, context, service.product_account, service.timing, stop=stop).run(subjects, on_progress)
    return report, plan


def _print_faults(report: CampaignReport, found: FoundLabels) -> None:
    faults = [*(f"unread: {read.problem}" for read in found.unread), *campaign_faults(report)]
    for sentence in faults[:_FAULTS_SHOWN]:
        click.echo(bounded(f"failed: {sentence}"), err=True)
    if len(faults) > _FAULTS_SHOWN:
        click.echo(bounded(f"failed: {len(faults) - _FAULTS_SHOWN} more, in report.json"), err=True)
    if report.stopped_by is not None:
        click.echo(
            bounded(f"stopped: {report.stopped_by}{advice(report.stopped_by)}; the same command goes on"), err=True
        )
    if report.was_interrupted:
        click.echo("interrupted; the same command goes on", err=True)


def _exit_code(report: CampaignReport, found: FoundLabels) -> ExitCode:
    if report.was_interrupted:
        return ExitCode.INTERRUPTED
    if report.stopped_by is not None:
        return stop_code(report.stopped_by)
    return ExitCode.GOOD if report.passed and not found.unread else ExitCode.CHECK_FAILED
