"""The demo's output while it runs: one line for each step, a spinner on the current one.

Without a terminal there are only the lines. Every line is kept with its time, for the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape

from simulator.report_parts.values import Event, Mark, Tone

_COLOURS: Final = {
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.WARN: "yellow",
    Tone.ACCENT: "cyan",
    Tone.PLAIN: "default",
}
_SIGNS: Final = {Tone.GOOD: "✓", Tone.BAD: "✕", Tone.WARN: "!", Tone.ACCENT: "•", Tone.PLAIN: "·"}
_ACTOR_WIDTH: Final = 12


class Screen:
    """Prints the steps of the demo and keeps them.

    Args:
        console: where it is shown; a rich one knows whether it is a terminal.
        monotonic: the clock that the story's times are measured on.
    """

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._monotonic = monotonic
        self._began_s = monotonic()
        self.events: list[Event] = []
        self.marks: list[Mark] = []

    def elapsed_s(self) -> float:
        """Seconds since the story began."""
        return self._monotonic() - self._began_s

    def show(self, actor: str, text: str, tone: Tone = Tone.GOOD) -> None:
        """Print and keep one step.

        Args:
            actor: who did it.
            text: what happened.
            tone: how it is coloured.
        """
        at_s = self.elapsed_s()
        self.events.append(Event(at_s, actor, text, tone))
        colour = _COLOURS[tone]
        self.console.print(
            f" [bold {colour}]{_SIGNS[tone]}[/] [bold]{escape(actor):<{_ACTOR_WIDTH}}[/] {escape(text)} "
            f"[dim]{at_s:6.1f} s[/]",
            highlight=False,
            soft_wrap=True,
        )

    def mark(self, label: str) -> None:
        """A vertical line in the report's pictures, at this instant."""
        self.marks.append(Mark(self.elapsed_s(), label))

    @contextmanager
    def doing(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that something is under way; yields a function that changes the text."""
        if not self.console.is_terminal:
            yield lambda _: None
            return
        with self.console.status(f"[dim]{escape(text)}[/]", spinner="dots") as status:
            yield lambda newer: status.update(f"[dim]{escape(newer)}[/]")

    def line(self, text: str = "") -> None:
        """A line beside the story, with rich's markup; values in it are the caller's to escape."""
        self.console.print(text, highlight=False, soft_wrap=True)
