"""A history in the terminal and as JSON, and in one sentence for everything else."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.fleet.report.compare import Finding
from simulator.fleet.report.comparison_text import SHORT, STYLES, WIDE, figure_text
from simulator.fleet.report.formatting import finite, plural
from simulator.fleet.report.history import (
    BASELINE_MAX,
    BASELINE_MIN,
    FAR,
    ComparedFigure,
    Headline,
    History,
    HistoryRun,
)
from simulator.fleet.report.live_screen import sparkline

_SPARK_CELLS: Final = 12
_NUMBER: Final = 8
_FINDING: Final = 13


def history_conclusion(history: History) -> str:
    """The conclusion for the latest run, in one sentence."""
    if history.unjudged:
        return f"nothing is judged: {history.unjudged}"
    worse, better = (len(history.latest.names(finding)) for finding in (Finding.WORSE, Finding.BETTER))
    lost = "The latest run lost or changed data. " if history.latest.has_lost else ""
    return f"{lost}The latest run is worse in {worse}, better in {better} of {plural(len(history.headlines), 'figure')}"


def rule_text(history: History) -> str:
    """The rule by which something is called worse."""
    runs = f"the last {BASELINE_MAX} comparable runs before it ({BASELINE_MIN} at least)"
    return (
        f"Worse: further from the median of {runs} than {FAR:g} times their median distance from it, and at least "
        f"{history.margin:g} % (of shares {history.margin / 10:g} percentage points)."
    )


def against_text(headline: Headline, judged: ComparedFigure) -> str:
    """``1.90 s; the median of 5 runs before is 820 ms, the limit 902 ms``."""
    value = figure_text(headline.figure, judged.value)
    if math.isnan(judged.median):
        return f"{value}; {plural(judged.against, 'run')} before it"
    median, limit = (figure_text(headline.figure, each) for each in (judged.median, judged.limit))
    return f"{value}; the median of {plural(judged.against, 'run')} before it is {median}, the limit {limit}"


def note_of(run: HistoryRun) -> str:
    """A note on a run beside its verdict."""
    if run.unjudged:
        return f"not judged: it {run.unjudged}"
    parts = [f"{word}: {', '.join(names)}" for word in (Finding.WORSE, Finding.BETTER) if (names := run.names(word))]
    return "; ".join(parts)


def print_history(console: Console, history: History) -> None:
    """Print it: what to know first, a row for each figure, a row for each run, and what it comes to."""
    latest = history.latest.record
    console.print(Text(f"{history.scenario}, {plural(len(history.runs), 'run')}, the latest of {latest.began_at}"))
    for note in history.notes:
        console.print(Text(f"! {note}", "yellow"), soft_wrap=True)
    console.print(_figures(history, wide=console.width >= WIDE))
    console.print(_runs(history))
    style = "bold yellow" if history.unjudged else "bold red" if history.is_worse else "bold"
    console.print(Text(history_conclusion(history), style), soft_wrap=True)
    console.print(Text(rule_text(history), "dim"), soft_wrap=True)


def history_json(history: History) -> str:
    """The history for scripts; times in seconds, null where there is no number."""
    document = {
        "scenario": history.scenario,
        "margin": history.margin,
        "notes": history.notes,
        "conclusion": history_conclusion(history),
        "unjudged": history.unjudged,
        "is_worse": history.is_worse,
        "runs": [_run(run) for run in history.runs],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _run(run: HistoryRun) -> dict[str, Any]:
    record = run.record
    return {
        "folder": str(run.folder),
        "began_at": record.began_at,
        "verdict": record.verdict.word,
        "version": record.version,
        "seed": record.seed,
        "unjudged": run.unjudged,
        "figures": {
            name: finite(
                {
                    "value": judged.value,
                    "finding": judged.finding,
                    "median": judged.median,
                    "limit": judged.limit,
                    "against": judged.against,
                }
            )
            for name, judged in run.figures.items()
        },
    }


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in {"latest", "median", "limit"} else "left", no_wrap=True)
    return table


def _figures(history: History, *, wide: bool) -> Table:
    table = _table("", "runs", "latest", "median", "limit", "finding")
    for column in table.columns[1:]:
        column.min_width = _FINDING if column.header == "finding" else _NUMBER  # the name gives way to these
    for headline in history.headlines:
        judged = history.latest.figures[headline.name]
        values = [run.figures[headline.name].value for run in history.runs[-_SPARK_CELLS:]]
        spark = sparkline([0.0 if math.isnan(value) else value for value in values], len(values))
        texts = [figure_text(headline.figure, value) for value in (judged.value, judged.median, judged.limit)]
        finding = Text(judged.finding if wide else SHORT.get(judged.finding, judged.finding), STYLES[judged.finding])
        table.add_row(headline.name, Text(spark, "cyan"), *texts, finding)
    return table


def _runs(history: History) -> Table:
    table = _table("began", "verdict", "run", "")
    table.columns[3].no_wrap = False
    for run in history.runs:
        style = "yellow" if run.unjudged else "red" if run.names(Finding.WORSE) or run.has_lost else ""
        table.add_row(run.record.began_at, run.record.verdict.word, run.folder.name, Text(note_of(run), style))
    return table
