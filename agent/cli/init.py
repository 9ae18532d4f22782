"""``device-agent init``, ``keys`` and ``config``: what prepares a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.app.initial import InitialFiles, write_initial_files
from agent.cli.options import config_option, configuration_faults_end_it, json_option, load, print_json, print_table
from agent.config.model import AgentConfig
from agent.config.section import json_schema
from agent.exit_codes import EXIT_CONFIGURATION


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
    """Write a configuration, and files for the keys, or for the device token with MQTT.

    Their mode is 600, or 640 with the group device-agent where root writes them.

    On a terminal it asks for what is not given; the keys are typed unseen and never appear on a command line.
    """
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


@click.group()
def keys() -> None:
    """Make and look at the keys of signed commands.

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
    with _needs_the_extra():
        from agent.app.signing_keys import make_pair
    with configuration_faults_end_it():
        pair = make_pair(name)
    if as_json:
        print_json(pair.as_json())
        return
    click.echo(f"key id       {pair.key_id}")
    click.echo(f"private key  {pair.private_path}  (mode 600: keep it with the sender, and a copy in a safe place)")
    click.echo(f"public key   {pair.public_path}  (for the devices: commands.signing.trusted_keys)")


@keys.command("list")
@config_option
@json_option
def list_command(config_path: Path, *, as_json: bool) -> None:
    """List the keys that this device trusts, with the highest counter that it has seen of each."""
    with _needs_the_extra():
        from agent.app.signing_keys import inspect_trusted_keys
    with configuration_faults_end_it():
        found = inspect_trusted_keys(load(config_path).config)
    if as_json:
        print_json({"mode": found.mode, "keys": [key.as_json() for key in found.keys]})
        return
    click.echo(f"commands.signing.mode is {found.mode}")
    if found.keys:
        rows = [
            (key.key_id, "none yet" if key.counter is None else str(key.counter), str(key.path)) for key in found.keys
        ]
        print_table(("KEY", "HIGHEST COUNTER", "FILE"), rows)


@keys.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """Show the id and the public key of FILE, which holds either key of a pair. The private key is never shown."""
    with _needs_the_extra():
        from agent.app.signing_keys import inspect_key_file
    with configuration_faults_end_it():
        found = inspect_key_file(file)
    if as_json:
        print_json(found.as_json())
        return
    click.echo(f"{found.key_id}  ({found.kind} key)")
    click.echo(found.public_pem, nl=False)


@contextmanager
def _needs_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "cryptography":
            raise
        click.echo(
            "keys: the package 'cryptography' is missing: pip install '.[device]' in a clone of device-agent", err=True
        )
        raise SystemExit(EXIT_CONFIGURATION) from None


@click.group()
def config() -> None:
    """Look at what can be configured."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file: every key with description, default and unit.

    Editors with a YAML language server check and complete the file with it.
    """
    print_json(json_schema(AgentConfig, "device-agent configuration"))
