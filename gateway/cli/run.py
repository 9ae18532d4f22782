"""``device-gateway run``, ``status``, ``check`` and ``init``."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from agent.cli.check import end_with_findings
from agent.cli.program import json_option, print_json, print_parts
from agent.errors import EXIT_CHECK_FAILED
from gateway.cli.options import gateway_config_option, load, path_option
from gateway.initial import write_initial_gateway
from gateway.ops import check_gateway, read_gateway_status
from gateway.run import run_gateway

_CONFIGURATION_DIR = Path("/etc/device-gateway")
_STATE_DIR = Path("/var/lib/device-gateway")


@click.command()
@gateway_config_option
def run(config_path: Path) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    SIGHUP takes over the certificate as its file is now. Device tokens and codes count at once; anything else needs a
    restart.
    """
    exit_code = run_gateway(load(config_path, with_keys=True), os.environ)
    sys.exit(exit_code)


@click.command()
@gateway_config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the gateway is, while it runs and after it died.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    found = read_gateway_status(load(config_path), os.environ)
    if as_json:
        print_json(asdict(found))
    else:
        process = f" (process {found.process_id})" if found.process_id else ""
        click.echo(f"gateway    {found.state}{process}, state in {found.state_dir}")
        if found.last_status is not None:
            print_parts(found.state, found.last_status)
        click.echo(f"devices    {'unusable file of tokens' if found.devices is None else found.devices}")
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
    logging.disable(logging.CRITICAL)  # the list says it better
    findings = check_gateway(lambda: load(config_path, with_keys=True), os.environ, online=online)
    end_with_findings(findings, as_json=as_json)


@click.command()
@path_option(
    "--dir", "Where to write config.yaml, the key files and the certificates.", _CONFIGURATION_DIR, is_folder=True
)
@click.option("--base-url", help="The service's address. Asked for when it is not given.")
@path_option("--state-dir", "Where device tokens and codes are kept.", _STATE_DIR, is_folder=True)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address under which devices reach this server; makes certificates for it and serves HTTPS on "
    "port 8443. Without it the gateway listens on loopback only, for a proxy in front.",
)
@click.option("--mqtt", is_flag=True, help="Also serve devices over MQTT, with a broker on this machine.")
@click.option("--force", is_flag=True, help="Replace config.yaml if it is there. Key files that hold a key are kept.")
def init(*, dir: Path, base_url: str | None, state_dir: Path, hosts: tuple[str, ...], mqtt: bool, force: bool) -> None:
    """Write a commented configuration, and files of mode 600 for the key pair.

    On a terminal it asks for what is not given; the keys are typed unseen and never appear on a command line.
    """
    keys: dict[str, str] = {}
    if sys.stdin.isatty():
        base_url = base_url or click.prompt("Address of the service (base_url)")
        for name, prefix in (("api_key", "mk_"), ("secret_key", "msk_")):
            text = f"{name} ({prefix}..., unseen; empty to fill in the file later)"
            keys[name] = click.prompt(text, default="", show_default=False, hide_input=True).strip()
    now = datetime.now(UTC)
    lines = write_initial_gateway(
        dir, base_url or "", state_dir, hosts=hosts, mqtt=mqtt, keys=keys, now=now, force=force
    )
    for line in lines:
        click.echo(line)
