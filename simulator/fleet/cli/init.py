"""``fleet-simulator init``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.exit_codes import ExitCode
from simulator.fleet.scenario.starters import starter_names, starter_text, write_starter
from simulator.onboarding.cli.options import told_in_one_line


@click.command("init")
@click.option("--from", "starter", default="smoke", show_default=True, help="Which scenario to start from.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write; by default the scenario's name and .yaml, here. - prints it.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--list", "listing", is_flag=True, help="Only print the names of the scenarios to start from.")
def init_command(*, starter: str, out: Path | None, force: bool, listing: bool) -> ExitCode:
    """Write a commented scenario to start from.

    Exit codes: 0 written, 2 there is no such scenario, or the file is there already or cannot be written.
    """
    with told_in_one_line():
        if listing:
            click.echo("\n".join(starter_names()))
        elif out == Path("-"):
            click.echo(starter_text(starter), nl=False)
        else:
            path = write_starter(starter, out, force=force)
            click.echo(f"wrote {path}; look at what it would do: fleet-simulator plan {path}")
    return ExitCode.GOOD
