"""``fleet-simulator report``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from agent.text import bounded
from simulator.exit_codes import ExitCode
from simulator.fleet.report.making import make_reports, summary_json
from simulator.fleet.report.summary import print_summary
from simulator.terminal import Console


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="FLEET_SIMULATOR_REPORT_JSON",
    help="Print the figures as JSON, as in summary.json.",
)
def report_command(*, folder: Path, as_json: bool) -> ExitCode:
    """Make all reports of a run anew, also of one that was killed or still goes on.

    FOLDER is what a run was given with --out. Made are report.html, summary.json, junit.xml, and the tables figures and
    seconds as CSV, out of run.json and seconds.jsonl.

    Exit codes: 0 they are made, whatever the run's verdict; 2 the folder holds no run, or a damaged one; 5 a file could
    not be written.
    """
    made = make_reports(folder)
    if as_json:
        click.echo(summary_json(made.record), nl=False)
    else:
        print_summary(Console(), made.record)
        if made.page.exists() and not any(str(made.page) in sentence for sentence in made.missing):
            click.echo(f"report: {made.page}")
    for sentence in made.missing:
        click.echo(bounded(f"Error: {sentence}; make room there and run it again"), err=True)
    if made.missing:
        return ExitCode.UNREACHABLE
    return ExitCode.GOOD
