"""``device-agent check``."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from agent.cli.loading import load
from agent.cli.options import config_option, end_with, json_option


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
    from agent.app.checks import check_all

    logging.disable(logging.CRITICAL)  # the list says it better
    findings = check_all(lambda: load(config_path), os.environ, online=online)
    end_with(findings, as_json=as_json)
