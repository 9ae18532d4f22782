"""``fleet-simulator init``: a click command, no logic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from agent.errors import ConfigurationError
from simulator.exit_codes import ExitCode
from simulator.fleet.scenario.parts import PARTS, composed
from simulator.fleet.scenario.starters import starter_names, starter_text, write_scenario
from simulator.terminal import errors_in_one_line

_STDOUT = Path("-")


@click.command("init")
@click.option("--from", "starter", help="Which scenario to start from; smoke by default.")
@click.option(
    "--with",
    "parts",
    metavar="PART,...",
    help="Instead of --from: put a scenario together from parts, such as battery,gps,commands; --list names them.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write; by default the scenario's name and .yaml (with --with: fleet.yaml), here. - prints it.",
)
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--list", "listing", is_flag=True, help="Only print the scenarios to start from, and the parts.")
def init_command(*, starter: str | None, parts: str | None, out: Path | None, force: bool, listing: bool) -> ExitCode:
    """Write a commented scenario to start from.

    Beside it goes the JSON Schema that its first line names: an editor with the YAML language server completes keys and
    marks faults by it, without a network. Exit codes: 0 written, 2 there is no such scenario or part, or a file is
    there already or cannot be written.
    """
    with errors_in_one_line():
        if listing:
            width = max(map(len, PARTS))
            rows = [f"  {name:{width}}  {part.what}" for name, part in PARTS.items()]
            click.echo("\n".join((*starter_names(), "", "parts, for --with:", *rows)))
            return ExitCode.GOOD
        path, text, files = _scenario(starter, parts, out)
        if path == _STDOUT:
            click.echo(text, nl=False)
        else:
            first, *others = write_scenario(path, text, files, force=force)
            beside = ", ".join(each.name for each in others)
            click.echo(f"wrote {first}, and beside it {beside}; look at what it would do: fleet-simulator plan {first}")
    return ExitCode.GOOD


def _scenario(starter: str | None, parts: str | None, out: Path | None) -> tuple[Path, str, Mapping[str, str]]:
    """Where to, the text, and the files beside it."""
    if parts is None:
        name = starter or "smoke"
        return out or Path(f"{name}.yaml"), starter_text(name), {}
    if starter is not None:
        raise ConfigurationError(["--with makes a scenario of its own: leave --from out"], "--with")
    path = out or Path("fleet.yaml")
    name = "fleet" if path == _STDOUT else re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)
    return path, *composed(parts.split(","), name, path.name)
