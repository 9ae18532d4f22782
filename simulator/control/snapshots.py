"""``fleet-simulator snapshots``: click commands, no logic."""

from __future__ import annotations

import json
from typing import Any, Final

import click
from rich.table import Table

from agent.error_text import bounded
from agent.wire.paths import segment
from simulator.control.options import print_table, takes_control
from simulator.terminal import option
from simulator.wire.control import ControlClient

_PATH: Final = "/_emulator/snapshots"
_WAIT_S: Final = 3_600.0
"""A state of some gigabytes takes minutes."""


@click.group("snapshots", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_SNAPSHOTS"})
def snapshots_group() -> None:
    """The whole state of a running local service under a name, to come back to.

    Exit codes: 0 done, 1 the service refused it, 2 usage, 5 it cannot be reached.
    """


@snapshots_group.command("save")
@click.argument("name", required=False)
@takes_control
@option("--json", "as_json", is_flag=True, help="Print the snapshot as JSON.")
def save_command(*, client: ControlClient, name: str | None, as_json: bool) -> None:
    """Save the state under NAME, or under a name that the service makes, while requests are served."""
    saved = client.request("POST", _PATH, {} if name is None else {"name": name}, wait_s=_WAIT_S)
    _print(saved, as_json=as_json)


@snapshots_group.command("list")
@takes_control
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_command(*, client: ControlClient, as_json: bool) -> None:
    """All snapshots, by name."""
    found = client.request("GET", _PATH)["data"]
    if as_json:
        click.echo(json.dumps({"snapshots": found}, ensure_ascii=False))
        return
    table = Table("name", "made_at", "rows", "bytes", "file", box=None, pad_edge=False)
    for one in found:
        rows = one["fault"] or f"{sum(one['rows'].values()):,}"
        table.add_row(one["name"], one["made_at"] or "", rows, f"{one['size_bytes']:,}", one["file"])
    print_table(table)


@snapshots_group.command("load")
@click.argument("name")
@takes_control
@option("--json", "as_json", is_flag=True, help="Print the snapshot as JSON.")
def load_command(*, client: ControlClient, name: str, as_json: bool) -> None:
    """Replace everything that the service has by the snapshot NAME, with the clock that it was saved with."""
    _print(client.request("POST", f"{_PATH}/{segment(name)}/load", wait_s=_WAIT_S), as_json=as_json)


@snapshots_group.command("remove")
@click.argument("name")
@takes_control
def remove_command(*, client: ControlClient, name: str) -> None:
    """Delete the snapshot NAME."""
    client.request("DELETE", f"{_PATH}/{segment(name)}")


def _print(record: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False))
        return
    rows = sum(record["rows"].values())
    click.echo(bounded(f"{record['name']}: {rows:,} rows, {record['size_bytes']:,} bytes, {record['file']}"))
