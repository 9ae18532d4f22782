"""``fleet-simulator accounts``: click commands, no logic."""

from __future__ import annotations

import json

import click
from rich.table import Table

from simulator.control.options import print_table, takes_control
from simulator.terminal import option
from simulator.wire.control import ControlClient

_PATH = "/_emulator/accounts"


@click.group("accounts", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_ACCOUNTS"})
def accounts_group() -> None:
    """Accounts of a running local service, each with products, devices and keys of its own.

    Exit codes: 0 done, 1 the service refused it, 2 usage, 5 it cannot be reached.
    """


@accounts_group.command("add")
@takes_control
@option("--name", help="Unique on the service; made when absent.")
@option("--quota", type=click.IntRange(min=0), help="Requests of each key in a minute, 0 = no limit.")
@option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
def add_command(*, client: ControlClient, name: str | None, quota: int | None, as_json: bool) -> None:
    """Make an account, and print its key pair: the secret is shown this once."""
    wanted = {key: value for key, value in (("name", name), ("quota", quota)) if value is not None}
    made = client.request("POST", _PATH, wanted)
    if as_json:
        click.echo(json.dumps(made, ensure_ascii=False))
        return
    for label, value in (("account", made["account_id"]), ("name", made["name"])):
        click.echo(f"{label:<11} {value}")
    for keys in made["keys"]:
        click.echo(f"{'api key':<11} {keys['api_key']}\n{'secret key':<11} {keys['secret_key']}")


@accounts_group.command("list")
@takes_control
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_command(*, client: ControlClient, as_json: bool) -> None:
    """All accounts with their public keys."""
    found = client.request("GET", _PATH)
    if as_json:
        click.echo(json.dumps({"accounts": found["data"]}, ensure_ascii=False))
        return
    table = Table("account_id", "name", "quota", "api keys", box=None, pad_edge=False)
    for one in found["data"]:
        keys = "\n".join(key["api_key"] for key in one["keys"])
        table.add_row(one["account_id"], one["name"], str(one.get("quota") or "the service's"), keys)
    print_table(table)
