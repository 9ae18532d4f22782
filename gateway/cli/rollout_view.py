"""Progress, plan and end of a rollout, as a person reads them and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

import click

from agent.cli.options import print_table
from agent.error_text import bounded
from agent.terminal import escape, unescaped
from gateway.rollout.book import Begun, RolloutBook, Row
from gateway.rollout.plan import OVER, Counts, DeviceState
from gateway.rollout.rolling import Ending, Progress

_QUARTERS: Final = 4
_FIRST_IDS: Final = 3
_CLEAR_LINE: Final = "\r\x1b[2K"


class ProgressView:
    """Shows where a rollout is: one line that changes on a terminal, else a line for each quarter of a wave.

    Args:
        out: by default standard error, so that standard output stays for the table.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or unescaped(sys.stderr)
        self._is_terminal = self._out.isatty()
        self._shown: tuple[int, int] = (0, -1)
        self._note: str | None = None

    def show(self, progress: Progress) -> None:
        """Show it, where it differs enough from the last one."""
        counts = progress.counts
        text = f"wave {progress.wave} of {progress.waves}: {_in_words(counts)}"
        if self._is_terminal:
            line = f"{text}; {progress.note}" if progress.note else text
            self._write(f"{_CLEAR_LINE}{escape(line)[: shutil.get_terminal_size().columns - 1]}")
            return
        if progress.note is not None and progress.note != self._note:
            self._write(f"wave {progress.wave} of {progress.waves}: {escape(bounded(progress.note))}\n")
        self._note = progress.note
        at = (progress.wave, counts.over * _QUARTERS // max(1, counts.all))
        if at != self._shown:
            self._shown = at
            self._write(f"{text}\n")

    def end(self) -> None:
        """Leave the line that changes."""
        if self._is_terminal:
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def print_plan(name: str, waves: Sequence[Sequence[str]]) -> None:
    """The waves of a rollout that has not begun."""
    reached, rows = 0, []
    total = sum(map(len, waves))
    for number, devices in enumerate(waves, 1):
        reached += len(devices)
        more = f" and {len(devices) - _FIRST_IDS} more" if len(devices) > _FIRST_IDS else ""
        ids = ", ".join(devices[:_FIRST_IDS])
        rows.append((str(number), str(len(devices)), f"{100 * reached / total:.3g} %", f"{ids}{more}"))
    print_table(("wave", "devices", "then have it", "which"), rows)
    click.echo(f"rollout {name}: {total} device(s) in {len(waves)} wave(s); nothing was sent")


def print_end(book: RolloutBook, begun: Begun, sentence: str) -> None:
    """The table of a rollout, what went wrong and where, and a last sentence."""
    rows = [
        (
            str(wave),
            str(counts.all),
            str(counts.succeeded),
            str(counts.failed),
            str(counts.silent + counts.sent),
            str(counts.planned + counts.sending),
        )
        for wave, counts in book.waves().items()
    ]
    print_table(("wave", "devices", "succeeded", "failed", "no result", "not sent"), rows)
    for (what, reason), devices in _by_reason(book).items():
        more = f" and {len(devices) - _FIRST_IDS} more" if len(devices) > _FIRST_IDS else ""
        click.echo(bounded(f"{what}, {len(devices)}: {reason}: {', '.join(devices[:_FIRST_IDS])}{more}"))
    click.echo(bounded(f"rollout {begun.name} {sentence}"))


def as_json(book: RolloutBook, begun: Begun, how: str, reason: str | None) -> dict[str, Any]:
    """The same for a program, with each device."""
    return {
        "rollout": begun.name,
        "rollout_id": begun.rollout_id,
        "ended": how,
        "reason": reason,
        "waves": [{"wave": wave, **_members(counts)} for wave, counts in book.waves().items()],
        "devices": [
            {
                "device_id": row.device_id,
                "wave": row.wave,
                "state": row.state.value,
                "command_id": row.command_id,
                "reason": row.reason,
            }
            for row in book.rows()
        ],
    }


def sentence_of(ending: Ending) -> str:
    """How it ended, behind the rollout's name."""
    return f"{ending.how}: {ending.reason}" if ending.reason else f"is {ending.how}"


def _in_words(counts: Counts) -> str:
    sent = counts.sent + counts.over
    words = f"{counts.succeeded} of {counts.all} succeeded, {counts.failed} failed, {counts.sent} without a result yet"
    return f"{words}, {counts.all - sent} to send" if sent < counts.all else words


def _by_reason(book: RolloutBook) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for row in book.rows(None, DeviceState.FAILED, DeviceState.SILENT, DeviceState.SENT):
        found.setdefault(_why(row), []).append(row.device_id)
    return found


def _why(row: Row) -> tuple[str, str]:
    what = "failed" if row.state is DeviceState.FAILED else "no result"
    return what, row.reason or ("nothing came so far" if row.state not in OVER else row.state.value)


def _members(counts: Counts) -> dict[str, int]:
    return {state.value: getattr(counts, state.value) for state in DeviceState}
