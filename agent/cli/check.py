"""``device-agent check``."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import NoReturn

import click

from agent.bounded_text import bounded
from agent.cli.loading import configuration_faults_end_it, load
from agent.cli.options import (
    AS_ROOT,
    EXIT_CHECK_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_UNREACHABLE,
    config_option,
    end_with,
    is_root,
    json_option,
    print_json,
)
from agent.errors import ServiceError


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
@click.option(
    "--server",
    is_flag=True,
    envvar="DEVICE_AGENT_SERVER",
    show_envvar=True,
    help="Instead of that: what does the server do with each choice that the specification leaves open? Some twenty "
    "GET requests, which change nothing there and take no command.",
)
def check(config_path: Path, *, as_json: bool, online: bool, server: bool) -> None:
    """Check everything at once: configuration, key files, plug-ins, each sensor read once, state directory.

    Exit code 0 when all is good, 2 when the configuration is wrong, 5 when service or broker cannot be reached, else 1.
    With --server: 0 when all rules of the specification hold, 1 when one is broken, 3 when one could not be judged.
    """
    logging.disable(logging.CRITICAL)  # the list says it better
    if server:
        _probe(config_path, as_json=as_json)
    from agent.app.checks import check_all

    findings = check_all(lambda: load(config_path), os.environ, online=online)
    if is_root() and not as_json:
        click.echo(AS_ROOT)
    end_with(findings, as_json=as_json)


def _probe(config_path: Path, *, as_json: bool) -> NoReturn:
    from agent.app.server_probe import probe_server  # with everything that a probe needs
    from agent.wire.probe.report import Standing, report_lines

    try:
        with configuration_faults_end_it():
            report = probe_server(load(config_path).config, os.environ)
    except ServiceError as error:
        click.echo(bounded(str(error)), err=True)
        raise SystemExit(EXIT_UNREACHABLE) from None
    if as_json:
        print_json(report.to_json())
    else:
        for line in report_lines(report):
            click.echo(line)
    codes = {Standing.GOOD: 0, Standing.BROKEN: EXIT_CHECK_FAILED, Standing.INCONCLUSIVE: EXIT_INCONCLUSIVE}
    raise SystemExit(codes[report.standing])
