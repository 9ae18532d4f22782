"""``fleet-simulator onboard``: a click command, no logic."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from agent.errors import AgentError, ConfigurationError, ErrorAnswer
from agent.wire.auth import KeyPair
from agent.wire.client import ServiceClient
from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.labels.reading import ReadLabel, read_label_files
from simulator.labels.terminal import WrongUse, show_progress
from simulator.onboarding.driver import OnboardingReport, drive_labels
from simulator.onboarding.journey import Verdict
from simulator.onboarding.report import as_json as report_as_json
from simulator.onboarding.report import as_table, faults
from simulator.onboarding.steps import Subject, Timing

option = partial(click.option, show_default=True, show_envvar=True)


# The prefix is what the program gives it anyway; said here, it also holds when the command is used on its own.
@click.command("onboard", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_ONBOARD"})
@click.argument("labels", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--base-url", required=True, help="Address of the service, such as http://127.0.0.1:8080.")
@option("--api-key", required=True, help="The public key, mk_...")
@option(
    "--secret-key-file",
    required=True,
    type=click.Path(path_type=Path),
    help="File with the secret key, msk_...; never given on the command line, where other users see it.",
)
@option("--user-id", required=True, help="Account that the devices are linked to.")
@option("--remove/--keep", default=False, help="Remove each device again and see that it is gone, or keep it.")
@option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request.")
@option("--max-wait-s", type=click.FloatRange(min=0), default=120.0, help="Longest wait of one step for the quota.")
@option("--json", "as_json", envvar="FLEET_SIMULATOR_ONBOARD_JSON", is_flag=True, help="Print the report as JSON.")
def onboard_command(
    *,
    labels: tuple[Path, ...],
    base_url: str,
    api_key: str,
    secret_key_file: Path,
    user_id: str,
    remove: bool,
    timeout_s: float,
    max_wait_s: float,
    as_json: bool,
) -> None:
    """Drive onboarding from label pictures: scan, register, list and, with --remove, remove.

    LABELS are folders of PNG files, or single pictures. Each is read, then driven through the service at --base-url.
    Exit code 0: every answer was as specified. 1: a label did not read or an answer was not. 2: usage, or the keys
    were refused. 5: the service cannot be reached.
    """
    secret_key = _read_secret(secret_key_file)
    if not user_id.strip():
        raise WrongUse("--user-id is empty: give the account that the devices are linked to")
    try:
        pictures = read_label_files(labels)
        client = ServiceClient(base_url, KeyPair(api_key, secret_key), timeout_s=timeout_s)
    except ConfigurationError as problem:
        raise WrongUse("; ".join(problem.faults)) from None
    except AgentError as problem:
        raise WrongUse(str(problem)) from None
    subjects = [
        Subject(read.text, read.label.product_id, read.label.device_identifier, str(read.path))
        for read in pictures
        if read.label
    ]
    timing = Timing(time.monotonic, time.sleep, max_wait_s)
    with client, show_progress("labels onboarded") as on_progress:
        report = drive_labels(
            subjects,
            client,
            user_id=user_id,
            remove=remove,
            timing=timing,
            on_journey=lambda _, done, total: on_progress(done, total),
        )
    unread = [read for read in pictures if not read.label]
    if as_json:
        unread_json = [{"source": str(read.path), "problem": read.problem} for read in unread]
        click.echo(json.dumps({**report_as_json(report), "unread": unread_json}, ensure_ascii=False))
    else:
        _print_report(report)
    _print_faults(report, unread)
    click.get_current_context().exit(_exit_code(report, unread))


def _read_secret(path: Path) -> Secret:
    try:
        value = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not text"
        raise WrongUse(f"cannot read --secret-key-file {path}: {reason}") from None
    if not value:
        raise WrongUse(f"--secret-key-file {path} is empty: put the secret key into it, msk_...")
    return Secret(value)


def _print_report(report: OnboardingReport) -> None:
    console = Console(highlight=False)
    if any(step.verdict is Verdict.PASSED for journey in report.journeys for step in journey.steps):
        console.print(as_table(report))
    good = sum(journey.passed for journey in report.journeys)
    of = len(report.journeys) + len(report.not_begun)
    style = "bold green" if report.passed else "bold red"
    console.print(Text(f"{good} of {of} labels went the whole way for user {report.user_id}", style=style))
    if report.still_registered:
        console.print(Text(f"{len(report.still_registered)} of them are registered now"))


def _print_faults(report: OnboardingReport, unread: Sequence[ReadLabel]) -> None:
    for read in unread:
        click.echo(f"unread: {read.problem}", err=True)
    for sentence in faults(report):
        click.echo(f"failed: {sentence}", err=True)
    if report.stopped_by is None:
        return
    # Without an answer, the client's own text names the fix already.
    advice = "; check --api-key and --secret-key-file" if isinstance(report.stopped_by, ErrorAnswer) else ""
    left = f"; {len(report.not_begun)} label(s) not begun" if report.not_begun else ""
    click.echo(f"stopped: {report.stopped_by}{advice}{left}", err=True)


def _exit_code(report: OnboardingReport, unread: Sequence[ReadLabel]) -> ExitCode:
    if report.stopped_by is not None:
        return ExitCode.USAGE if isinstance(report.stopped_by, ErrorAnswer) else ExitCode.UNREACHABLE
    return ExitCode.GOOD if report.passed and not unread else ExitCode.CHECK_FAILED
