"""``device-agent check``, ``doctor`` and ``diagnostics``: what finds faults."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from agent.app.diagnostics import collect, journal_lines
from agent.app.status import read_agent_status
from agent.cli.program import (
    config_option,
    json_option,
    load,
    print_json,
)
from agent.doctor import Named, examine
from agent.doctor.checks import BEFORE_START, CHECKS, Device
from agent.errors import EXIT_CHECK_FAILED, EXIT_CONFIGURATION, EXIT_UNREACHABLE
from agent.handlers.base import HandlerRejected
from agent.plugins import tell_loading
from agent.text import bounded


@click.command()
@config_option
@json_option
@click.option(
    "--online",
    is_flag=True,
    help="Also ask the service and the broker: can they be reached, are the keys good, do they know this device?",
)
def check(config_path: Path, *, as_json: bool, online: bool) -> None:
    """Check before a start: configuration, key files, state directory, plug-ins, each sensor read once here.

    These are some of the checks of device-agent doctor.

    Exit code 0 when all is good, 2 when the configuration or a key file is wrong, 5 when service or broker cannot be
    reached, else 1.
    """
    device = Device(lambda: load(config_path), os.environ, loads_plugins=True)
    chosen = [each for each in CHECKS if each.id in BEFORE_START or (online and each.online)]
    end_with_findings(examine(device, chosen), as_json=as_json)


@click.command()
@config_option
@json_option
@click.option("--offline", is_flag=True, help="Ask nobody outside this machine: no name server, service or broker.")
@click.option("--quiet", is_flag=True, help="Show only what is not well.")
def doctor(config_path: Path, *, as_json: bool, offline: bool, quiet: bool) -> None:
    """Look at everything the agent needs; say of each fault its cause and its fix.

    It may run beside the agent: it asks the agent what its store holds and leaves broker and sensors to it. The checks
    are listed in docs/operations.md. Run it as root to see all of them.

    Exit code 0 when nothing failed (warnings count as good), 2 when the configuration or a key file is wrong, 5 when
    the service or the broker cannot be reached, else 1.
    """
    device = Device(lambda: load(config_path), os.environ)
    end_with_findings(examine(device, CHECKS, offline=offline), as_json=as_json, quiet=quiet)


def end_with_findings(findings: Iterable[Named], *, as_json: bool, quiet: bool = False) -> NoReturn:
    """Show each finding as it comes, and end with the exit code of the worst; see :func:`check`."""
    log_nothing_but_loading()
    found: list[Named] = []
    for name, finding in findings:
        found.append((name, finding))
        if as_json or (quiet and finding.verdict in {"ok", "skipped"}):
            continue
        verdict = str(finding.verdict)
        click.echo(f"{verdict.upper() if verdict == 'failed' else verdict:<8} {name:<22} {bounded(finding.seen)}")
        for what, text in (("cause", finding.cause), ("fix", finding.fix)):
            if text:
                click.echo(f"{'':8} {what:>22} {bounded(text)}")
    if as_json:
        print_json([{"id": name, **asdict(finding)} for name, finding in found])
    else:
        counts = Counter(str(finding.verdict) for _, finding in found)
        click.echo(f"{len(found)} findings: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    failed = [(name, finding) for name, finding in found if finding.verdict == "failed"]
    if any(name in {"configuration", "key_files"} for name, _ in failed):
        raise SystemExit(EXIT_CONFIGURATION)
    if any(finding.is_unreachable for _, finding in failed):
        raise SystemExit(EXIT_UNREACHABLE)
    raise SystemExit(EXIT_CHECK_FAILED if failed else 0)


def log_nothing_but_loading() -> None:
    """Name each plug-in that is imported, on standard error, and log nothing: what a command shows says it better."""
    logging.disable(logging.CRITICAL)
    tell_loading(partial(click.echo, err=True))


@click.command()
@config_option
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current one",
    help="The directory that the bundle goes into.",
)
def diagnostics(config_path: Path, folder: Path) -> None:
    """Write a bundle for whoever helps you: status, configuration, log, store, system, and no secrets.

    The running agent is not disturbed. Exit code 1 when the bundle could not be written.
    """
    loaded = load(config_path)
    status = read_agent_status(loaded.config, os.environ)
    try:
        written = collect(loaded.config, os.environ, status, journal_lines, folder.absolute())
    except HandlerRejected as error:
        click.echo(bounded(f"no bundle was written: {error.message}"), err=True)
        raise SystemExit(EXIT_CHECK_FAILED) from None
    click.echo(f"wrote {written['path']} ({written['size_bytes']} bytes, sha256 {written['sha256']})")
