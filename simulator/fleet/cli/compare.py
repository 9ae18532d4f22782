"""``fleet-simulator compare``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.exit_codes import ExitCode
from simulator.fleet.report.compare import compare_runs, comparison_json, print_comparison
from simulator.terminal import Console

_RUN = click.Path(path_type=Path, file_okay=False)


@click.command("compare")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
@click.option("--phase", help="Compare this phase only. By default everything but ramps.")
@click.option(
    "--json", "as_json", is_flag=True, envvar="FLEET_SIMULATOR_COMPARE_JSON", help="Print the comparison as JSON."
)
def compare_command(*, a: Path, b: Path, phase: str | None, as_json: bool) -> ExitCode:
    """Hold the run in folder B against the one in folder A, both of one scenario.

    A rate or a time counts as better or worse when it differs by more than a tenth, and a share of errors when it
    differs by more than one percentage point.

    Exit codes: 0 B is not worse in anything, 1 it is, 2 usage, or runs of different scenarios, 3 a run proves nothing,
    such as one whose generator was the limit.
    """
    found = compare_runs(a, b, phase)
    if as_json:
        click.echo(comparison_json(found), nl=False)
    else:
        print_comparison(Console(), found)
    if found.unjudged:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CHECK_FAILED if found.is_worse else ExitCode.GOOD
