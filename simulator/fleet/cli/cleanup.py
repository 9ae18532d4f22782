"""``fleet-simulator cleanup``: a click command, no logic."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from simulator.exit_codes import ExitCode
from simulator.fleet.cli.options import takes_target
from simulator.fleet.report.formatting import plural
from simulator.fleet.target.client import Keyring, open_client
from simulator.fleet.target.provisioning import CleanupCount, clean_up
from simulator.fleet.target.safety import permit, read_targets
from simulator.fleet.target.target import Target, TargetOptions, find_offers, find_target
from simulator.terminal import CommandLineError, show_progress


@click.command("cleanup")
@takes_target
@click.option(
    "--prefix",
    help="Only devices whose identifier begins with this, as identities.prefix of a scenario has it, and the products "
    "that have no device left then.  [default: all that carry the mark]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def cleanup_command(
    *, target: TargetOptions, targets: Path | None, owned: bool, prefix: str | None, dry_run: bool, as_json: bool
) -> ExitCode:
    """Take away what fleet runs made on a target: products that carry their mark, with their devices.

    What belongs to anybody else is left alone. Exit codes: 0 nothing is left, 2 usage or wrong keys, 5 the target
    cannot be reached.
    """
    if prefix is not None and not prefix.strip():
        raise CommandLineError("--prefix is empty: give the first characters of the identifiers, or leave it out")
    way = find_target(target)
    permit(way.base_url, read_targets(targets) if targets else (), owned=owned)
    count = asyncio.run(_clean(way, prefix or "", dry_run=dry_run))
    if as_json:
        click.echo(f'{{"products": {count.products}, "devices": {count.devices}}}')
    else:
        verb = "would be removed" if dry_run else "removed"
        names = f" ({', '.join(count.names)})" if count.names else ""
        click.echo(f"{plural(count.devices, 'device')} of {plural(count.products, 'product')}{names} {verb}")
    return ExitCode.GOOD


async def _clean(way: Target, prefix: str, *, dry_run: bool) -> CleanupCount:
    with show_progress("removed") as on_progress:
        async with open_client(way.base_url, Keyring(way.keys), offers=find_offers(way), ca_file=way.ca_file) as client:
            return await clean_up(client, on_progress, prefix=prefix, dry_run=dry_run)
