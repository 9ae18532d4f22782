"""``device-gateway init``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from agent.cli.loading import configuration_faults_end_it


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/device-gateway"),
    show_default=True,
    help="Where to write config.yaml, the key files and the certificates.",
)
@click.option("--base-url", help="The service's address. Asked for when it is not given.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/device-gateway"),
    show_default=True,
    help="Where store and device tokens are kept.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address under which devices reach this server; makes certificates for it and serves HTTPS on "
    "port 8443. Without it the gateway listens on loopback only, for a proxy in front.",
)
@click.option("--mqtt", is_flag=True, help="Also serve devices over MQTT, with a broker on this machine.")
@click.option("--force", is_flag=True, help="Replace config.yaml if it is there. Key files that hold a key are kept.")
def init(
    *, directory: Path, base_url: str | None, state_dir: Path, hosts: tuple[str, ...], mqtt: bool, force: bool
) -> None:
    """Write a commented configuration, and files of mode 600 for the key pair.

    On a terminal it asks for what is not given; the keys are typed unseen and never appear on a command line.
    """
    from gateway.initial import InitialGateway, write_initial_gateway

    keys: dict[str, str] = {}
    if sys.stdin.isatty():
        base_url = base_url or click.prompt("Address of the service (base_url)")
        for name, prefix in (("api_key", "mk_"), ("secret_key", "msk_")):
            text = f"{name} ({prefix}..., unseen; empty to fill in the file later)"
            keys[name] = click.prompt(text, default="", show_default=False, hide_input=True).strip()
    with configuration_faults_end_it():
        wanted = InitialGateway(directory, base_url or "", state_dir, hosts, mqtt)
        lines = write_initial_gateway(wanted, keys, datetime.now(UTC), force=force)
    for line in lines:
        click.echo(line)
