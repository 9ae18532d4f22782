"""``device-agent keys``: the keys of signed commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.cli.loading import EXIT_CONFIGURATION, configuration_faults_end_it, load
from agent.cli.options import config_option, json_option, print_json, print_table


@click.group()
def keys() -> None:
    """Make and look at the keys of signed commands.

    The private key stays with whoever sends commands; devices get the public key and name its file in
    commands.signing.trusted_keys. Needs the extra: pip install 'device-agent[signing]'.
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
        from agent.app.signing_keys import look_at_trusted
    with configuration_faults_end_it():
        found = look_at_trusted(load(config_path).config)
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
        from agent.app.signing_keys import look_at_file
    with configuration_faults_end_it():
        found = look_at_file(file)
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
        click.echo("keys: the package 'cryptography' is missing: pip install 'device-agent[signing]'", err=True)
        raise SystemExit(EXIT_CONFIGURATION) from None
