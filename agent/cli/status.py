"""``device-agent status``."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agent.cli.loading import configuration_faults_end_it, load
from agent.cli.options import EXIT_CHECK_FAILED, config_option, json_option, print_json, print_table
from agent.plugins import stale_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.adapters.store.status import StoreStatus
    from agent.app.status import AgentStatus
    from agent.runtime.ledger import Day

# What somebody has set: intervals, what handlers remember, counters of keys. The agent's own books are in --json.
_FOR_PEOPLE: Final = ("interval.", "handler.", "signed_counter:")

_VALUES_SHOWN = 200


@click.command()
@config_option
@json_option
def status(config_path: Path, *, as_json: bool) -> None:
    """Show how the agent is, while it runs and after it died.

    Exit code 0 when it runs and all its parts are well, else 1.
    """
    from agent.app.status import look_at

    with configuration_faults_end_it():
        found = look_at(load(config_path).config, os.environ)
    if as_json:
        print_json({**asdict(found), "is_healthy": found.is_healthy})
    else:
        _print(found)
    raise SystemExit(0 if found.is_healthy else EXIT_CHECK_FAILED)


def _print(found: AgentStatus) -> None:
    process = f" (process {found.process_id})" if found.process_id else ""
    click.echo(f"agent      {found.state}{process}, state in {found.state_dir}")
    if found.told is not None:
        click.echo(f"device     {found.told.device_id}, agent {found.told.version}")
        since = "stopped" if found.state == "stopped" else "told"
        reason = f": {found.told.reason}" if found.told.reason else ""
        click.echo(f"{since:<10} {_ago(found.told.written_wall_s)}{reason}")
        for name, part in found.told.parts.items():
            detail = f": {part.detail}" if part.detail else ""
            click.echo(f"  {name} {part.state} for {_span(time.time() - part.since_wall_s)}{detail}")
        for text in stale_packages(found.told.packages) if found.state == "running" else ():
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
    oldest = f", the oldest from {_ago(outbox.oldest_wall_s)}" if outbox.oldest_wall_s else ""
    click.echo(
        f"readings   {outbox.rows} waiting ({outbox.size_bytes} bytes{oldest}), {outbox.delivered} delivered, "
        f"{outbox.set_aside} refused, {outbox.dropped} dropped"
    )
    if store.undated:
        click.echo(f"  {store.undated} of them are of a boot whose time nobody knows yet")
    click.echo(f"disk       {_size(store.disk_bytes)} taken by the store")
    for gap in store.gaps:
        span = _span(gap.to_wall_s - gap.from_wall_s)
        click.echo(f"  dropped for {gap.reason}: {gap.rows} readings over {span}, the last from {_ago(gap.to_wall_s)}")
    if store.untold_gaps:
        click.echo(f"  {store.untold_gaps} gaps are not told to the service yet")
    _print_results(store)
    for reading in store.set_aside:
        click.echo(f"  refused: reading {reading.key} from {_ago(reading.read_wall_s)}: {reading.reason}")
        click.echo(f"    {reading.values[:_VALUES_SHOWN]}")
    for name, value in store.settings.items():
        if name.startswith(_FOR_PEOPLE):
            click.echo(f"setting    {name} = {value}")
    for text in store.incidents:
        click.echo(f"incident   {text}")
    if store.last_commands:
        click.echo("")
        rows = [
            (line.id, line.handler, line.outcome or line.state, _ago(line.received_wall_s), line.error or "")
            for line in store.last_commands
        ]
        print_table(("COMMAND", "HANDLER", "STATE", "RECEIVED", "REASON"), rows)


def _print_results(store: StoreStatus) -> None:
    if store.results.put_aside or store.results.given_up:
        gave_way = f", {store.results.given_up} gave way to younger ones" if store.results.given_up else ""
        click.echo(f"results    {store.results.put_aside} put aside{gave_way}: the service does not take them")
    for result in store.put_aside:
        when = "" if result.finished_wall_s is None else f" from {_ago(result.finished_wall_s)}"
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


def _ago(wall_s: float) -> str:
    if not wall_s:
        return "an unknown time"
    return f"{_span(time.time() - wall_s)} ago"


def _span(seconds: float) -> str:
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
