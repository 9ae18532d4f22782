"""``device-agent init`` and ``keys``: what prepares a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from agent.app.initial import InitialFiles, write_initial_files
from agent.cli.options import configuration_faults_end_it, json_option, print_json


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/etc/device-agent"),
    show_default=True,
    envvar="DEVICE_AGENT_DIR",
    show_envvar=True,
    help="Where to write config.yaml and the key files.",
)
@click.option(
    "--base-url",
    envvar="DEVICE_AGENT_SERVICE__BASE_URL",
    show_envvar=True,
    help="Address of the service, or of the gateway's HTTP side.",
)
@click.option(
    "--broker",
    metavar="HOST[:PORT]",
    envvar="DEVICE_AGENT_BROKER",
    show_envvar=True,
    help="The gateway's broker, for a device that speaks MQTT.",
)
@click.option(
    "--device-id",
    required=True,
    envvar="DEVICE_AGENT_DEVICE__DEVICE_ID",
    show_envvar=True,
    help="The id that the service gave this device.",
)
@click.option(
    "--product-id",
    envvar="DEVICE_AGENT_DEVICE__PRODUCT_ID",
    show_envvar=True,
    help="This device's product; only some services need it.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="DEVICE_AGENT_STATE_DIR",
    show_envvar=True,
    help="Where journal and outbox are kept. Default: /var/lib/device-agent.",
)
@click.option(
    "--allow-secret-key-on-device",
    is_flag=True,
    envvar="DEVICE_AGENT_AUTH__ALLOW_SECRET_KEY_ON_DEVICE",
    show_envvar=True,
    help="Use the key pair of the service: for a bench or one prototype. See docs/operations.md.",
)
@click.option(
    "--force",
    is_flag=True,
    envvar="DEVICE_AGENT_FORCE",
    show_envvar=True,
    help="Replace files that are there. Key files that hold a key are kept even so.",
)
def init(*, allow_secret_key_on_device: bool, force: bool, **given: Any) -> None:
    """Write a configuration, and files for the keys or the token to be filled in.

    Their mode is 600, or 640 with the group device-agent where root writes them. A device that reaches a gateway needs
    none of this: `device-agent enroll`.
    """
    wanted = InitialFiles(**given, has_key_pair=allow_secret_key_on_device)
    if not wanted.base_url and not wanted.broker:
        raise click.UsageError("give --base-url or --broker")
    if wanted.broker and wanted.has_key_pair:
        raise click.UsageError("over MQTT a device has a token of its own: leave --allow-secret-key-on-device out")
    with configuration_faults_end_it():
        lines = write_initial_files(wanted, force=force)
    for line in lines:
        click.echo(line)


@click.group()
def keys() -> None:
    """Keys of signed commands and of releases.

    The private key stays with whoever sends commands; devices get the public key and name its file in
    commands.signing.trusted_keys. Needs the extra: pip install '.[device]' in a clone of device-agent.
    """


@keys.command()
@click.argument("name", type=click.Path(path_type=Path))
@json_option
def make(name: Path, *, as_json: bool) -> None:
    """Make a key pair: NAME.key, mode 600, for the sender, and NAME.pub for the devices.

    A file that is there already is left alone, and nothing is written then.
    """
    with configuration_faults_end_it():
        from agent.wire.signed import make_key_pair  # cryptography

        key_id, private_path, public_path = make_key_pair(name)
    if as_json:
        print_json({"key_id": key_id, "private_key_file": private_path, "public_key_file": public_path})
        return
    click.echo(f"key id       {key_id}")
    click.echo(f"private key  {private_path}  (mode 600: keep it with the sender, and a copy in a safe place)")
    click.echo(f"public key   {public_path}  (for the devices: commands.signing.trusted_keys)")
