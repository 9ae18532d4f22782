"""``fleet-simulator compare``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from agent.errors import ConfigurationError
from simulator.exit_codes import ExitCode
from simulator.fleet.report import history as histories
from simulator.fleet.report.compare import CONFIDENCE, MARGIN, Terms, compare_runs
from simulator.fleet.report.comparison_checks import comparison_checks, history_checks
from simulator.fleet.report.comparison_text import comparison_json, print_comparison
from simulator.fleet.report.folder import write_whole
from simulator.fleet.report.formatting import plural
from simulator.fleet.report.history_text import history_json, print_history
from simulator.fleet.report.page.comparison import comparison_page, history_page
from simulator.report_parts.junit import junit_xml
from simulator.terminal import Console, errors_in_one_line

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--history",
    "as_history",
    is_flag=True,
    help="Show headline figures of many runs of one scenario over time, and whether the latest run is worse.",
)
@click.option("--scenario", help="With --history: only runs of the scenario of this name.")
@click.option("--phase", help="Compare this phase only. By default everything but ramps.")
@click.option("--anyway", is_flag=True, help="Compare runs of different scenarios, too.")
@click.option(
    "--confidence",
    type=click.FloatRange(50, 99.8),
    help=f"Of the intervals, in percent; {CONFIDENCE:g} by default.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 100),
    help="Smallest difference that counts, in percent; of shares of errors a tenth of it, in percentage points. "
    f"{MARGIN:g} by default, with --history {histories.MARGIN:g}.",
)
@click.option("--html", type=_FILE, help="Write it as a page, too; one file that loads nothing.")
@click.option("--junit", type=_FILE, help="Write it as JUnit XML, too: a test case for each figure.")
@click.option(
    "--json", "as_json", is_flag=True, envvar="FLEET_SIMULATOR_COMPARE_JSON", help="Print the comparison as JSON."
)
def compare_command(
    *,
    runs: tuple[Path, ...],
    as_history: bool,
    scenario: str | None,
    phase: str | None,
    anyway: bool,
    confidence: float | None,
    margin: float | None,
    html: Path | None,
    junit: Path | None,
    as_json: bool,
) -> ExitCode:
    """Compare two fleet runs, A and B: rates, errors and percentiles by operation, with intervals.

    RUNS are folders of runs; A, the first, is the one to be compared with. A figure is called better or worse only
    where the interval of the difference leaves no room for none. With --history RUNS are any number of folders of runs,
    or folders that such folders are in; the latest run is compared with those before it.

    Exit codes: 0 nothing is worse, 1 something is worse, 2 the folders hold no runs of one scenario, 3 it cannot be
    judged: a run is inconclusive, did not end or has files that do not fit together, or there are too few runs before
    the latest; 5 a file cannot be written.
    """
    with errors_in_one_line():
        if as_history:
            given = {"--phase": phase, "--confidence": confidence}
            if wrong := [name for name, value in given.items() if value is not None]:
                raise ConfigurationError([f"{', '.join(wrong)}: for two runs only; --history looks at whole runs"])
            margin = histories.MARGIN if margin is None else margin
            history = histories.history_of(runs, scenario=scenario, margin=margin, anyway=anyway)
            _write(html, history_page(history) if html else "")
            _write(junit, junit_xml(history_checks(history)) if junit else "")
            click.echo(history_json(history), nl=False) if as_json else print_history(Console(), history)
            return _code(is_judged=not history.unjudged, is_worse=history.is_worse)
        if len(runs) != 2:
            raise ConfigurationError(
                [f"{plural(len(runs), 'folder')}: name two runs, A and B; --history takes any number"]
            )
        if scenario is not None:
            raise ConfigurationError(["--scenario chooses among the runs of a --history"])
        margin, confidence = MARGIN if margin is None else margin, CONFIDENCE if confidence is None else confidence
        found = compare_runs(*runs, Terms(phase, anyway, confidence, margin))
        _write(html, comparison_page(found) if html else "")
        _write(junit, junit_xml(comparison_checks(found)) if junit else "")
    if as_json:
        click.echo(comparison_json(found), nl=False)
    else:
        print_comparison(Console(), found)
    return _code(is_judged=not found.unjudged, is_worse=found.is_worse)


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        write_whole(path, text)


def _code(*, is_judged: bool, is_worse: bool) -> ExitCode:
    if not is_judged:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CHECK_FAILED if is_worse else ExitCode.GOOD
