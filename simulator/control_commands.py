"""``fleet-simulator faults`` and ``accounts``: those of a running local service, over its control surface."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final

import click
from rich.table import Table

from agent.wire.paths import segment
from agent.wire.secret import Secret
from simulator.terminal import Console
from simulator.wire.control import ControlClient

_FAULTS: Final = "/_emulator/faults"
_ACCOUNTS: Final = "/_emulator/accounts"
_WIDEST: Final = 100_000
_OPTIONS: Final = (
    click.option(
        "--base-url",
        default="http://127.0.0.1:8080",
        help="Address of the service; on this machine, or with a control token.",
    ),
    click.option("--control-token", help="The service's control token, where it has one; it is shown at its start."),
    click.option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request."),
)


def _takes_control(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that lead to a control surface; the command gets the open ``client``.

    An error of the service is one line on standard error, and exit code 1; 2 where it lets nobody in, 5 where it cannot
    be reached.
    """

    @functools.wraps(command)
    def wrapper(*, base_url: str, control_token: str | None, timeout_s: float, **given: Any) -> None:
        token = Secret(control_token) if control_token else None
        with ControlClient(base_url, token, timeout_s=timeout_s) as client:
            command(client=client, **given)

    return functools.reduce(lambda made, add: add(made), reversed(_OPTIONS), wrapper)


@click.group("faults")
def faults_group() -> None:
    """Make a running local service fail on purpose: docs/faults.md has every effect.

    Exit codes: 0 done, 1 the service refused it, 2 usage, 5 it cannot be reached.
    """


@faults_group.command("add")
@click.argument("effect")
@_takes_control
@click.option("--method", help="Only requests with this method.")
@click.option("--path", help="Only this path: /devices/{device_id}/commands, or one with ids in it.")
@click.option("--device-id", help="Only requests that name this device.")
@click.option("--account-id", help="Only requests of this account: its id, its name or one of its keys.")
@click.option("--after", type=click.IntRange(min=0), help="Not the first so many requests that fit.")
@click.option("--next", "next_", type=click.IntRange(min=1), help="So many times, then never again.")
@click.option("--probability", type=click.FloatRange(0, 1, min_open=True), help="Of each request, by chance.")
@click.option("--json", "as_json", is_flag=True, help="Print the fault as JSON.")
def add_fault(*, client: ControlClient, effect: str, as_json: bool, **given: Any) -> None:
    """Have requests meet EFFECT, after the faults that are there.

    EFFECT is such as lose=answer, answer=503, latency:min_s=1,max_s=3, or JSON. Without options every request meets it.
    """
    given = {name.rstrip("_"): value for name, value in given.items() if value is not None}
    times = {name: given.pop(name) for name in ("after", "next", "probability") if name in given}
    made = client.request("POST", _FAULTS, {"match": given, "times": times, "effect": effect})
    click.echo(json.dumps(made, ensure_ascii=False) if as_json else f"fault       {made['fault_id']}")


@faults_group.command("list")
@_takes_control
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_faults(*, client: ControlClient, as_json: bool) -> None:
    """All faults in the order in which they are asked, with how many requests fitted and met each."""
    found = client.request("GET", _FAULTS)
    if as_json:
        click.echo(json.dumps({"faults": found["data"]}, ensure_ascii=False))
        return
    table = Table("fault_id", "match", "times", "effect", "matched", "hits", box=None, pad_edge=False)
    for one in found["data"]:
        shown = (_show(one["match"]) or "every request", _show(one["times"]) or "always", _show(one["effect"]))
        table.add_row(one["fault_id"], *shown, str(one["matched"]), str(one["hits"]))
    _print_table(table)


@faults_group.command("clear")
@click.argument("fault_ids", nargs=-1, metavar="[FAULT_ID]...")
@_takes_control
def clear_faults(*, client: ControlClient, fault_ids: tuple[str, ...]) -> None:
    """Delete the faults with each FAULT_ID that is given; all of them when none is."""
    for fault_id in fault_ids:
        client.request("DELETE", f"{_FAULTS}/{segment(fault_id)}")
    if not fault_ids:
        client.request("DELETE", _FAULTS)


def _show(members: dict[str, Any]) -> str:
    """A member for each line: ``lose: answer``."""
    lines = (f"{name}: {one if isinstance(one, str) else json.dumps(one)}" for name, one in members.items())
    return "\n".join(lines)


@click.group("accounts")
def accounts_group() -> None:
    """Accounts of a running local service, each with products, devices and keys of its own.

    Exit codes: 0 done, 1 the service refused it, 2 usage, 5 it cannot be reached.
    """


@accounts_group.command("add")
@_takes_control
@click.option("--name", help="Unique on the service; made when absent.")
@click.option("--quota", type=click.IntRange(min=0), help="Requests of each key in a minute, 0 = no limit.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
def add_account(*, client: ControlClient, as_json: bool, **given: Any) -> None:
    """Make an account, and print its key pair: the secret is shown this once."""
    made = client.request("POST", _ACCOUNTS, {name: value for name, value in given.items() if value is not None})
    (keys,) = made["keys"]
    lines = {"account": made["account_id"], "name": made["name"], "api key": keys["api_key"]}
    shown = "\n".join(f"{name:<11} {value}" for name, value in {**lines, "secret key": keys["secret_key"]}.items())
    click.echo(json.dumps(made, ensure_ascii=False) if as_json else shown)


@accounts_group.command("list")
@_takes_control
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_accounts(*, client: ControlClient, as_json: bool) -> None:
    """All accounts with their public keys."""
    found = client.request("GET", _ACCOUNTS)
    if as_json:
        click.echo(json.dumps({"accounts": found["data"]}, ensure_ascii=False))
        return
    table = Table("account_id", "name", "quota", "api keys", box=None, pad_edge=False)
    for one in found["data"]:
        keys = "\n".join(key["api_key"] for key in one["keys"])
        table.add_row(one["account_id"], one["name"], str(one.get("quota") or "the service's"), keys)
    _print_table(table)


def _print_table(table: Table) -> None:
    """As wide as it is, so that a narrow terminal cuts nothing off."""
    Console(highlight=False, markup=False, width=_WIDEST).print(table)
