"""``device-gateway run``, ``status`` and ``check``."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.cli.loading import configuration_faults_end_it
from agent.cli.options import EXIT_CHECK_FAILED, end_with, json_option, print_json
from gateway.cli.options import gateway_config_option, load, load_without_keys

if TYPE_CHECKING:
    from gateway.status import GatewayStatus


@click.command()
@gateway_config_option
def run(config_path: Path) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    SIGHUP takes over device tokens, the certificate and the log level as they are now; for anything else the log says
    that a restart is needed.
    """
    from agent.process.allocator import use_one_arena
    from gateway.app import run_gateway

    use_one_arena()
    with configuration_faults_end_it():
        exit_code = run_gateway(load(config_path), os.environ, lambda: load(config_path))
    sys.exit(exit_code)


@click.command()
@gateway_config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the gateway is, while it runs and after it died.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    from gateway.status import look_at

    with configuration_faults_end_it():
        found = look_at(load_without_keys(config_path), os.environ)
    if as_json:
        print_json({**asdict(found), "is_healthy": found.is_healthy})
    else:
        _print(found)
    raise SystemExit(0 if found.is_healthy else EXIT_CHECK_FAILED)


@click.command()
@gateway_config_option
@json_option
@click.option(
    "--online",
    is_flag=True,
    envvar="DEVICE_GATEWAY_ONLINE",
    show_envvar=True,
    help="Also ask the service and the broker: can they be reached, are keys and password good?",
)
def check(config_path: Path, *, as_json: bool, online: bool) -> None:
    """Check everything at once: configuration, key files, state directory, device tokens, certificate.

    Exit code 0 when all is good, 2 when the configuration is wrong, 5 when service or broker cannot be reached, else 1.
    """
    from gateway.checks import check_gateway

    logging.disable(logging.CRITICAL)  # the list says it better
    findings = check_gateway(lambda: load(config_path), os.environ, online=online)
    end_with(findings, as_json=as_json)


def _print(found: GatewayStatus) -> None:
    process = f" (process {found.process_id})" if found.process_id else ""
    click.echo(f"gateway    {found.state}{process}, state in {found.state_dir}")
    if found.share.count > 1:
        click.echo(f"share      {found.share}: other gateways fetch the commands of the other devices")
    if found.told is not None:
        since = "stopped" if found.state == "stopped" else "told"
        reason = f": {found.told.reason}" if found.told.reason else ""
        click.echo(f"{since:<10} {_ago(found.told.written_wall_s)}{reason}")
        for name, part in found.told.parts.items():
            detail = f": {part.detail}" if part.detail else ""
            click.echo(f"  {name} {part.state} for {_span(time.time() - part.since_wall_s)}{detail}")
    if found.store_fault:
        click.echo(f"store      {found.store_fault}")
    store = found.store
    if store is None:
        return
    counts = ", ".join(f"{count} {state}" for state, count in store.commands.items()) or "none yet"
    click.echo(f"commands   {counts}; {store.results} results wait")
    oldest = f", the oldest from {_ago(store.oldest_wall_s)}" if store.oldest_wall_s else ""
    click.echo(f"readings   {store.readings} waiting ({store.size_bytes} bytes{oldest}), {store.set_aside} set aside")
    for name, count in store.counters.items():
        click.echo(f"  {name.replace('_', ' ')}: {count}")
    for text in found.reasons:
        click.echo(f"set aside  {text}")
    for text in found.incidents:
        click.echo(f"incident   {text}")


def _ago(wall_s: float) -> str:
    return f"{_span(time.time() - wall_s)} ago"


def _span(seconds: float) -> str:
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
