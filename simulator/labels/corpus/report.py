"""What the server answered, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from simulator.labels.corpus.sending import AnsweredEntry, ScanOutcome, others


def as_json(asked: Sequence[AnsweredEntry], *, any_refusal: bool) -> dict[str, Any]:
    """The counts, and each payload that did not pass."""
    failed = others(asked, any_refusal=any_refusal)
    return {
        "passed": not failed,
        "any_refusal": any_refusal,
        "payloads": len(asked),
        "outcomes": dict(sorted(Counter(each.outcome.value for each in asked).items())),
        "classes": {name: dict(sorted(counts.items())) for name, counts in _by_class(asked).items()},
        "others": [
            {
                "id": each.entry.id,
                "class": each.entry.of.name,
                "what": each.entry.case.wrong,
                "outcome": each.outcome.value,
                "expected": _expected(each),
                "status": each.status,
                "error": each.error or None,
                "message": each.message,
            }
            for each in failed
        ],
    }


def _expected(each: AnsweredEntry) -> dict[str, Any] | None:
    expected = each.entry.case.expected
    return None if expected is None else {"status": expected.status, "error": expected.error or None}


def _by_class(asked: Sequence[AnsweredEntry]) -> dict[str, Counter[str]]:
    classes: dict[str, Counter[str]] = {}
    for each in asked:
        classes.setdefault(each.entry.of.name, Counter())[each.outcome.value] += 1
    return classes


def as_table(asked: Sequence[AnsweredEntry]) -> Table:
    """One row per class; the column of an outcome that nowhere occurred is left out."""
    shown = [outcome for outcome in ScanOutcome if any(each.outcome is outcome for each in asked)]
    table = Table(header_style="bold", expand=False)
    table.add_column("class", no_wrap=True)
    for outcome in shown:
        table.add_column(outcome.value, justify="right")
    for name, counts in _by_class(asked).items():
        cells = [_cell(outcome, counts[outcome.value]) for outcome in shown]
        table.add_row(Text(name), *cells)
    return table


def _cell(outcome: ScanOutcome, count: int) -> Text:
    if not count:
        return Text("")
    style = {ScanOutcome.AS_EXPECTED: "green", ScanOutcome.NOT_SENT: "dim", ScanOutcome.REFUSED_OTHERWISE: "yellow"}
    return Text(str(count), style=style.get(outcome, "bold red"))


def sentences(asked: Sequence[AnsweredEntry], *, any_refusal: bool) -> list[str]:
    """One line for each payload that did not pass."""
    return [_sentence(each) for each in others(asked, any_refusal=any_refusal)]


def _sentence(each: AnsweredEntry) -> str:
    expected = each.entry.case.expected
    wanted = "" if expected is None else f"{expected.status} {expected.error}".rstrip()
    got = "no answer" if each.status is None else f"{each.status} {each.error}".rstrip()
    what = each.entry.case.wrong.encode("unicode_escape").decode()
    message = (
        f" ({each.message})"
        if each.outcome in {ScanOutcome.SHOWN_WRONG, ScanOutcome.FAULT, ScanOutcome.NO_ANSWER}
        else ""
    )
    return f"{each.entry.id}: {what}: {each.outcome}: expected {wanted}, answered {got}{message}"
