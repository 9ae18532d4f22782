"""A comparison in the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.fleet.report.compare import Comparison, Difference, Estimate, FigureKind, Finding
from simulator.fleet.report.formatting import DASH, count_text, finite, percent_text, time_text

STYLES: Final = {
    Finding.BETTER: "bold green",
    Finding.WORSE: "bold red",
    Finding.NOT_SHOWN: "",
    Finding.TOO_FEW: "dim",
    Finding.NOT_JUDGED: "yellow",
}

SHORT: Final = {Finding.NOT_SHOWN: "no difference", Finding.TOO_FEW: "too few"}
WIDE: Final = 120
_PLAIN: Final = 100
_FORMS: Final[dict[FigureKind, Callable[[float], str]]] = {
    FigureKind.TIME: time_text,
    FigureKind.SHARE: percent_text,
    FigureKind.RATE: count_text,
}


def print_comparison(console: Console, found: Comparison) -> None:
    """Print a comparison: warnings first, then a row for each figure, then the conclusion."""
    for label, record in (("A", found.a), ("B", found.b)):
        console.print(
            Text(f"{label}  {record.name}, {record.began_at}, {record.target}, {record.verdict.word}"), soft_wrap=True
        )
    phases = ", ".join(found.compared)
    console.print(Text(f"compared: {phases}; intervals of {found.confidence:g} %", "dim"), soft_wrap=True)
    for warning in found.warnings:
        console.print(Text(f"! {warning}", "yellow"), soft_wrap=True)
    console.print(_table(found, wide=console.width >= WIDE))
    for label, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            console.print(Text(f"only in {label}: {', '.join(names)}"), soft_wrap=True)
    for sentence in found.broken:
        console.print(Text(f"✕ {sentence}", "bold red"), soft_wrap=True)
    style = "bold yellow" if found.unjudged else "bold red" if found.is_worse else "bold"
    console.print(Text(conclusion(found), style), soft_wrap=True)
    console.print(
        Text(
            "Intervals show how a run varies within itself, not from one run to the next: repeat what matters.", "dim"
        ),
        soft_wrap=True,
    )


def conclusion(found: Comparison) -> str:
    """The conclusion, in one sentence."""
    if found.unjudged:
        return f"nothing is judged: {'; '.join(found.unjudged)}"
    worse, better = found.count(Finding.WORSE), found.count(Finding.BETTER)
    rest = len(found.differences) - worse - better
    broken = f"{len(found.broken)} of what A held does not hold in B; " if found.broken else ""
    return f"{broken}B is worse in {worse}, better in {better}; no difference shown in {rest}"


def comparison_json(found: Comparison) -> str:
    """The comparison for scripts; times in seconds, changes in percent, null where there is no number."""
    document = {
        "a": _named(found.a.name, found.a.began_at, found.a.verdict.word),
        "b": _named(found.b.name, found.b.began_at, found.b.verdict.word),
        "conclusion": conclusion(found),
        "compared": found.compared,
        "confidence": found.confidence,
        "warnings": found.warnings,
        "only_a": found.only_a,
        "only_b": found.only_b,
        "unjudged": found.unjudged,
        "broken": found.broken,
        "differences": [finite(asdict(each)) for each in found.differences],
        "worse": found.count(Finding.WORSE),
        "better": found.count(Finding.BETTER),
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _named(name: str, began_at: str, verdict: str) -> dict[str, str]:
    return {"name": name, "began_at": began_at, "verdict": verdict}


def _table(found: Comparison, *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("A", "B", "from A to B"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finding", no_wrap=True)
    before = ""
    for each in found.differences:
        if each.operation != before:
            table.add_row(Text(each.operation, "bold"))
        before = each.operation
        table.add_row(
            f"  {each.name}",
            _text(each.figure, each.a, wide=wide),
            _text(each.figure, each.b, wide=wide),
            change_text(each),
            Text(each.finding if wide else SHORT.get(each.finding, each.finding), STYLES[each.finding]),
        )
    return table


def figure_text(figure: FigureKind, value: float) -> str:
    """A figure as people read it; a dash where there is none."""
    return _FORMS[figure](value)


def change_text(each: Difference) -> str:
    """``+4.2 % [+1.0, +7.9]``; of shares in percentage points."""
    if each.change is None:
        return DASH
    unit = " points" if each.figure is FigureKind.SHARE else " %"
    value, low, high = (_signed(part) for part in (each.change.value, each.change.low, each.change.high))
    return f"{value}{unit} [{low}, {high}]"


def _signed(value: float) -> str:
    return f"{value:+.0f}" if abs(value) >= _PLAIN else f"{value:+.1f}"


def _text(figure: FigureKind, estimate: Estimate, *, wide: bool) -> str:
    value, low, high = (_FORMS[figure](each) for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if wide else value
