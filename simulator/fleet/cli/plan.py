"""``fleet-simulator plan`` and ``scenario-schema``: click commands, no logic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from simulator.exit_codes import ExitCode
from simulator.fleet.cli.options import read_or_refuse, takes_python
from simulator.fleet.plan.digest import digest_of
from simulator.fleet.plan.forecast import forecast
from simulator.fleet.plan.plan import plan_of
from simulator.fleet.plan.words import describe
from simulator.fleet.scenario.schema import schema_text


@click.command("plan")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@takes_python
def plan_command(*, scenario: Path, as_json: bool, allow_python: bool) -> ExitCode:
    """Print what a run of SCENARIO would do, without doing it and without asking the target for anything.

    Devices, phases on a time line, requests per second by operation, sockets, bytes, faults, quota, and the digest of
    all events: the same scenario and seed have the same digest, however many workers play them. Exit codes: 0 it can
    be run, 2 it has faults, all of which are told with line and column.
    """
    made = plan_of(read_or_refuse(scenario, allow_python=allow_python))
    figures = forecast(made, digest_of(made))
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
