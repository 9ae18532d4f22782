"""``device-agent init``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agent.cli.loading import configuration_faults_end_it


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
    help="The service's address. Asked for when it is not given.",
)
@click.option(
    "--transport",
    type=click.Choice(["http", "mqtt"]),
    default="http",
    show_default=True,
    envvar="DEVICE_AGENT_TRANSPORT",
    show_envvar=True,
    help="How this device speaks: HTTP with the service or the gateway, or MQTT with the gateway's broker.",
)
@click.option(
    "--broker",
    metavar="HOST[:PORT]",
    envvar="DEVICE_AGENT_BROKER",
    show_envvar=True,
    help="With --transport mqtt: the broker. Asked for when it is not given.",
)
@click.option(
    "--device-id",
    envvar="DEVICE_AGENT_DEVICE__DEVICE_ID",
    show_envvar=True,
    help="This device's id. Asked for when it is not given.",
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
    help="Accept that the secret key lies on this device: for a bench or one prototype. See docs/operations.md.",
)
@click.option(
    "--force",
    is_flag=True,
    envvar="DEVICE_AGENT_FORCE",
    show_envvar=True,
    help="Replace files that are there. Key files that hold a key are kept even so.",
)
def init(
    *,
    directory: Path,
    base_url: str | None,
    transport: str,
    broker: str | None,
    device_id: str | None,
    product_id: str | None,
    state_dir: Path | None,
    allow_secret_key_on_device: bool,
    force: bool,
) -> None:
    """Write a commented configuration, and files of mode 600 for the keys, or for the device token with MQTT.

    On a terminal it asks for what is not given; the keys are typed unseen and never appear on a command line.
    """
    from agent.app.initial import InitialFiles, write_initial_files

    over_mqtt = transport == "mqtt"
    if broker and not over_mqtt:
        raise click.UsageError("--broker needs --transport mqtt")
    if over_mqtt and allow_secret_key_on_device:
        raise click.UsageError("over MQTT a device has a token of its own: leave --allow-secret-key-on-device out")
    keys: dict[str, str] = {}
    if sys.stdin.isatty():
        if over_mqtt:
            broker = broker or click.prompt("Name of the broker (HOST or HOST:PORT)")
        else:
            base_url = base_url or click.prompt("Address of the service (base_url)")
        device_id = device_id or click.prompt("Id of this device (device_id)")
        if over_mqtt:
            keys["token"] = _ask_for("device token")
        elif not allow_secret_key_on_device:
            text = "Put the secret key onto this device? Only for a bench or one prototype"
            allow_secret_key_on_device = click.confirm(text, default=False)
        if allow_secret_key_on_device:
            keys |= {
                name: _ask_for(f"{name} ({prefix}...)") for name, prefix in (("api_key", "mk_"), ("secret_key", "msk_"))
            }
    with configuration_faults_end_it():
        written = write_initial_files(
            InitialFiles(
                directory=directory,
                base_url=base_url or "",
                device_id=device_id or "",
                product_id=product_id,
                state_dir=state_dir,
                allow_secret_key_on_device=allow_secret_key_on_device,
                broker=(broker or "") if over_mqtt else None,
            ),
            keys,
            force=force,
        )
    for line in written.lines:
        click.echo(line)


def _ask_for(what: str) -> str:
    text = f"{what}, unseen; empty to fill in the file later"
    answer: str = click.prompt(text, default="", show_default=False, hide_input=True)
    return answer.strip()
