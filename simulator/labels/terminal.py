"""How the commands speak: failures with an exit code, progress as a bar or as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulator.exit_codes import ExitCode

_LINES: Final = 4


class CheckFailed(click.ClickException):
    """A check failed: one line on standard error."""

    exit_code = ExitCode.CHECK_FAILED


class WrongUse(click.ClickException):
    """Usage or configuration: one line on standard error that names the fix."""

    exit_code = ExitCode.USAGE


class Interrupted(click.ClickException):
    """Ctrl-C or SIGTERM: one line on standard error that says what is left."""

    exit_code = ExitCode.INTERRUPTED


class Unreachable(click.ClickException):
    """The target cannot be reached: one line on standard error."""

    exit_code = ExitCode.UNREACHABLE


@contextmanager
def show_progress(what: str, console: Console | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function to call with done and total: a bar on a terminal, at most four lines elsewhere.

    Args:
        what: the noun, such as ``labels``.
        console: by default standard error, so that standard output stays for the answer.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: _print_line(console, what, done, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print_line(console: Console, what: str, done: int, total: int) -> None:
    if done * _LINES // total > (done - 1) * _LINES // total:
        console.print(f"{what}: {done} of {total}", highlight=False)
