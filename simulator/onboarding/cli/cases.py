"""``fleet-simulator onboard cases``: a click command, no logic."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from agent.error_text import bounded
from simulator.exit_codes import ExitCode
from simulator.onboarding.case_labels import CaseLabels
from simulator.onboarding.cases import CASES, Case, actions_of
from simulator.onboarding.cleanup import CleanupReport, clean_up
from simulator.onboarding.cli.options import PREFIX, check_ids, takes_access, takes_other
from simulator.onboarding.connecting import Connected, ServiceAccess, connected, connected_if_given
from simulator.onboarding.folder import OpenRun, open_run, write_report
from simulator.onboarding.journey import StepVerdict
from simulator.onboarding.report import cases_json, cases_table, headline, races_line
from simulator.onboarding.running import CasesReport, Users, run_cases
from simulator.onboarding.steps import RunContext
from simulator.terminal import (
    CommandLineError,
    Console,
    advice,
    end,
    errors_in_one_line,
    option,
    show_progress,
    stop_code,
)

REPEAT: Final = 10
"""Plays of each race: see docs/onboarding.md, "Races", for what is found with it."""


@dataclass(frozen=True, slots=True)
class CasesOptions:
    """What to play, and with what."""

    cases: list[Case]
    product_id: str | None
    users: Users
    remove: bool = True
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Played:
    """The results of playing cases.

    Attributes:
        cleaned: None when everything was kept.
    """

    report: CasesReport
    cleaned: CleanupReport | None

    @property
    def problems(self) -> list[str]:
        """What could not be taken back."""
        return [] if self.cleaned is None else [f"cleanup: {problem}" for problem in self.cleaned.problems]


@click.command("cases")
@takes_access
@takes_other
@option("--only", multiple=True, help="Names of cases, * and ? stand for anything; can be given again.")
@option(
    "--list",
    "as_list",
    envvar=f"{PREFIX}_CASES_LIST",
    is_flag=True,
    help="Print the cases and their steps, and ask no service.",
)
@option("--product-id", help="Use this product for most labels, where none can be made.")
@option("--user-id", help="An existing user, where the service does not make users up.")
@option("--other-user-id", help="A second existing user of the same account.")
@option("--repeat", type=click.IntRange(1, 10_000), default=REPEAT, help="How often each race is played.")
@option("--remove/--keep", default=True, help="Take back everything that was made, or leave it for a look.")
@option("--out", type=click.Path(path_type=Path), help="Folder for report.json and journal.")
@option("--json", "as_json", envvar=f"{PREFIX}_CASES_JSON", is_flag=True, help="Print the report as JSON.")
def cases_command(
    *,
    access: ServiceAccess,
    other: ServiceAccess,
    only: tuple[str, ...],
    as_list: bool,
    product_id: str | None,
    user_id: str | None,
    other_user_id: str | None,
    repeat: int,
    remove: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Try every order of events: each action in each state of a label, clones, races, foreign and expired labels.

    Makes products, labels and users of its own, marked with onboard: in their names. The cases in which strangers take
    part need a second account, that of --other-api-key; else they are skipped. A race is played --repeat times. A
    lost answer costs its case; three cases in a row without one end the run. Exit code 0: nothing that was played was
    against the specification. 1: something was, or something could not be taken back. 2: usage, or the keys were
    refused. 5: the service cannot be reached.
    """
    check_ids(product_id=product_id, user_id=user_id, other_user_id=other_user_id)
    chosen = _chosen(only)
    if as_list:
        return _print_cases(chosen)
    wanted = CasesOptions(chosen, product_id, Users(user_id or "", other_user_id or ""), remove, repeat)
    with errors_in_one_line():
        played = _play(wanted, access, other, out)
        document = cases_json(played.report)
        if out is not None:
            write_report(out, document)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print_report(played.report)
    return _end_with(played)


def _play(wanted: CasesOptions, access: ServiceAccess, other: ServiceAccess, out: Path | None) -> Played:
    with connected(access) as home, connected_if_given(other, "other") as stranger:
        header = {"kind": "cases", "base_url": home.base_url}
        with open_run(out, header, resumable=False) as run:
            report = _run(wanted, home, stranger, run)
            cleaned = None
            if wanted.remove:
                accounts = {
                    one.product_account.name: one.product_account for one in (home, stranger) if one is not None
                }
                cleaned = clean_up(run.journal, accounts)
        return Played(report, cleaned)


def _run(wanted: CasesOptions, home: Connected, stranger: Connected | None, run: OpenRun) -> CasesReport:
    account = None if stranger is None else stranger.account
    context = RunContext(home.account, "", stranger=account, journal=run.journal)
    behind = None if stranger is None else stranger.product_account
    case_labels = CaseLabels(run.run, home.product_account, behind, run.journal, wanted.product_id)
    with show_progress("cases played") as on_progress:
        return run_cases(
            wanted.cases,
            context,
            case_labels,
            home.timing,
            run=run.run,
            users=wanted.users,
            repeat=wanted.repeat,
            on_case=on_progress,
        )


def _chosen(only: tuple[str, ...]) -> list[Case]:
    chosen = [case for case in CASES if not only or any(fnmatch.fnmatchcase(case.name, name) for name in only)]
    if not chosen:
        raise CommandLineError(f"no case is called {' or '.join(only)}: --list prints them all")
    return chosen


def _print_cases(cases: list[Case]) -> None:
    for case in cases:
        steps = [" with ".join(dict.fromkeys(action.value for action in actions_of(step))) for step in case.steps]
        click.echo(f"{case.name}\n  {case.title}\n  labels: {', '.join(case.labels)}\n  steps:  {', '.join(steps)}")


def _print_report(report: CasesReport) -> None:
    console = Console(highlight=False)
    if report.count(StepVerdict.FAILED) + report.count(StepVerdict.ALLOWED):
        console.print(cases_table(report, everything=False))
    is_whole = report.passed and not report.count(StepVerdict.SKIPPED)
    style = "bold green" if is_whole else "bold yellow" if report.passed else "bold red"
    console.print(Text(f"{len(report.cases) + len(report.not_begun)} cases: {headline(report)}", style=style))
    if races := races_line(report):
        console.print(Text(races, style="dim"))


def _end_with(played: Played) -> None:
    for problem in played.problems:
        click.echo(bounded(problem), err=True)
    stopped_by = played.report.stopped_by
    if stopped_by is not None:
        left = f"; {len(played.report.not_begun)} case(s) not begun"
        click.echo(bounded(f"stopped: {stopped_by}{advice(stopped_by)}{left}"), err=True)
        return end(stop_code(stopped_by))
    if not played.report.was_played:
        click.echo("no case could be played; where no product can be made, --product-id names one", err=True)
        return end(ExitCode.USAGE)
    good = not played.problems and played.report.passed
    return end(ExitCode.GOOD if good else ExitCode.CHECK_FAILED)
