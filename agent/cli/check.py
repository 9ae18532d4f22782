"""``device-agent check``, ``doctor`` and ``diagnostics``: what finds faults."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from agent.app.diagnostics import collect, view_from_outside
from agent.app.plugins import list_handlers
from agent.app.status import read_running
from agent.cli.options import (
    AS_ROOT,
    config_option,
    configuration_faults_end_it,
    is_root,
    json_option,
    load,
    print_json,
)
from agent.doctor.examination import all_checks, examine
from agent.doctor.quick_check import check_all
from agent.doctor.subject import Subject
from agent.error_text import bounded
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, EXIT_UNREACHABLE
from agent.handlers.built_in.collect_diagnostics import CollectDiagnostics
from agent.handlers.upkeep import Bundle, UpkeepRefused
from agent.plugins import tell_loading

if TYPE_CHECKING:
    from agent.doctor.examination import Result
    from agent.doctor.findings import Check, Finding, Named
    from agent.doctor.installed import InstalledProgram


@click.command()
@config_option
@json_option
@click.option(
    "--online",
    is_flag=True,
    envvar="DEVICE_AGENT_ONLINE",
    show_envvar=True,
    help="Also ask the service and the broker: can they be reached, are the keys good, do they know this device?",
)
def check(config_path: Path, *, as_json: bool, online: bool) -> None:
    """Check everything at once: configuration, key files, plug-ins, each sensor read once, state directory.

    Exit code 0 when all is good, 2 when the configuration is wrong, 5 when service or broker cannot be reached, else 1.
    """
    logging.disable(logging.CRITICAL)  # the list says it better
    tell_loading(partial(click.echo, err=True))
    findings = check_all(lambda: load(config_path), os.environ, online=online)
    if is_root() and not as_json:
        click.echo(AS_ROOT)
    end_with_findings(findings, as_json=as_json)


@click.command()
@config_option
@json_option
@click.option(
    "--offline",
    is_flag=True,
    envvar="DEVICE_AGENT_OFFLINE",
    show_envvar=True,
    help="Ask nobody outside this machine: no name server, no service, no broker.",
)
@click.option(
    "--quiet", is_flag=True, envvar="DEVICE_AGENT_QUIET", show_envvar=True, help="Show only what is not well."
)
def doctor(config_path: Path, *, as_json: bool, offline: bool, quiet: bool) -> None:
    """Look at everything the agent needs; say of each fault its cause and its fix.

    It may run beside the agent: it reads a copy of the store and leaves broker and sensors to the agent that runs. The
    checks are listed in docs/operations.md. Run it as root to see all of them.

    Exit code 0 when nothing failed (warnings count as good), 2 when the configuration is wrong, 5 when the service or
    the broker cannot be reached, else 1.
    """
    subject = Subject(lambda: load(config_path), os.environ)
    end_with_examination(subject, all_checks(), as_json=as_json, offline=offline, quiet=quiet)


def end_with_examination(
    subject: InstalledProgram,
    checks: Sequence[Check[Any]],
    *,
    as_json: bool,
    offline: bool,
    quiet: bool,
) -> NoReturn:
    """Examine, show each check's line as it comes, and end with the exit code; see :func:`doctor`."""
    logging.disable(logging.CRITICAL)  # the list says it better
    tell_loading(partial(click.echo, err=True))
    results: list[Result] = []
    for result in examine(subject, checks=checks, offline=offline):
        results.append(result)
        if not as_json and not (quiet and result.finding.verdict in {"ok", "skipped"}):
            _print(result.check.id, result.finding)
    if as_json:
        print_json([_as_json(result) for result in results])
    else:
        counts = Counter(str(result.finding.verdict) for result in results)
        click.echo(f"{len(results)} checks: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    sys.exit(_exit_code([(result.check.id, result.finding) for result in results]))


def end_with_findings(findings: Sequence[Named], *, as_json: bool) -> NoReturn:
    """Show what a check found and end with its exit code: 0, 2, 5 or 1, see :func:`check`."""
    if as_json:
        words = {"failed": "FAIL"}
        rows = [
            (name, "DOWN" if each.is_unreachable else words.get(each.verdict, each.verdict), each.seen)
            for name, each in findings
        ]
        print_json([{"part": name, "verdict": str(word), "text": text} for name, word, text in rows])
    else:
        for name, finding in findings:
            _print(name, finding)
    raise SystemExit(_exit_code(findings))


def _print(name: str, finding: Finding) -> None:
    verdict = str(finding.verdict)
    click.echo(f"{verdict.upper() if verdict == 'failed' else verdict:<8} {name:<22} {finding.seen}")
    for what, text in (("cause", finding.cause), ("fix", finding.fix)):
        if text:
            click.echo(f"{'':8} {what:>22} {text}")


def _as_json(result: Result) -> dict[str, object]:
    finding = result.finding
    return {
        "id": result.check.id,
        "looked_at": result.check.looks_at,
        "verdict": str(finding.verdict),
        "seen": finding.seen,
        "cause": finding.cause,
        "fix": finding.fix,
        "duration_s": round(result.duration_s, 3),
    }


def _exit_code(findings: Iterable[Named]) -> int:
    failed = [(name, finding) for name, finding in findings if finding.verdict == "failed"]
    if any(name == "configuration" for name, _ in failed):
        return EXIT_CONFIGURATION
    if any(finding.is_unreachable for _, finding in failed):
        return EXIT_UNREACHABLE
    return EXIT_CHECK_FAILED if failed else 0


@click.command()
@config_option
@json_option
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current one",
    envvar="DEVICE_AGENT_DIR",
    show_envvar=True,
    help="The directory that the bundle goes into.",
)
def diagnostics(config_path: Path, folder: Path, *, as_json: bool) -> None:
    """Write a bundle for whoever helps you: status, configuration, log, store, plug-ins, system, and no secrets.

    The running agent is not disturbed. Exit code 1 when the bundle could not be written.
    """
    logging.disable(logging.CRITICAL)  # what a plug-in complains about is in the bundle
    with configuration_faults_end_it():
        loaded = load(config_path)
    bounds = CollectDiagnostics.Settings()
    tell_loading(partial(click.echo, err=True))
    view = view_from_outside(
        loaded, os.environ, lambda: list_handlers(loaded.config, read_running(loaded.config, os.environ))
    )
    try:
        # A person's directory is not tidied up.
        written = collect(view, Bundle(bounds.max_bytes, keep=10**6, max_age_s=float("inf")), folder.absolute())
    except UpkeepRefused as error:
        click.echo(bounded(f"no bundle was written: {error.message}"), err=True)
        raise SystemExit(EXIT_CHECK_FAILED) from None
    if as_json:
        print_json(written)
    else:
        click.echo(f"wrote {written['path']} ({written['size_bytes']} bytes, sha256 {written['sha256']})")
