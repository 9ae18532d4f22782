"""``device-gateway doctor``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agent.cli.doctor import end_with_examination
from agent.cli.options import json_option
from gateway.cli.options import gateway_config_option, load_whole_without_keys


@click.command()
@gateway_config_option
@json_option
@click.option(
    "--offline",
    is_flag=True,
    envvar="DEVICE_GATEWAY_OFFLINE",
    show_envvar=True,
    help="Ask nobody outside this machine: no service, no broker.",
)
@click.option(
    "--quiet", is_flag=True, envvar="DEVICE_GATEWAY_QUIET", show_envvar=True, help="Show only what is not well."
)
def doctor(config_path: Path, *, as_json: bool, offline: bool, quiet: bool) -> None:
    """Look at the gateway's unit, its key files and all that check looks at; say of each fault its cause and its fix.

    It may run beside the gateway. Run it as root to see all of it: what the unit hands over, and whether it may do what
    the configuration says. The checks are listed in docs/operations.md.

    Exit code 0 when nothing failed (warnings count as good), 2 when the configuration is wrong, 5 when the service or
    the broker cannot be reached, else 1.
    """
    from gateway.doctor import CHECKS, GatewaySubject

    subject = GatewaySubject(lambda: load_whole_without_keys(config_path), os.environ)
    end_with_examination(subject, CHECKS, as_json=as_json, offline=offline, fix=False, quiet=quiet)
