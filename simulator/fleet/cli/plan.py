"""``fleet-simulator plan`` and ``scenario-schema``: click commands, no logic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from agent.errors import ConfigurationError
from simulator.exit_codes import ExitCode
from simulator.fleet.cli.options import read_or_refuse, takes_python
from simulator.fleet.forecast import describe, forecast
from simulator.fleet.plan import Plan
from simulator.fleet.scenario.model import schema_text
from simulator.fleet.target.target import faults_of_address


@click.command("plan")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--base-url", help="The target that 'run' will be given, in place of the scenario's.")
@takes_python
def plan_command(
    *,
    scenario: Path,
    as_json: bool,
    base_url: str | None,
    allow_python: bool,
) -> ExitCode:
    """Print what a run of SCENARIO would do, without doing it and without asking the target for anything.

    Devices, phases on a time line, requests per second by operation, sockets, bytes, faults, quota, and the digest of
    scenario and seed. Exit codes: 0 it can be run, 2 it has faults, all of which are printed with line and column.
    """
    file = read_or_refuse(scenario, allow_python=allow_python)
    figures = forecast(Plan(file.scenario))
    if base_url is not None:
        if faults := faults_of_address(base_url):
            raise ConfigurationError(faults, "target")
        figures = dataclasses.replace(figures, target=base_url)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(figures), indent=2))
    else:
        click.echo("\n".join(describe(figures)))
    return ExitCode.GOOD


@click.command("scenario-schema")
def schema_command() -> ExitCode:
    """Print the JSON Schema of scenarios, for an editor that completes keys and marks faults."""
    click.echo(schema_text(), nl=False)
    return ExitCode.GOOD
