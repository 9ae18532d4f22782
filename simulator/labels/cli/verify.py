"""``fleet-simulator labels verify``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click
from rich.markup import escape
from rich.table import Table

from simulator.exit_codes import ExitCode
from simulator.labels.verify.report import Line, Report, State, as_document
from simulator.labels.verify.verifying import DPI, verify_labels
from simulator.terminal import Console, errors_in_one_line, option, show_progress

_PREFIX: Final = "FLEET_SIMULATOR_LABELS_VERIFY"
_COLOURS: Final = {
    State.READ: "green",
    State.DOUBLE: "yellow",
    State.FOREIGN: "red",
    State.UNREAD: "magenta",
    State.MISSING: "red",
}
_ROWS_MAX: Final = 200


@click.command("verify")
@click.argument("pictures", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--manifest", type=click.Path(path_type=Path), help="Which labels should be there: manifest.json or .csv.")
@option("--csv", "table", envvar=f"{_PREFIX}_CSV", type=click.Path(path_type=Path), help="File for the table as CSV.")
@option(
    "--overlap", is_flag=True, help="Pictures may show the same label again; double is only a second one in a picture."
)
@option("--thorough", is_flag=True, help="Search every page in every way, also when all labels were found.")
@option("--dpi", type=int, default=DPI, help="Resolution at which a PDF is drawn.")
@option("--json", "as_json", envvar=f"{_PREFIX}_JSON", is_flag=True, help="Print the result as JSON.")
def verify_command(
    *,
    pictures: tuple[Path, ...],
    manifest: Path | None,
    table: Path | None,
    overlap: bool,
    thorough: bool,
    dpi: int,
    as_json: bool,
) -> None:
    """Say which labels PICTURES show: photographs, scans (TIFF with pages too), PDF documents, folders of pictures.

    Against a manifest of 'labels make' it names what is missing, double or foreign. Exit code 0: every label is there
    once and nothing else; 1: something is missing, double, foreign or unread, or a file could not be read.
    """
    with errors_in_one_line(), show_progress("files") as on_progress:
        report = verify_labels(
            pictures,
            manifest=manifest,
            table=table,
            overlap=overlap,
            thorough=thorough,
            dpi=dpi,
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps(as_document(report), ensure_ascii=False))
    else:
        _print(report)
    if not report.good:
        click.get_current_context().exit(ExitCode.CHECK_FAILED)


def _print(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("state", "identifier", "picture", "place", "note", box=None, pad_edge=False)
    for line in sorted(report.lines, key=lambda line: line.state is State.READ)[:_ROWS_MAX]:
        table.add_row(*_cells(line))
    if report.lines:
        console.print(table)
    if len(report.lines) > _ROWS_MAX:
        console.print(f"... and {len(report.lines) - _ROWS_MAX} more: --json or --csv has them all")
    for problem in report.problems:
        console.print(f"[red]unreadable[/] {escape(problem)}")
    counts = ", ".join(f"{report.count(state)} {state}" for state in State if report.count(state)) or "no code found"
    wanted = "" if report.expected is None else f" of {report.expected} expected"
    console.print(f"[bold {'green' if report.good else 'red'}]{counts}[/]{wanted}, on {report.pages} page(s)")


def _cells(line: Line) -> tuple[str, ...]:
    place = ""
    if line.corners:
        place = f"{min(x for x, _ in line.corners):.0f},{min(y for _, y in line.corners):.0f}"
    picture = f"{line.path}" + (f" page {line.page}" if line.page else "") if line.path else ""
    state = f"[{_COLOURS[line.state]}]{line.state}[/]"
    return state, escape(line.identifier), escape(picture), place, escape(line.note)
