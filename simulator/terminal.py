"""What the commands of ``fleet-simulator`` share: wrong use as one line, what is printed, progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from agent.text import escape, unescaped
from simulator.exit_codes import ExitCode

_LINES: Final = 4
_WIDE: Final = 160


class Console(RichConsole):
    """Rich's console, with text from outside escaped (:mod:`agent.text`); its own colours and movements stay.

    Args:
        stderr: to standard error, not to standard output.
        options: of rich's.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        options.setdefault("file", unescaped(sys.stderr if stderr else sys.stdout))
        super().__init__(stderr=stderr, **options)
        if not self.is_terminal and "COLUMNS" not in os.environ and "width" not in options:
            self.width = _WIDE  # a log has no edge that tables would have to be cut at

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of what is printed, with the text of each escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape(segment.text))


class CommandLineError(click.ClickException):
    """Usage or configuration: one line on standard error that names the fix."""

    exit_code = ExitCode.USAGE


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
