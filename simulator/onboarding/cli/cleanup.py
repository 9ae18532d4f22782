"""``fleet-simulator onboard cleanup``: a click command, no logic."""

from __future__ import annotations

from pathlib import Path

import click

from agent.error_text import bounded
from simulator.exit_codes import ExitCode
from simulator.onboarding.case_labels import ProductAccount
from simulator.onboarding.cleanup import CleanupReport, clean_up_file, find_marked, remove_marked
from simulator.onboarding.cli.options import PREFIX, takes_access, takes_other
from simulator.onboarding.connecting import ServiceAccess, connected, connected_if_given
from simulator.terminal import CommandLineError, end, errors_in_one_line, option, show_progress


@click.command("cleanup")
@click.argument("journals", nargs=-1, type=click.Path(path_type=Path))
@takes_access
@takes_other
@option("--marked", is_flag=True, help="Without a journal: whatever has onboard: in front of its name.")
@option(
    "--run",
    "run_id",
    envvar=f"{PREFIX}_CLEANUP_RUN",
    help="With --marked: only what this run made, by the id in the names.",
)
@option("--yes", is_flag=True, help="With --marked: remove it; without it the list is only printed.")
def cleanup_command(
    *,
    journals: tuple[Path, ...],
    access: ServiceAccess,
    other: ServiceAccess,
    marked: bool,
    run_id: str | None,
    yes: bool,
) -> None:
    """Take back what a run made and left, also a run that was killed.

    JOURNALS are folders that --out named, or their journal.jsonl. Killed itself, the same command goes on. Exit code
    0: nothing is left. 1: something is. 2: usage, or the keys were refused. 5: the service cannot be reached.
    """
    if marked == bool(journals):
        raise CommandLineError(
            "give the folder or journal of a run, or --marked to look for names that begin with onboard:"
        )
    if run_id is not None and not marked:
        raise CommandLineError("--run goes with --marked; a journal knows its run")
    with errors_in_one_line(), connected(access) as home:
        if marked:
            return _clean_marked(home.product_account, run_id, yes=yes)
        report = CleanupReport()
        with connected_if_given(other, "other") as stranger, show_progress("taken back") as on_progress:
            accounts = {one.product_account.name: one.product_account for one in (home, stranger) if one is not None}
            for path in journals:
                report.add(clean_up_file(path, accounts, home.base_url, on_progress))
    return _end_with(report)


def _clean_marked(account: ProductAccount, run_id: str | None, *, yes: bool) -> None:
    left = find_marked(account, run_id)
    if not yes:
        for device_id, place in left.devices.items():
            click.echo(f"device {device_id} {place.device_identifier} of {place.user_id}")
        for _, product_id in left.products:
            click.echo(f"product {product_id}")
        click.echo(f"{left.count} thing(s) would be removed; --yes removes them")
        return end(ExitCode.CHECK_FAILED if left.count else ExitCode.GOOD)
    with show_progress("taken back") as on_progress:
        report = remove_marked(account, left, on_progress)
    return _end_with(report)


def _end_with(report: CleanupReport) -> None:
    gone = f", {report.gone} gone before" if report.gone else ""
    click.echo(f"removed {len(report.devices)} device(s) and {len(report.products)} product(s){gone}")
    for problem in report.problems:
        click.echo(bounded(f"left: {problem}"), err=True)
    return end(ExitCode.CHECK_FAILED if report.problems else ExitCode.GOOD)
