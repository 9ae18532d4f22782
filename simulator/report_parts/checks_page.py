"""A run of checks as one HTML file. Pure."""

from __future__ import annotations

from typing import Final

from simulator.report_parts.checks import Check, CheckRun, Mark
from simulator.report_parts.page import render_page

_GOOD_SHOWN: Final = 500
_WORDS: Final = {Mark.GOOD: "ok", Mark.NOTED: "allowed", Mark.BAD: "failed", Mark.SKIPPED: "skipped"}


def checks_page(run: CheckRun) -> str:
    """The whole page as text, to be written as UTF-8.

    Failed checks of a group come first. Whatever is not good is always on it; of the good ones the first 500.
    """
    groups = [(name, *_shortened(checks)) for name, checks in run.groups().items()]
    return render_page("checks.html.j2", run=run, groups=groups, words=_WORDS, marks=Mark)


def _shortened(checks: list[Check]) -> tuple[list[Check], int]:
    """What is shown, and how many good ones are left out."""
    good = 0
    shown = []
    for check in sorted(checks, key=lambda check: check.mark is not Mark.BAD):
        good += check.mark is Mark.GOOD
        if check.mark is not Mark.GOOD or good <= _GOOD_SHOWN:
            shown.append(check)
    return shown, len(checks) - len(shown)
