"""``fleet-simulator compare``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from simulator.exit_codes import ExitCode
from simulator.fleet.report.compare import CONFIDENCE, MARGIN, Finding, Terms, compare_runs
from simulator.fleet.report.comparing import comparison_json, print_comparison
from simulator.onboarding.cli.options import told_in_one_line


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path, file_okay=False))
@click.argument("b", type=click.Path(path_type=Path, file_okay=False))
@click.option("--phase", help="Compare this phase only. By default everything but ramps.")
@click.option("--anyway", is_flag=True, help="Compare runs of different scenarios, too.")
@click.option(
    "--confidence",
    type=click.FloatRange(50, 99.8),
    default=CONFIDENCE,
    show_default=True,
    help="Of the intervals, in percent.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 100),
    default=MARGIN,
    show_default=True,
    help="Smallest difference that counts, in percent; of shares of errors a tenth of it, in percentage points.",
)
@click.option(
    "--json", "as_json", is_flag=True, envvar="FLEET_SIMULATOR_COMPARE_JSON", help="Print the comparison as JSON."
)
def compare_command(
    *, a: Path, b: Path, phase: str | None, anyway: bool, confidence: float, margin: float, as_json: bool
) -> ExitCode:
    """Hold two fleet runs against each other: rates, errors and percentiles by operation, with intervals.

    A and B are folders of runs; A is the one to be compared with. A figure is called better or worse only where the
    interval of the difference leaves no room for none.

    Exit codes: 0 nothing is worse, 1 something is worse, 2 the folders hold no runs of one scenario, 3 a generator was
    at its limit, so that this compares generators, or the files of a run do not fit together.
    """
    with told_in_one_line():
        found = compare_runs(a, b, Terms(phase, anyway, confidence, margin))
    if as_json:
        click.echo(comparison_json(found), nl=False)
    else:
        print_comparison(Console(), found)
    if found.inconclusive:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CHECK_FAILED if found.count(Finding.WORSE) else ExitCode.GOOD
