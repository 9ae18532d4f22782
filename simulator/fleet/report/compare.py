"""The comparison of two runs of one scenario: what differs in the second one by more than a fixed margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from agent.errors import ConfigurationError, InvalidMessage
from simulator.fleet.metrics.recorder import Totals
from simulator.fleet.record import RunRecord, Span, VerdictStatus
from simulator.fleet.report.figures import Figures, FigureSet, percentiles, phase_at
from simulator.fleet.report.folder import read_seconds
from simulator.fleet.report.formatting import DASH, count_text, percent_text, time_text
from simulator.fleet.report.making import read_run
from simulator.fleet.report.summary import new_table
from simulator.yaml_document import read_document

_COMPARED: Final = {"p50": 0.5, "p95": 0.05, "p99": 0.01}
"""Percentiles, and the share of answers beyond each."""
_MARGIN: Final = 0.1
"""Rates and times that differ by less than this share of A's are the same."""
_SHARE_MARGIN: Final = 0.01
"""The same for shares of errors and of 429."""
_LEAST_S: Final = 0.001
"""Times that differ by less are the same."""
_BEYOND_MIN: Final = 10
"""A percentile with fewer answers beyond it is not compared."""
_NOT_THE_SCENARIO: Final = ("target", "workers", "description", "seed", "thresholds")


BETTER: Final = "better"
WORSE: Final = "worse"
SAME: Final = "no difference"
TOO_FEW: Final = "too few to say"
NOT_JUDGED: Final = "not judged"
"""One of the runs proves nothing about its target, or what looks better is of a run that lost data."""

_STYLES: Final = {BETTER: "bold green", WORSE: "bold red", NOT_JUDGED: "yellow"}
_FORMS: Final[Mapping[str, Callable[[float], str]]] = {"s": time_text, "share": percent_text, "per_s": count_text}


def compare_runs(folder_a: Path, folder_b: Path) -> dict[str, Any]:
    """Compare the runs in two folders.

    Args:
        folder_a: the run that the other one is held against.
        folder_b: the other one.

    Returns:
        ``a`` and ``b``: which runs; ``conclusion``: in one sentence; ``compared``: phases, all but ramps;
        ``unjudged``: why nothing is judged, a sentence each; ``broken``: what A held and B does not; ``differences``: a
        figure of an operation each, with its ``unit`` (``s``, ``per_s``, ``share`` of 1), its value in ``a`` and ``b``,
        and the ``finding``; ``worse`` and ``better``: how many of them.

    Raises:
        ConfigurationError: a folder holds no run or a damaged one, or the scenarios differ.
    """
    a, b = (read_run(folder) for folder in (folder_a, folder_b))
    if differing := _scenario_differences(a, b):
        text = f"{folder_a} and {folder_b} are runs of different scenarios ({', '.join(differing)} differ)"
        raise ConfigurationError([text])
    of_a, of_b = (_figures(folder, record) for folder, record in ((folder_a, a), (folder_b, b)))
    unjudged = [f"{label} {why}" for label, record in (("A", a), ("B", b)) if (why := _unfit(record))]
    broken = [] if unjudged else [*_broken(a, b)]
    differences = [each for name in of_a if name in of_b for each in _differences(of_a[name], of_b[name])]
    for each in differences:
        # A target that loses data has less to do: that it looks better then says nothing.
        if unjudged or (b.verdict.word is VerdictStatus.LOST and each["finding"] == BETTER):
            each["finding"] = NOT_JUDGED
    worse, better = (sum(each["finding"] == finding for each in differences) for finding in (WORSE, BETTER))
    conclusion = f"B is worse in {worse}, better in {better}; no difference in {len(differences) - worse - better}"
    if broken:
        conclusion = f"checks that held in A and not in B: {len(broken)}; {conclusion}"
    if unjudged:
        conclusion = f"nothing is judged: {'; '.join(unjudged)}"
    members = ("name", "began_at", "target")
    runs = {
        label: {**{each: getattr(record, each) for each in members}, "verdict": record.verdict.word.value}
        for label, record in (("a", a), ("b", b))
    }
    return {
        **runs,
        "conclusion": conclusion,
        "compared": [span.name for span in _chosen_phases(a)] or ["the whole run"],
        "unjudged": unjudged,
        "broken": broken,
        "differences": differences,
        "worse": worse,
        "better": better,
    }


def _scenario_differences(a: RunRecord, b: RunRecord) -> tuple[str, ...]:
    """Keys in which two scenarios differ; none when both ran the same plan.

    Another target, seed or number of workers is no other scenario: that is what comparisons are made for.
    """
    if a.digest == b.digest:
        return ()
    one, other = (_document(each.scenario_text) for each in (a, b))
    keys = sorted({*one, *other} - set(_NOT_THE_SCENARIO))
    return tuple(key for key in keys if one.get(key) != other.get(key))


def _document(scenario: str) -> Mapping[str, Any]:
    found = read_document(scenario.encode("utf-8", "replace")).value
    return found if isinstance(found, dict) else {"text": scenario}


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


def _chosen_phases(record: RunRecord) -> tuple[Span, ...]:
    """All phases but ramps; all when there are only ramps."""
    return tuple(span for span in record.phases if span.kind != "ramp") or record.phases


def _figures(folder: Path, record: RunRecord) -> dict[str, Figures]:
    """The figures of each operation in the phases that are compared."""
    spans = _chosen_phases(record)
    try:
        totals = Totals(each for each in read_seconds(folder) if not spans or phase_at(spans, each.second))
        return FigureSet.of(totals.operations, float(totals.seconds)).everything
    except InvalidMessage as error:
        raise ConfigurationError([f"{folder}: seconds.jsonl is damaged: {error}"]) from None


def _differences(a: Figures, b: Figures) -> Iterator[dict[str, Any]]:
    def row(name: str, unit: str, one: float, other: float, finding: str) -> dict[str, Any]:
        return {"operation": a.name, "name": name, "unit": unit, "a": one, "b": other, "finding": finding}

    one, other = a.per_s(a.good), b.per_s(b.good)
    yield row("ok per second", "per_s", one, other, _found(one, other, _MARGIN * one, more_is_better=True))
    for label, of_a, of_b in (("limited (429)", a.limited, b.limited), ("errors", a.errors, b.errors)):
        if of_a or of_b:
            one, other = of_a / a.total, of_b / b.total
            yield row(label, "share", one, other, _found(one, other, _SHARE_MARGIN))
    fewest = min(a.response.count, b.response.count)
    times_a, times_b = percentiles(a.response), percentiles(b.response)
    for label, beyond in _COMPARED.items() if fewest else ():
        one, other = times_a[label], times_b[label]
        is_enough = fewest * beyond >= _BEYOND_MIN
        yield row(label, "s", one, other, _found(one, other, max(_MARGIN * one, _LEAST_S)) if is_enough else TOO_FEW)


def _found(a: float, b: float, margin: float, *, more_is_better: bool = False) -> str:
    if not (math.isfinite(a) and math.isfinite(b)):
        return TOO_FEW
    if abs(b - a) <= margin:
        return SAME
    return BETTER if (b > a) is more_is_better else WORSE


def _change(unit: str, a: float, b: float) -> str:
    """From A to B, for a person."""
    if unit == "share":
        return f"{100 * (b - a):+.1f} points"
    return f"{100 * (b / a - 1):+.1f} %" if a > 0 and math.isfinite(b) else DASH


def print_comparison(console: Console, found: Mapping[str, Any]) -> None:
    """Print a comparison: a row for each figure, then the conclusion."""
    for label in ("a", "b"):
        console.print(Text(f"{label.upper()}  {', '.join(found[label].values())}"), soft_wrap=True)
    console.print(Text(f"compared: {', '.join(found['compared'])}", "dim"), soft_wrap=True)
    table, before = new_table(), ""
    table.add_column("", no_wrap=True)
    for name in ("A", "B", "from A to B"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finding", no_wrap=True)
    for each in found["differences"]:
        if each["operation"] != before:
            table.add_row(Text(each["operation"], "bold"))
        before, unit, a, b = each["operation"], each["unit"], each["a"], each["b"]
        finding = Text(each["finding"], _STYLES.get(each["finding"], ""))
        table.add_row(f"  {each['name']}", _FORMS[unit](a), _FORMS[unit](b), _change(unit, a, b), finding)
    console.print(table)
    for sentence in found["broken"]:
        console.print(Text(f"✕ {sentence}", "bold red"), soft_wrap=True)
    style = "bold yellow" if found["unjudged"] else "bold red" if found["broken"] or found["worse"] else "bold"
    console.print(Text(found["conclusion"], style), soft_wrap=True)
    console.print(Text("One run varies from the next: repeat what matters.", "dim"), soft_wrap=True)
