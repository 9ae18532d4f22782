"""``fleet-simulator accounts``: click commands, no logic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

from agent.error_text import bounded
from agent.wire.paths import segment
from simulator.control.options import print_table, takes_control
from simulator.keys import write_secret
from simulator.terminal import CommandLineError, option
from simulator.whole_files import cannot_write
from simulator.wire.control import ControlClient
from simulator.yaml_document import read_document

_PATH: Final = "/_emulator/accounts"
_FILE_BYTES: Final = 256 * 1024
_DEPTH: Final = 32
_KEYS_HELP: Final = "Folder for the new pair, in files that you alone can read, instead of showing it."


@click.group("accounts", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_ACCOUNTS"})
def accounts_group() -> None:
    """Accounts of a running local service: manufacturers that see nothing of each other.

    Exit codes: 0 done, 1 the service refused it, 2 usage, 5 it cannot be reached.
    """


@accounts_group.command("add")
@takes_control
@option("--name", help="Unique on the service; made when it is left out.")
@option(
    "--quota",
    type=click.IntRange(min=0),
    help="Requests of each key in a minute, 0 = no limit. Default: the same.",
)
@option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE|AXIS=VALUE,...",
    help="Answer the account as another server would: as for service --profile.",
)
@option(
    "--from",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML or JSON with users, clients, keys and whatever else POST /_emulator/accounts takes.",
)
@option("--keys-dir", type=click.Path(file_okay=False, path_type=Path), help=_KEYS_HELP)
@option("--json", "as_json", is_flag=True, help="Print the account with its secrets as JSON.")
def add_command(
    *,
    client: ControlClient,
    name: str | None,
    quota: int | None,
    profiles: tuple[str, ...],
    file: Path | None,
    keys_dir: Path | None,
    as_json: bool,
) -> None:
    """Make an account. Its secrets are shown this once: the service keeps their hashes."""
    body = {} if file is None else _read_file(file)
    body |= {key: value for key, value in (("name", name), ("quota", quota)) if value is not None}
    if profiles:
        from simulator.service.profiles.text import read_all  # half of the service: not for the other commands

        body["profile"] = read_all(profiles).model_dump(mode="json")
    made = client.request("POST", _PATH, body, wait_s=60 if "users" in body else 0)
    if keys_dir is not None:
        _keep_keys(keys_dir, made["keys"][0])
    if as_json:
        click.echo(json.dumps(made, ensure_ascii=False))
        return
    click.echo(f"account     {bounded(made['name'])}   ({made['account_id']})")
    for pair in made["keys"]:
        _show_keys(pair, keys_dir if pair is made["keys"][0] else None)
    for user in made["users"]:
        click.echo(f"user        {bounded(user['email'])}   ({bounded(user['user_id'])})")
    for partner in made["clients"]:
        secret = partner["client_secret"]
        click.echo(f"client      {partner['client_id']}   {'public' if secret is None else f'secret {secret}'}")


@accounts_group.command("list")
@takes_control
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_command(*, client: ControlClient, as_json: bool) -> None:
    """All accounts with their public keys, the oldest first."""
    found: list[Any] = []
    query: dict[str, str | int] = {"limit": 1_000}
    while True:
        page = client.request("GET", _PATH, params=query)
        found += page["data"]
        if not page["has_more"]:
            break
        query["cursor"] = page["next_cursor"]
    if as_json:
        click.echo(json.dumps({"accounts": found}, ensure_ascii=False))
        return
    table = Table("name", "account_id", "quota", "profile", "keys", box=None, pad_edge=False)
    for one in found:
        quota = "the service's" if one["quota"] is None else "none" if one["quota"] == 0 else str(one["quota"])
        keys = "\n".join(key["api_key"] for key in one["keys"]) or "none: people sign in"
        table.add_row(one["name"], one["account_id"], quota, one["profile"], keys)
    print_table(table)


@accounts_group.command("change")
@click.argument("account")
@takes_control
@option("--name", help="Another name.")
@option("--quota", type=click.IntRange(min=0), help="Requests of each key in a minute; 0 = no limit.")
@option("--default-quota", is_flag=True, help="The service's quota again.")
def change_command(
    *, client: ControlClient, account: str, name: str | None, quota: int | None, default_quota: bool
) -> None:
    """Give ACCOUNT (its id, a public key or its name) another name or quota."""
    if quota is not None and default_quota:
        raise CommandLineError("give --quota or --default-quota, not both")
    body: dict[str, Any] = {} if name is None else {"name": name}
    if quota is not None or default_quota:
        body["quota"] = quota
    if not body:
        raise CommandLineError("nothing to change: give --name, --quota or --default-quota")
    client.request("PATCH", _path(account), body)


@accounts_group.command("remove")
@click.argument("account")
@takes_control
def remove_command(*, client: ControlClient, account: str) -> None:
    """Delete ACCOUNT (its id, a public key or its name) with its keys and all that it has."""
    client.request("DELETE", _path(account))


@accounts_group.group("keys")
def keys_group() -> None:
    """Key pairs of an account: several are good at the same time, so that they can be rotated."""


@keys_group.command("add")
@click.argument("account")
@takes_control
@option("--keys-dir", type=click.Path(file_okay=False, path_type=Path), help=_KEYS_HELP)
@option("--json", "as_json", is_flag=True, help="Print the pair as JSON.")
def add_key_command(*, client: ControlClient, account: str, keys_dir: Path | None, as_json: bool) -> None:
    """A further key pair of ACCOUNT; the others stay good. Its secret is shown this once."""
    pair = client.request("POST", f"{_path(account)}/keys", {})
    if keys_dir is not None:
        _keep_keys(keys_dir, pair)
    if as_json:
        click.echo(json.dumps(pair))
    else:
        _show_keys(pair, keys_dir)


@keys_group.command("remove")
@click.argument("account")
@click.argument("api_key")
@takes_control
def remove_key_command(*, client: ControlClient, account: str, api_key: str) -> None:
    """End the key pair with the public key API_KEY of ACCOUNT; the last one of an account stays."""
    client.request("DELETE", f"{_path(account)}/keys/{segment(api_key)}")


def _path(account: str) -> str:
    return f"{_PATH}/{segment(account)}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CommandLineError(f"--from {path}: {error.strerror}; give a file that can be read") from None
    document = read_document(raw, bytes_max=_FILE_BYTES, depth_max=_DEPTH)
    for fault in document.faults:
        raise CommandLineError(f"--from {path}: line {fault.place.line}: {fault.issue}")
    if not isinstance(document.value, dict):
        raise CommandLineError(f"--from {path}: must be a mapping, such as users: [...]")
    return document.value


def _keep_keys(folder: Path, pair: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("api_key", "secret_key"):
            write_secret(folder / name, pair[name])
    except OSError as error:
        raise CommandLineError(
            f"{cannot_write(folder, error, 'another --keys-dir')}; the pair {pair['api_key']} is good all the same: "
            f"remove it with fleet-simulator accounts keys remove"
        ) from None


def _show_keys(pair: dict[str, str], folder: Path | None) -> None:
    click.echo(f"api key     {pair['api_key']}")
    if folder is None:
        click.echo(f"secret key  {pair['secret_key']}   (shown this once: keep it)")
    else:
        click.echo(f"secret key  in {folder / 'secret_key'}")
