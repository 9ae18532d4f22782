"""``fleet-simulator plan`` and ``scenario-schema``: click commands, no logic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from agent.errors import ConfigurationError
from simulator.exit_codes import ExitCode
from simulator.fleet.cli.options import check_cluster, read_or_refuse, takes_cluster, takes_python
from simulator.fleet.plan.forecast import forecast
from simulator.fleet.plan.forecast_text import describe
from simulator.fleet.plan.plan import Plan
from simulator.fleet.run.cluster.connection import connected
from simulator.fleet.run.cluster.needs import ClusterNeeds, needs_of
from simulator.fleet.run.cluster.place import CANNOT_HOLD, Cluster
from simulator.fleet.scenario.model import schema_text
from simulator.fleet.scenario.reading import ScenarioFile
from simulator.fleet.target.target import faults_of_address
from simulator.terminal import errors_in_one_line


@click.command("plan")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--base-url", help="The target that 'run' will be given, in place of the scenario's.")
@takes_cluster
@takes_python
def plan_command(
    *,
    scenario: Path,
    as_json: bool,
    base_url: str | None,
    cluster: str | None,
    cluster_resource: str | None,
    allow_python: bool,
) -> ExitCode:
    """Print what a run of SCENARIO would do, without doing it and without asking the target for anything.

    Devices, phases on a time line, requests per second by operation, sockets, bytes, faults, quota, and the digest of
    scenario and seed. --cluster looks at the
    machines of a cluster, too, and prints what the run asks of each of them and whether it fits; with --json that is in
    "machines". Exit codes: 0 it can be run, 2 it has faults, all of which are printed with line and column, or the
    cluster cannot hold it.
    """
    file = read_or_refuse(scenario, allow_python=allow_python)
    check_cluster(cluster, file)
    figures = forecast(Plan(file.scenario))
    with errors_in_one_line():
        if base_url is not None:
            if faults := faults_of_address(base_url):
                raise ConfigurationError(faults, "target")
            figures = dataclasses.replace(figures, target=base_url)
        needs = None if cluster is None else _look(cluster, cluster_resource, file, figures.target)
        if needs is not None:
            figures = dataclasses.replace(figures, workers=needs.workers)
    if as_json:
        values: dict[str, Any] = {}
        if needs is not None:
            values["machines"] = needs.values()
        click.echo(json.dumps({**dataclasses.asdict(figures), **values}, indent=2))
    else:
        machines = () if needs is None else ("", *needs.lines())
        click.echo("\n".join((*describe(figures), *machines)))
    with errors_in_one_line():
        if needs is not None and needs.faults:
            raise ConfigurationError(needs.faults, CANNOT_HOLD)
    return ExitCode.GOOD


def _look(cluster: str, resource: str | None, file: ScenarioFile, base_url: str) -> ClusterNeeds:
    """The machines of a cluster, as 'run' looks at them."""
    with connected(cluster, resource) as nodes:
        return needs_of(Cluster(nodes, resource), file, base_url)


@click.command("scenario-schema")
def schema_command() -> ExitCode:
    """Print the JSON Schema of scenarios, for an editor that completes keys and marks faults."""
    click.echo(schema_text(), nl=False)
    return ExitCode.GOOD
