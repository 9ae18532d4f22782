"""``fleet-simulator init``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.exit_codes import ExitCode
from simulator.fleet.scenario.starters import starter_names, starter_text, write_scenario

_STDOUT = Path("-")


@click.command("init")
@click.option("--from", "starter", default="smoke", help="Which scenario to start from; smoke by default.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write; by default the scenario's name and .yaml, here. - prints it.",
)
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--list", "listing", is_flag=True, help="Only print the scenarios to start from.")
def init_command(*, starter: str, out: Path | None, force: bool, listing: bool) -> ExitCode:
    """Write a commented scenario to start from.

    Beside it goes the JSON Schema that its first line names: an editor with the YAML language server completes keys and
    marks faults by it, without a network. Exit codes: 0 written, 2 there is no such scenario, or a file is there
    already or cannot be written.
    """
    if listing:
        click.echo("\n".join(starter_names()))
        return ExitCode.GOOD
    text, path = starter_text(starter), out or Path(f"{starter}.yaml")
    if path == _STDOUT:
        click.echo(text, nl=False)
    else:
        first, schema = write_scenario(path, text, force=force)
        click.echo(
            f"wrote {first}, and {schema.name} beside it; look at what it would do: fleet-simulator plan {first}"
        )
    return ExitCode.GOOD
