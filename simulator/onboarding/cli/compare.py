"""``fleet-simulator onboard compare``: a click command, no logic."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from simulator.exit_codes import ExitCode
from simulator.onboarding.cli.options import PREFIX
from simulator.onboarding.profile import Difference, compare_profiles, grouped, read_profile
from simulator.terminal import Console, end, errors_in_one_line, option

_SHOWN = 160


@click.command("compare")
@click.argument("one", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@option("--json", "as_json", envvar=f"{PREFIX}_COMPARE_JSON", is_flag=True, help="Print the differences as JSON.")
def compare_command(*, one: Path, other: Path, as_json: bool) -> None:
    """Show what two servers answer differently.

    ONE and OTHER are files of `onboard profile`, or folders of `onboard cases`. Exit code 0: nothing differs. 1:
    something does. 2: a file cannot be read. What differs in the same way in several cases is one row of the table.
    """
    with errors_in_one_line():
        found = compare_profiles(read_profile(one), read_profile(other))
    if as_json:
        click.echo(json.dumps({"differences": [asdict(one) for one in found]}, ensure_ascii=False))
    else:
        _print(found, one, other)
    return end(ExitCode.CHECK_FAILED if found else ExitCode.GOOD)


def _print(found: list[Difference], one: Path, other: Path) -> None:
    console = Console(highlight=False)
    if found:
        table = Table(header_style="bold", expand=False)
        for column in ("asked", "what", str(one), str(other), "in"):
            table.add_column(column, overflow="fold")
        for each in grouped(found):
            cells = (each.asked, each.what, _cut(each.one), _cut(each.other), each.where)
            table.add_row(*(Text(text) for text in cells))
        console.print(table)
    console.print(Text(f"{len(found)} difference(s)", style="bold red" if found else "bold green"))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... (all of it: --json)"
