"""``fleet-simulator onboard``: options and what is printed, no logic."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click
import pytest

from agent.errors import NotFound
from agent.text import bounded
from agent.wire.limits import IDENTIFIER_CHARACTERS
from simulator.credentials import ServiceAccess, takes_access
from simulator.exit_codes import ExitCode, exit_code_of, text_of
from simulator.interrupts import terminations_as_interrupts
from simulator.labels.manifest import MANIFEST_JSON, ListedLabel, read_manifest
from simulator.labels.reading import read_labels
from simulator.onboarding.campaign import Campaign
from simulator.onboarding.cleanup import clean_up
from simulator.onboarding.listing import SharedList
from simulator.onboarding.patience import Patience
from simulator.onboarding.run_file import MARK, DeviceRow, RunFile
from simulator.onboarding.session import Accounts
from simulator.onboarding.suite.settings import Settings, SettingsPlugin
from simulator.terminal import CommandLineError, show_progress
from simulator.wire.client import ServiceClient

_FILE: Final = click.Path(path_type=Path)
_SUITE: Final = Path(__file__).parent / "suite"
_FAULTS_SHOWN: Final = 20


def _takes_service(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Add the options that lead to a service; the command gets ``access``, and the ``patience`` with its quota."""

    @takes_access
    @click.option("--max-wait-s", type=click.FloatRange(min=0), default=120.0, help="Longest wait for the quota.")
    @functools.wraps(command)
    def wrapper(*, max_wait_s: float, **given: Any) -> ExitCode:
        return command(patience=Patience(max_wait_s), **given)

    return wrapper


@click.group("onboard")
def onboard_group() -> None:
    """Onboarding: labels one by one or by the thousand, and every order of events against any server."""


@contextlib.contextmanager
def _opened(access: ServiceAccess, patience: Patience) -> Iterator[ServiceClient]:
    """The service, which has answered once: keys that are refused are said before anything is begun."""
    with access.open() as client:
        with contextlib.suppress(NotFound):
            patience.repeat(lambda: list(client.user_devices(f"{MARK}nobody", limit=1)))
        yield client


def _file_of(path: Path | None, client: ServiceClient, **about: str) -> contextlib.closing[RunFile]:
    """The file of a run at this service."""
    return contextlib.closing(RunFile(path, {"base_url": client.origin, **about}))


def _read(paths: tuple[Path, ...], *, pictures: bool) -> tuple[list[ListedLabel], list[str]]:
    """The labels of each device once, and what could not be read."""
    found: dict[tuple[str, str], ListedLabel] = {}
    problems = []
    for path in paths:
        manifest = path / MANIFEST_JSON if path.is_dir() else path
        if manifest.suffix in {".json", ".csv"} and manifest.is_file() and not (pictures and path.is_dir()):
            for label in read_manifest(manifest):
                found.setdefault((label.product_id, label.identifier), label)
            continue
        for read in read_labels([path]):
            if read.label is None:
                problems.append(read.problem)
            else:
                one = ListedLabel(read.label.device_identifier, read.label.product_id, read.text)
                found.setdefault((one.product_id, one.identifier), one)
    return list(found.values()), problems


def _print_faults(faults: list[str]) -> None:
    for fault in faults[:_FAULTS_SHOWN]:
        click.echo(bounded(f"failed: {fault}"), err=True)
    if len(faults) > _FAULTS_SHOWN:
        click.echo(f"failed: {len(faults) - _FAULTS_SHOWN} more; --json has them all", err=True)


def _takes_labels(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """What both ways to onboard labels take."""
    options = (
        click.argument("labels", nargs=-1, required=True, type=_FILE),
        _takes_service,
        click.option("--user-id", required=True, help="Account that the devices are linked to."),
        click.option("--remove/--keep", default=False, help="Remove each device of the user at the end, or keep it."),
        click.option(
            "--pictures/--manifest",
            default=None,
            help="Read a folder's pictures ('labels' does), or take its manifest.json at its word ('campaign' does).",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    )
    return functools.reduce(lambda made, add: add(made), reversed(options), command)


@onboard_group.command("labels")
@_takes_labels
def labels_command(**given: Any) -> ExitCode:
    """Drive labels through onboarding one by one: scan, register, list and, with --remove, remove.

    LABELS are folders, pictures or PDF documents, each with any number of labels. Exit code 0: every answer was as
    specified. 1: a label did not read or an answer was not. 2: usage, or the keys were refused. 5: no service there.
    """
    return _onboard(**given, run_path=None, rate=None, concurrency=1)


@onboard_group.command("campaign")
@_takes_labels
@click.option("--run", "run_path", required=True, type=_FILE, help="SQLite file of the run; the same again goes on.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Labels that arrive in a second; as many as fit."
)
@click.option("--concurrency", type=click.IntRange(1, 64), default=8, help="Labels in flight at once.")
def campaign_command(**given: Any) -> ExitCode:
    """Onboard labels by the thousand, each exactly once, through lost answers, quotas and kills.

    Exit code 0: every device is there exactly once. 1: it is not, a label was refused, or the list cannot be judged.
    2: usage, or the keys were refused. 5: no service there. 130: ended by Ctrl-C; the same command goes on.
    """
    return _onboard(**given)


def _onboard(
    *,
    labels: tuple[Path, ...],
    access: ServiceAccess,
    patience: Patience,
    user_id: str,
    remove: bool,
    as_json: bool,
    pictures: bool | None,
    run_path: Path | None,
    rate: float | None,
    concurrency: int,
) -> ExitCode:
    if not user_id.strip() or len(user_id) > IDENTIFIER_CHARACTERS:
        raise CommandLineError(f"--user-id has {len(user_id)} characters: give an id of 1 to {IDENTIFIER_CHARACTERS}")
    stop = threading.Event()
    patience = replace(patience, sleep=stop.wait, is_over=stop.is_set)
    with _opened(access, patience) as client, terminations_as_interrupts():
        labels_read, problems = _read(labels, pictures=run_path is None if pictures is None else pictures)
        with _file_of(run_path, client, user_id=user_id) as file:
            file.add(DeviceRow(user_id, one.product_id, one.identifier, one.text) for one in labels_read)
            accounts = Accounts(client, user_id, patience=patience, made=file)
            listed = SharedList(client, user_id, patience)
            campaign = Campaign(accounts, listed, remove, rate, concurrency, stop)
            with show_progress("labels onboarded") as on_progress:
                report = campaign.run(on_progress)
    faults = [*(f"unread: {problem}" for problem in problems), *report.faults]
    if as_json:
        document = {**asdict(replace(report, stopped_by=None)), "faults": faults}
        click.echo(json.dumps({**document, "stopped_by": report.stopped_by and str(report.stopped_by)}))
    else:
        click.echo(", ".join(f"{count} {outcome}" for outcome, count in report.outcomes.items()) or "no labels")
        for name, values in (("took", report.took_s), ("began late", report.late_s)):
            if values and run_path is not None:
                click.echo(f"{name:<11} p50 {values[0]:.3f} s, p95 {values[1]:.3f} s, p99 {values[2]:.3f} s")
    _print_faults(faults)
    if report.unjudged:
        click.echo(bounded(f"not judged: {report.unjudged}"), err=True)
    again = "; the same command goes on" if run_path is not None else ""
    if report.was_interrupted:
        click.echo(f"interrupted{again}", err=True)
        return ExitCode.INTERRUPTED
    if report.stopped_by is not None:
        click.echo(bounded(f"stopped: {text_of(report.stopped_by)}{again}"), err=True)
        return exit_code_of(report.stopped_by)
    return ExitCode.GOOD if report.passed and not problems else ExitCode.CHECK_FAILED


@onboard_group.command("cases")
@_takes_service
@click.option("--product-id", default="", help="A product for most labels.  [default: made, and deleted at the end]")
@click.option("--select", help="Only tests that match, in pytest's words for -k: 'race or round_trip'.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=1, help="How often each race is run.")
@click.option("--strict", is_flag=True, help="Bad payloads must get our service's own status and error.")
@click.option("--junit", type=_FILE, help="File for the results as JUnit XML.")
@click.option("--run", "run_path", type=_FILE, help="SQLite file of what is made, for 'onboard cleanup' after a kill.")
def cases_command(
    *,
    access: ServiceAccess,
    patience: Patience,
    product_id: str,
    select: str | None,
    repeat: int,
    strict: bool,
    junit: Path | None,
    run_path: Path | None,
) -> ExitCode:
    """Every order of events and every bad payload against a server, as a pytest suite.

    Exit code 0: every answer was as specified, or nothing is specified. 1: one was not. 2: usage, or the keys were
    refused. 5: no service there.
    """
    with _opened(access, patience) as client, _file_of(run_path, client) as file:
        settings = Settings(client, file, patience, product_id, strict, repeat)
        words = ["-q", "-rfs", "-c", "/dev/null", f"--rootdir={_SUITE}", f"--confcutdir={_SUITE}", "--tb=short"]
        words += ["-p", "no:cacheprovider", "--import-mode=importlib"]
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed is no part of this suite
        words += [f"--junitxml={junit}"] if junit else []
        words += ["-k", select] if select else []
        code = pytest.main([*words, str(_SUITE)], plugins=[SettingsPlugin(settings)])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise CommandLineError(f"--select {select!r} matches no test")
    return ExitCode.GOOD if code == pytest.ExitCode.OK else ExitCode.CHECK_FAILED


@onboard_group.command("cleanup")
@click.argument("run_path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_takes_service
def cleanup_command(*, run_path: Path, access: ServiceAccess, patience: Patience) -> ExitCode:
    """Remove all devices and products that the run of this file made.

    Exit code 0: nothing is left. 1: something is; it is named.
    """
    with _opened(access, patience) as client, _file_of(run_path, client) as file:
        report = clean_up(file, client, patience)
    click.echo(f"{report.devices} device(s) and {report.products} product(s) removed")
    _print_faults(report.problems)
    return ExitCode.CHECK_FAILED if report.problems else ExitCode.GOOD
