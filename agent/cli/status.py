"""``device-agent status``, ``handlers``, ``sensors`` and ``other-devices``: what there is on this device."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agent.adapters.clocks import SystemClock
from agent.app.other_devices import choose, find_others
from agent.app.other_devices import drop as delete
from agent.app.other_devices import release as move
from agent.app.plugins import is_usable, list_handlers, read_sensors
from agent.app.status import read_agent_status, read_running
from agent.cli.options import (
    AS_ROOT,
    ago,
    config_option,
    configuration_faults_end_it,
    is_root,
    json_option,
    load,
    print_json,
    print_parts,
    print_table,
    span,
)
from agent.error_text import bounded
from agent.errors import StorageError
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_CONFIGURATION
from agent.plugins import stale_packages, tell_loading
from agent.sensors.registry import SensorRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.adapters.store.status import StoreStatus
    from agent.app.status import AgentStatus
    from agent.runtime.ledger import Day

# What was set by commands: intervals, what handlers remember, counters of keys. The agent's own books are in --json.
_FOR_PEOPLE: Final = ("interval.", "handler.", "signed_counter:")

_VALUES_SHOWN = 200


@click.command()
@config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the agent is, while it runs and after it died.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    with configuration_faults_end_it():
        found = read_agent_status(load(config_path).config, os.environ)
    if as_json:
        members = asdict(found)
        print_json({"told": members.pop("last_status"), **members, "is_healthy": found.is_healthy})
    else:
        _print(found)
    raise SystemExit(0 if found.is_healthy else EXIT_CHECK_FAILED)


def _print(found: AgentStatus) -> None:
    process = f" (process {found.process_id})" if found.process_id else ""
    click.echo(f"agent      {found.state}{process}, state in {found.state_dir}")
    if found.last_status is not None:
        click.echo(f"device     {found.last_status.device_id}, agent {found.last_status.version}")
        print_parts(found.state, found.last_status)
        for text in stale_packages(found.last_status.packages) if found.state == "running" else ():
            click.echo(f"plug-ins   {text}: systemctl restart device-agent")
    if found.tokens:
        click.echo(f"tokens     {found.tokens}")
    if found.server is not None:
        click.echo(f"server     {', '.join(found.server.words)}")
    if found.store_fault:
        click.echo(f"store      {found.store_fault}")
    if found.store is not None:
        _print_store(found.store)
    if found.traffic:
        _print_traffic(found.traffic)


def _print_store(store: StoreStatus) -> None:
    outbox = store.outbox
    counts = ", ".join(f"{count} {state}" for state, count in store.commands.items()) or "none yet"
    click.echo(f"commands   {counts}")
    oldest = f", the oldest from {ago(outbox.oldest_wall_s)}" if outbox.oldest_wall_s else ""
    click.echo(
        f"readings   {outbox.rows} waiting ({outbox.size_bytes} bytes{oldest}), {outbox.delivered} delivered, "
        f"{outbox.set_aside} refused, {outbox.dropped} dropped"
    )
    if store.undated:
        click.echo(f"  {store.undated} of them are of a boot whose time is not known yet")
    click.echo(f"disk       {_size(store.disk_bytes)} taken by the store")
    for gap in store.gaps:
        length = span(gap.to_wall_s - gap.from_wall_s)
        click.echo(f"  dropped for {gap.reason}: {gap.rows} readings over {length}, the last from {ago(gap.to_wall_s)}")
    if store.untold_gaps:
        click.echo(f"  {store.untold_gaps} gaps are not reported to the service yet")
    _print_results(store)
    for reading in store.set_aside:
        click.echo(f"  refused: reading {reading.key} from {ago(reading.read_wall_s)}: {reading.reason}")
        click.echo(f"    {reading.values[:_VALUES_SHOWN]}")
    for name, value in store.settings.items():
        if name.startswith(_FOR_PEOPLE):
            click.echo(f"setting    {name} = {value}")
    for text in store.incidents:
        click.echo(f"incident   {text}")
    if store.last_commands:
        click.echo("")
        rows = [
            (line.id, line.handler, line.outcome or line.state, ago(line.received_wall_s), line.error or "")
            for line in store.last_commands
        ]
        print_table(("COMMAND", "HANDLER", "STATE", "RECEIVED", "REASON"), rows)


def _print_results(store: StoreStatus) -> None:
    if store.results.put_aside or store.results.given_up:
        gave_way = f", {store.results.given_up} gave way to younger ones" if store.results.given_up else ""
        click.echo(f"results    {store.results.put_aside} put aside{gave_way}: the service does not take them")
    for result in store.put_aside:
        when = "" if result.finished_wall_s is None else f" from {ago(result.finished_wall_s)}"
        click.echo(f"  put aside: {result.outcome} of command {result.id} ({result.handler}){when}: {result.reason}")


def _print_traffic(traffic: Mapping[str, Day]) -> None:
    rows = [(day, *map(_size, counts)) for day, counts in traffic.items()]
    click.echo("")
    print_table(("DAY (UTC)", "SENT", "RECEIVED", "WRITTEN TO FLASH"), rows)


def _size(size_bytes: int) -> str:
    for unit_bytes, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes} bytes"


@click.command()
@config_option
@json_option
def handlers(config_path: Path, *, as_json: bool) -> None:
    """List the command handlers with their state; exit code 1 when one cannot be used."""
    logging.disable(logging.CRITICAL)  # the list says it better
    tell_loading(partial(click.echo, err=True))
    with configuration_faults_end_it():
        config = load(config_path).config
        listing = list_handlers(config, read_running(config, os.environ))
    if as_json:
        print_json([asdict(info) for info in listing])
    else:
        rows = [
            (
                info.name,
                str(info.status),
                info.contract,
                "" if info.timeout_s is None else f"{info.timeout_s:g} s",
                info.origin,
                info.reason or info.description,
            )
            for info in listing
        ]
        print_table(("NAME", "STATE", "CONTRACT", "TIMEOUT", "FROM", "WHAT"), rows)
    raise SystemExit(0 if all(map(is_usable, listing)) else EXIT_CHECK_FAILED)


@click.command()
@config_option
@json_option
def sensors(config_path: Path, *, as_json: bool) -> None:
    """Read each configured sensor once and list it with its state; exit code 1 when one cannot be read."""
    logging.disable(logging.CRITICAL)  # the list says it better
    tell_loading(partial(click.echo, err=True))
    with configuration_faults_end_it():
        config = load(config_path).config
        found = read_sensors(config, read_running(config, os.environ))
    types = SensorRegistry.load({}).types()
    if as_json:
        print_json({"sensors": [asdict(sensor) for sensor in found], "types": dict(types)})
    else:
        rows = [
            (
                sensor.name,
                sensor.type,
                sensor.state,
                sensor.reason or ", ".join(f"{name}={value:g}" for name, value in sensor.values.items()),
            )
            for sensor in found
        ]
        print_table(("NAME", "TYPE", "STATE", "READINGS"), rows)
        click.echo(f"\nTypes that can be configured: {', '.join(types)}")
        if is_root():
            click.echo(AS_ROOT)
    raise SystemExit(0 if all(sensor.is_good for sensor in found) else EXIT_CHECK_FAILED)


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
    from agent.app.run import outbox_bounds

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
    with configuration_faults_end_it():
        other = choose(load(config_path).config.state_dir, device_id)
    delete(other)
    click.echo(f"{other.readings} readings and {other.results} results of {device_id} are deleted")
