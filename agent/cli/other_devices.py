"""``device-agent other-devices``: what was kept when ``device.device_id`` was changed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from agent.bounded_text import bounded
from agent.cli.loading import EXIT_CONFIGURATION, configuration_faults_end_it, load
from agent.cli.options import config_option, json_option, print_json, print_table


@click.group("other-devices")
def other_devices() -> None:
    """Show, release or drop what was kept when device.device_id was changed.

    Readings and results that wait belong to the device that they were taken as. They are kept aside under another id,
    and come back with theirs.
    """


@other_devices.command("list")
@config_option
@json_option
def list_command(config_path: Path, *, as_json: bool) -> None:
    """List the devices that something is kept of."""
    from agent.app.other_devices import find_others

    with configuration_faults_end_it():
        found = find_others(load(config_path).config.state_dir)
    if as_json:
        print_json([{**asdict(store), "path": str(store.path)} for store in found])
        return
    if not found:
        click.echo("nothing is kept of other devices")
        return
    rows = [(store.device_id, str(store.readings), str(store.results), str(store.path)) for store in found]
    print_table(("DEVICE", "READINGS", "RESULTS", "WHERE"), rows)


@other_devices.command()
@click.argument("device_id")
@config_option
def release(device_id: str, config_path: Path) -> None:
    """Send the readings of DEVICE_ID as this device's, with the times that they have; stop the agent before.

    For an id that was mistyped, or a device that was registered anew. Results of commands stay aside.
    """
    from agent.adapters.clocks import SystemClock
    from agent.app.other_devices import choose
    from agent.app.other_devices import release as move
    from agent.app.run import outbox_bounds
    from agent.errors import StorageError

    with configuration_faults_end_it():
        config = load(config_path).config
        other = choose(config.state_dir, device_id)
    try:
        moved = move(config.state_dir, other, SystemClock(), outbox_bounds(config.outbox))
    except StorageError as error:
        click.echo(bounded(f"error: {error}"), err=True)
        raise SystemExit(EXIT_CONFIGURATION) from None
    click.echo(f"{moved} readings of {device_id} are sent as {config.device.device_id}'s from the next start on")


@other_devices.command()
@click.argument("device_id")
@config_option
def drop(device_id: str, config_path: Path) -> None:
    """Delete what is kept of DEVICE_ID."""
    from agent.app.other_devices import choose
    from agent.app.other_devices import drop as delete

    with configuration_faults_end_it():
        other = choose(load(config_path).config.state_dir, device_id)
    delete(other)
    click.echo(f"{other.readings} readings and {other.results} results of {device_id} are deleted")
