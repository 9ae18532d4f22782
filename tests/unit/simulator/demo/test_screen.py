from __future__ import annotations

import io

from rich.console import Console

from simulator.demo.screen import Screen
from simulator.report_parts.values import Event, Mark, Tone


def screen_at(times: list[float], *, terminal: bool = False) -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    clock = iter(times)
    console = Console(file=written, force_terminal=terminal, width=60, color_system=None)
    return Screen(console, lambda: next(clock)), written


def test_every_line_is_told_and_kept_with_its_time():
    screen, written = screen_at([100.0, 101.5, 102.0])
    screen.show("service", "started", Tone.ACCENT)
    screen.mark("kill -9")
    assert screen.events == [Event(1.5, "service", "started", Tone.ACCENT)]
    assert screen.marks == [Mark(2.0, "kill -9")]
    assert "service" in written.getvalue()
    assert "1.5 s" in written.getvalue()


def test_without_a_terminal_there_are_plain_lines_and_no_spinner():
    screen, written = screen_at([0.0, 1.0])
    with screen.doing("working") as say:
        say("still working")
    screen.show("labels", "x" * 100)
    assert "working" not in written.getvalue()
    assert "\x1b" not in written.getvalue()
    assert written.getvalue().count("\n") == 1


def test_text_from_outside_is_no_markup():
    screen, written = screen_at([0.0, 1.0])
    screen.show("[red]x[/]", "[bold]y[/] [/nothing]")
    assert "[red]x[/]" in written.getvalue()
    assert "[bold]y[/] [/nothing]" in written.getvalue()
