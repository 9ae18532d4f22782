"""``device-agent doctor``."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from agent.cli.loading import EXIT_CONFIGURATION, load
from agent.cli.options import EXIT_CHECK_FAILED, EXIT_UNREACHABLE, config_option, json_option, print_json

if TYPE_CHECKING:
    from agent.doctor.examination import Result
    from agent.doctor.findings import Check
    from agent.doctor.installed import InstalledProgram


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
    "--fix",
    is_flag=True,
    envvar="DEVICE_AGENT_FIX",
    show_envvar=True,
    help="Mend what can be mended safely (modes of key files and state directory, a missing state directory, left-over "
    "temporary files) and say what was done.",
)
@click.option(
    "--quiet", is_flag=True, envvar="DEVICE_AGENT_QUIET", show_envvar=True, help="Show only what is not well."
)
def doctor(config_path: Path, *, as_json: bool, offline: bool, fix: bool, quiet: bool) -> None:
    """Look at everything the agent needs; say of each fault its cause and its fix.

    It may run beside the agent: it reads a copy of the store and leaves broker and sensors to the agent that runs. The
    checks are listed in docs/operations.md. Run it as root to see all of them.

    Exit code 0 when nothing failed (warnings count as good), 2 when the configuration is wrong, 5 when the service or
    the broker cannot be reached, else 1.
    """
    from agent.doctor.examination import all_checks
    from agent.doctor.subject import Subject

    subject = Subject(lambda: load(config_path), os.environ)
    end_with_examination(subject, all_checks(), as_json=as_json, offline=offline, fix=fix, quiet=quiet)


def end_with_examination(
    subject: InstalledProgram,
    checks: Sequence[Check[Any]],
    *,
    as_json: bool,
    offline: bool,
    fix: bool,
    quiet: bool,
) -> NoReturn:
    """Examine, show each check's line as it comes, and end with the exit code; see :func:`doctor`."""
    from agent.doctor.examination import examine

    logging.disable(logging.CRITICAL)  # the list says it better
    results: list[Result] = []
    for result in examine(subject, checks=checks, offline=offline, fix=fix):
        results.append(result)
        if not as_json and not (quiet and result.finding.verdict in {"ok", "skipped"} and not result.fixed):
            _print(result)
    if as_json:
        print_json([_as_json(result) for result in results])
    else:
        counts = Counter(str(result.finding.verdict) for result in results)
        click.echo(f"{len(results)} checks: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    sys.exit(_exit_code(results))


def _print(result: Result) -> None:
    finding = result.finding
    click.echo(
        f"{str(finding.verdict).upper() if finding.verdict == 'failed' else finding.verdict:<8} "
        f"{result.check.id:<22} {finding.seen}"
    )
    for name, text in (("cause", finding.cause), ("fix", finding.fix), ("fixed", result.fixed)):
        if text:
            click.echo(f"{'':8} {name:>22} {text}")


def _as_json(result: Result) -> dict[str, object]:
    finding = result.finding
    return {
        "id": result.check.id,
        "looked_at": result.check.looks_at,
        "verdict": str(finding.verdict),
        "seen": finding.seen,
        "cause": finding.cause,
        "fix": finding.fix,
        "fixed": result.fixed,
        "duration_s": round(result.duration_s, 3),
    }


def _exit_code(results: Sequence[Result]) -> int:
    failed = [result for result in results if result.finding.verdict == "failed"]
    if any(result.check.id == "configuration" for result in failed):
        return EXIT_CONFIGURATION
    if any(result.finding.is_unreachable for result in failed):
        return EXIT_UNREACHABLE
    return EXIT_CHECK_FAILED if failed else 0
