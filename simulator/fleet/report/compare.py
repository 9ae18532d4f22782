"""Two runs of one scenario held against each other: what differs in the second by more than a fixed margin."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from agent.errors import ConfigurationError, InvalidMessage
from simulator.fleet.metrics.ages import READING_AGE, STAGE_OPERATIONS, is_age, with_shown_ages
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.record import RunRecord, Span, VerdictStatus
from simulator.fleet.report.figures import Figures, by_operation, percentiles
from simulator.fleet.report.folder import read_record, read_seconds
from simulator.fleet.report.formatting import DASH, count_text, finite, percent_text, time_text
from simulator.fleet.report.making import complete_interrupted_record
from simulator.fleet.report.summary import new_table
from simulator.yaml_document import read_document

_COMPARED: Final = (50.0, 95.0, 99.0)
_MARGIN: Final = 0.1
"""A rate or a time that differs by less of A's is the same."""
_SHARE_MARGIN: Final = 0.01
"""The same for shares of errors and of 429."""
_LEAST_S: Final = 0.001
"""Times that differ by less are the same."""
_BEYOND_MIN: Final = 10
"""Answers beyond a percentile, below which it is not compared."""
_NOT_THE_SCENARIO: Final = ("target", "workers", "description", "seed", "thresholds")


class Finding(StrEnum):
    """The comparison of one figure."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference"
    TOO_FEW = "too few to say"
    NOT_JUDGED = "not judged"
    """One of the runs says nothing of its target, or what looks better comes of a run that lost data."""


_STYLES: Final = {Finding.BETTER: "bold green", Finding.WORSE: "bold red", Finding.NOT_JUDGED: "yellow"}
_FORMS: Final[Mapping[str, Callable[[float], str]]] = {"s": time_text, "share": percent_text, "per_s": count_text}


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one operation in both runs.

    Attributes:
        name: such as ``p99`` or ``ok per second``.
        unit: ``s``, ``per_s`` or ``share``.
        a, b: the figure in each run.
    """

    operation: str
    name: str
    unit: str
    a: float
    b: float
    finding: Finding

    @property
    def change(self) -> str:
        """From A to B, for a person."""
        if self.unit == "share":
            return f"{100 * (self.b - self.a):+.1f} points"
        return f"{100 * (self.b / self.a - 1):+.1f} %" if self.a > 0 and math.isfinite(self.b) else DASH


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs.

    Attributes:
        compared: the phases that were compared.
        unjudged: why nothing is judged, a sentence each.
        broken: what A held and B does not.
    """

    a: RunRecord
    b: RunRecord
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]
    unjudged: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        """Whether B is worse in anything."""
        return bool(self.broken) or self.count(Finding.WORSE) > 0

    def count(self, finding: Finding) -> int:
        """How many figures came out so."""
        return sum(each.finding is finding for each in self.differences)

    @property
    def conclusion(self) -> str:
        """The conclusion, in one sentence."""
        if self.unjudged:
            return f"nothing is judged: {'; '.join(self.unjudged)}"
        worse, better = self.count(Finding.WORSE), self.count(Finding.BETTER)
        rest = len(self.differences) - worse - better
        broken = f"{len(self.broken)} of what A held does not hold in B; " if self.broken else ""
        return f"{broken}B is worse in {worse}, better in {better}; no difference in {rest}"


def compare_runs(folder_a: Path, folder_b: Path, phase: str | None = None) -> Comparison:
    """Compare the runs in two folders.

    Args:
        folder_a: the run that the other one is held against.
        folder_b: the other one.
        phase: compare this one only; None takes all but ramps.

    Raises:
        ConfigurationError: a folder holds no run or a damaged one, the scenarios differ, or there is no such phase.
    """
    a, b = (_read_run(folder) for folder in (folder_a, folder_b))
    if differing := _scenario_differences(a, b):
        text = f"{folder_a} and {folder_b} are runs of different scenarios ({', '.join(differing)} differ)"
        raise ConfigurationError([text])
    of_a, of_b = (_figures(folder, record, phase) for folder, record in ((folder_a, a), (folder_b, b)))
    unjudged = tuple(f"{label} {why}" for label, record in (("A", a), ("B", b)) if (why := _unfit(record)))
    has_lost = b.verdict.word is VerdictStatus.LOST
    differences = [
        # Whoever loses data has less to do: what looks better then is no merit.
        replace(each, finding=Finding.NOT_JUDGED) if unjudged or (has_lost and each.finding is Finding.BETTER) else each
        for name in sorted(of_a.keys() & of_b.keys(), key=lambda name: (name != READING_AGE, not is_age(name), name))
        for each in _differences(of_a[name], of_b[name])
    ]
    names = tuple(span.name for span in _chosen_phases(a, phase)) or ("the whole run",)
    return Comparison(a, b, names, tuple(differences), unjudged, () if unjudged else tuple(_broken(a, b)))


def _scenario_differences(a: RunRecord, b: RunRecord) -> tuple[str, ...]:
    """Keys in which two scenarios differ; none when both ran the same plan.

    Another target, seed or number of workers is no other scenario: that is what comparisons are made for.
    """
    if a.digest == b.digest:
        return ()
    one, other = (read_document(each.scenario_text.encode("utf-8", "replace")).value for each in (a, b))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return () if a.scenario_text == b.scenario_text else ("their texts",)
    keys = sorted({*one, *other} - set(_NOT_THE_SCENARIO))
    return tuple(key for key in keys if one.get(key) != other.get(key))


def _read_run(folder: Path) -> RunRecord:
    record = read_record(folder)
    return record if record.ended_at else complete_interrupted_record(record, folder)


def _unfit(record: RunRecord) -> str:
    """Why a run proves nothing about its target, as the rest of a sentence about it; empty when it does."""
    why = record.verdict.sentences[0] if record.verdict.sentences else record.verdict.word
    if record.verdict.word is VerdictStatus.INCONCLUSIVE:
        return f"is inconclusive: {why}"
    if record.partial or record.verdict.word in {VerdictStatus.INTERRUPTED, VerdictStatus.UNREACHABLE}:
        return f"did not run to its end: {record.partial or why}"
    return ""


def _broken(a: RunRecord, b: RunRecord) -> Iterator[str]:
    if b.verdict.word is VerdictStatus.LOST and a.verdict.word is not VerdictStatus.LOST:
        yield "B lost or changed data, and A did not"
    held = {result.expression for result in a.thresholds if result.judged and result.held}
    for result in b.thresholds:
        if result.expression in held and result.judged and not result.held:
            yield f"the threshold {result.expression} held in A, and does not in B"


def _chosen_phases(record: RunRecord, phase: str | None) -> tuple[Span, ...]:
    """The phases to compare: the named one, or all but ramps; all when there are only ramps, none when there are none.

    Raises:
        ConfigurationError: there is no such phase.
    """
    if phase is None:
        return tuple(span for span in record.phases if span.kind != "ramp") or record.phases
    found = tuple(span for span in record.phases if span.name == phase)
    if not found:
        names = ", ".join(span.name for span in record.phases) or "none"
        raise ConfigurationError([f"--phase {phase}: the run {record.name} has no such phase; it has {names}"])
    return found


def _figures(folder: Path, record: RunRecord, phase: str | None) -> dict[str, Figures]:
    """The figures of each operation in the phases that are compared."""
    spans, totals = _chosen_phases(record, phase), Totals()
    try:
        for second in read_seconds(folder):
            middle = second.second + 0.5
            if not spans or any(span.begin_s <= middle < span.end_s for span in spans):
                totals.add(replace(second, operations=with_shown_ages(second.operations)))
        return by_operation(totals.operations, float(totals.seconds))
    except InvalidMessage as error:
        raise ConfigurationError([f"{folder}: seconds.jsonl is damaged: {error}"]) from None


def _differences(a: Figures, b: Figures) -> Iterator[Difference]:
    name = a.name
    # The stages of a command are no requests of their own: how many there are says nothing that commands do not.
    if name not in STAGE_OPERATIONS:
        one, other = a.per_s(a.good), b.per_s(b.good)
        finding = _found(one, other, _MARGIN * one, more_is_better=True)
        yield Difference(name, "ok per second", "per_s", one, other, finding)
    for label, of_a, of_b in (("limited (429)", a.limited, b.limited), ("errors", a.errors, b.errors)):
        if of_a or of_b:
            one, other = of_a / a.total, of_b / b.total
            yield Difference(name, label, "share", one, other, _found(one, other, _SHARE_MARGIN))
    fewest = min(a.response.count, b.response.count)
    times = (percentiles(each.response, _COMPARED) for each in (a, b))
    for percent, (label, one), other in zip(_COMPARED, next(times).items(), next(times).values(), strict=True):
        if fewest:
            is_enough = fewest * (100 - percent) / 100 >= _BEYOND_MIN
            finding = _found(one, other, max(_MARGIN * one, _LEAST_S)) if is_enough else Finding.TOO_FEW
            yield Difference(name, label, "s", one, other, finding)


def _found(a: float, b: float, margin: float, *, more_is_better: bool = False) -> Finding:
    if not (math.isfinite(a) and math.isfinite(b)):
        return Finding.TOO_FEW
    if abs(b - a) <= margin:
        return Finding.SAME
    return Finding.BETTER if (b > a) is more_is_better else Finding.WORSE


# --- for people and scripts -------------------------------------------------------------------------------------------


def print_comparison(console: Console, found: Comparison) -> None:
    """Print a comparison: a row for each figure, then the conclusion."""
    for label, record in (("A", found.a), ("B", found.b)):
        text = f"{label}  {record.name}, {record.began_at}, {record.target}, {record.verdict.word}"
        console.print(Text(text), soft_wrap=True)
    console.print(Text(f"compared: {', '.join(found.compared)}", "dim"), soft_wrap=True)
    table, before = new_table(), ""
    table.add_column("", no_wrap=True)
    for name in ("A", "B", "from A to B"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finding", no_wrap=True)
    for each in found.differences:
        if each.operation != before:
            table.add_row(Text(each.operation, "bold"))
        before, form = each.operation, _FORMS[each.unit]
        finding = Text(each.finding, _STYLES.get(each.finding, ""))
        table.add_row(f"  {each.name}", form(each.a), form(each.b), each.change, finding)
    console.print(table)
    for sentence in found.broken:
        console.print(Text(f"✕ {sentence}", "bold red"), soft_wrap=True)
    style = "bold yellow" if found.unjudged else "bold red" if found.is_worse else "bold"
    console.print(Text(found.conclusion, style), soft_wrap=True)
    console.print(Text("One run varies from the next: repeat what matters.", "dim"), soft_wrap=True)


def comparison_json(found: Comparison) -> str:
    """The comparison for scripts; times in seconds, shares of 1, null where there is no number."""
    document: dict[str, Any] = {
        **{
            label: {"name": record.name, "began_at": record.began_at, "verdict": record.verdict.word}
            for label, record in (("a", found.a), ("b", found.b))
        },
        "conclusion": found.conclusion,
        "compared": found.compared,
        "unjudged": found.unjudged,
        "broken": found.broken,
        "differences": [finite(asdict(each)) for each in found.differences],
        "worse": found.count(Finding.WORSE),
        "better": found.count(Finding.BETTER),
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
