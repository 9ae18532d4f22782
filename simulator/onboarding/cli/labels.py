"""``fleet-simulator onboard labels``: a click command, no logic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.text import Text

from agent.error_text import bounded
from simulator.exit_codes import ExitCode
from simulator.onboarding.cli.options import PREFIX, check_ids, takes_access
from simulator.onboarding.connecting import ServiceAccess, connected
from simulator.onboarding.driver import OnboardingReport, drive_labels
from simulator.onboarding.folder import open_run, write_report
from simulator.onboarding.report import as_json as report_as_json
from simulator.onboarding.report import as_table, faults
from simulator.onboarding.sources import find_labels
from simulator.onboarding.steps import MARK, RunContext
from simulator.terminal import Console, advice, end, errors_in_one_line, option, show_progress, stop_code


@click.command("labels")
@click.argument("labels", nargs=-1, required=True, type=click.Path(path_type=Path))
@takes_access
@option("--user-id", required=True, help="Account that the devices are linked to.")
@option("--remove/--keep", default=False, help="Remove each device again and see that it is gone, or keep it.")
@option("--pictures/--manifest", default=True, help="Read a folder's pictures, or take its manifest.json at its word.")
@option("--out", type=click.Path(path_type=Path), help="Folder for report.json and journal.")
@option("--json", "as_json", envvar=f"{PREFIX}_LABELS_JSON", is_flag=True, help="Print the report as JSON.")
def labels_command(
    *,
    labels: tuple[Path, ...],
    access: ServiceAccess,
    user_id: str,
    remove: bool,
    pictures: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Drive onboarding from label pictures, one by one: scan, register, list and, with --remove, remove.

    LABELS are folders of pictures, pictures or PDF documents, each with any number of labels: a photograph of a sheet
    will do. Each label is read, then driven through the service at --base-url.
    Exit code 0: every answer was as specified. 1: a label did not read or an answer was not. 2: usage, or the keys
    were refused. 5: the service cannot be reached.
    """
    check_ids(user_id=user_id)
    with errors_in_one_line(), connected(access) as service:
        found = find_labels(labels, pictures=pictures)
        header = {"kind": "labels", "base_url": service.base_url, "user_id": user_id}
        with open_run(out, header, resumable=False) as run, show_progress("labels onboarded") as on_progress:
            report = drive_labels(
                [
                    replace(subject, device_name=f"{MARK}{run.run}:{subject.device_identifier}")
                    for subject in found.subjects
                ],
                RunContext(service.account, user_id, journal=run.journal),
                user_id=user_id,
                remove=remove,
                timing=service.timing,
                on_journey=lambda _, done, total: on_progress(done, total),
            )
        unread = [{"source": read.where or str(read.path), "problem": read.problem} for read in found.unread]
        document = {**report_as_json(report), "unread": unread, "copies_left_out": found.copies}
        problems = [read.problem for read in found.unread]
        if out is not None:
            write_report(out, document)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print_report(report)
    if found.copies:
        click.echo(bounded(f"note: {found.copies} label(s) say what one before them says, and were left out"), err=True)
    _print_faults(report, problems)
    if report.stopped_by is not None:
        return end(stop_code(report.stopped_by))
    return end(ExitCode.GOOD if report.passed and not problems else ExitCode.CHECK_FAILED)


def _print_report(report: OnboardingReport) -> None:
    console = Console(highlight=False)
    if any(step.verdict.is_good for journey in report.journeys for step in journey.steps):
        console.print(as_table(report))
    good = sum(journey.passed for journey in report.journeys)
    of = len(report.journeys) + len(report.not_begun)
    style = "bold green" if report.passed else "bold red"
    console.print(Text(f"{good} of {of} labels went the whole way for user {report.user_id}", style=style))
    if report.still_registered:
        console.print(Text(f"{len(report.still_registered)} of them are registered now"))


def _print_faults(report: OnboardingReport, unread: Sequence[str]) -> None:
    for problem in unread:
        click.echo(bounded(f"unread: {problem}"), err=True)
    for sentence in faults(report):
        click.echo(bounded(f"failed: {sentence}"), err=True)
    if report.stopped_by is not None:
        left = f"; {len(report.not_begun)} label(s) not begun" if report.not_begun else ""
        click.echo(bounded(f"stopped: {report.stopped_by}{advice(report.stopped_by)}{left}"), err=True)
