"""``device-agent check``."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from pathlib import Path

import click

from agent.cli.options import (
    EXIT_CHECK_FAILED,
    EXIT_CONFIGURATION,
    EXIT_UNREACHABLE,
    config_option,
    json_option,
    load,
    print_json,
)


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
    from agent.app.checks import Verdict, check_all

    logging.disable(logging.CRITICAL)  # the list says it better
    findings = check_all(lambda: load(config_path), os.environ, online=online)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{finding.verdict.value:<5} {finding.part}: {finding.text}")
    verdicts = {finding.verdict for finding in findings}
    if any(finding.part == "configuration" and finding.verdict is Verdict.FAILED for finding in findings):
        raise SystemExit(EXIT_CONFIGURATION)
    if Verdict.UNREACHABLE in verdicts:
        raise SystemExit(EXIT_UNREACHABLE)
    raise SystemExit(EXIT_CHECK_FAILED if Verdict.FAILED in verdicts else 0)
