"""``report.html``: a run on one page that loads nothing.

The page's own policy forbids it to load anything, and lets run only the scripts that are in this package (by their
SHA-256). Every value is escaped by Jinja2; data for plots travels as JSON that no parser of HTML can leave
(``tojson``).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulator.fleet.metrics.ages import AGE_OPERATIONS, requests_of, stages_of
from simulator.fleet.outcomes import HELD
from simulator.fleet.record import RunRecord, VerdictStatus
from simulator.fleet.report.figures import (
    PERCENTILES,
    FigureSet,
    Timeline,
    by_outcome,
    errors_of,
    percentiles,
    run_figures,
    search_rows,
)
from simulator.fleet.report.formatting import (
    DASH,
    OUTCOME_WORDS,
    Tone,
    clock_text,
    count_text,
    headline,
    percent_text,
    plural,
    state_word,
    time_text,
)
from simulator.fleet.report.page.plots import plots_of
from simulator.fleet.report.summary import WRONGS, audit_text, observed_text

_TONES: Final = {
    VerdictStatus.PASSED: Tone.GOOD,
    VerdictStatus.INCONCLUSIVE: Tone.WARN,
    VerdictStatus.INTERRUPTED: Tone.WARN,
}
_FINDINGS_SHOWN: Final = 50
"""Of the audit, the gravest; ``run.json`` has all that the record has."""
_NAMED: Final = frozenset({"devices", "devices_not_named"})
_STAGES: Final = {
    "sent": "accepted by the service",
    "delivered": "delivered to the device",
    "started": "started",
    "finished": "finished",
    "reported": "result at the service",
    "round_trip": "the whole way",
}
_UPLOT: Final = "simulator.report_parts"
_SCRIPTS: Final = ((_UPLOT, "uPlot.iife.min.js"), (__name__, "fleet.js"))
_STYLES: Final = ((_UPLOT, "uPlot.min.css"), (__name__, "fleet.css"))

Card = tuple[str, str, str]
"""A number of the headline: as it is shown, what it counts, and one more thing to know about it."""


def fleet_page(record: RunRecord, timeline: Timeline, beside: Sequence[tuple[str, str]] = ()) -> str:
    """The whole page as text, to be written as UTF-8. Pure.

    Args:
        record: the run.
        timeline: of its seconds.
        beside: names of files beside the page, and what they are.
    """
    figures = run_figures(record)
    scripts = [_static(*place) for place in _SCRIPTS]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii") for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; base-uri 'none'"
    found = record.audit.findings if record.audit is not None else ()
    page = (
        _environment()
        .get_template("fleet.html.j2")
        .render(
            policy=policy,
            # The packages' own files, not anybody's input: the only places where nothing is escaped.
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            styles=[Markup(_static(*place)) for place in _STYLES],  # noqa: S704
            record=record,
            figures=figures,
            plots=plots_of(record, figures, timeline),
            phases=[(span, FigureSet.of(operations, 0.0)) for span, operations in timeline.phases],
            width_s=timeline.width_s,
            beside=beside,
            tone=_TONES.get(record.verdict.word, Tone.BAD),
            headline=headline(record),
            badge=_badge(record),
            cards=[*_cards(record, figures, timeline)],
            outcomes=[*by_outcome(requests_of(record.operations))],
            stages=[*_stages(record)],
            findings=found[:_FINDINGS_SHOWN],
            more_findings=max(0, len(found) - _FINDINGS_SHOWN),
            steps=search_rows(record),
            thresholds=sorted(record.thresholds, key=lambda each: each.held or 0.5 * (not each.judged)),
            has_held=bool(HELD & set(record.operations)),
            spans=[*_spans(record, timeline)],
            errors=errors_of(record),
        )
    )
    return page.lstrip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": clock_text,
        "count": count_text,
        "share": percent_text,
        "time": time_text,
        "times": percentiles,
        "plural": plural,
        "state": state_word,
        "observed": observed_text,
        "instant": _instant,
        "json": lambda value: json.dumps(value, indent=1, ensure_ascii=False, default=str),
    }
    environment.globals |= {"DASH": DASH, "OUTCOME_WORDS": OUTCOME_WORDS, "WRONGS": WRONGS, "PERCENTILES": PERCENTILES}
    return environment


@cache
def _static(package: str, name: str) -> str:
    text = (files(package) / "static" / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{package}: static/{name} would end its own element")
    return text


def _badge(record: RunRecord) -> str:
    held = sum(each.held for each in record.thresholds)
    so_far = " so far" if record.partial else ""
    parts = [f"{held} of {len(record.thresholds)} thresholds held{so_far}"] if record.thresholds else []
    if record.audit is not None:
        parts.append(f"audit: {audit_text(record.audit)}")
    return " · ".join(parts) or f"exit code {record.verdict.exit_code}"


def _cards(record: RunRecord, figures: FigureSet, timeline: Timeline) -> Iterator[Card]:
    """The figures of the headline; the ages first, since an outage shows in them."""
    whole, health = figures.whole, record.health
    every = whole.total
    for name in AGE_OPERATIONS:
        if age := figures.ages.get(name):
            times = {at: time_text(value) for at, value in percentiles(age.response).items()}
            counts = f"of {plural(age.good, name.partition('.')[0][:-1])}, {age.total - age.good:,} without a good end"
            yield (
                times["p99"],
                f"age of {name.partition('.')[0]}, p99",
                (f"p50 {times['p50']}, p99.9 {times['p99.9']}, max {times['max']}; {counts}"),
            )
    rate = f"{count_text(whole.per_s(whole.good))} per second" if record.duration_s > 0 else ""
    yield count_text(whole.good), "good answers", rate
    held = ", without long polls" if HELD & set(record.operations) else ""
    times = {at: time_text(value) for at, value in percentiles(whole.response).items()}
    yield times["p99"], "response time, p99", f"p50 {times['p50']}, p99.9 {times['p99.9']}{held}"
    yield count_text(whole.errors), "errors", f"{percent_text(whole.errors / every)} of all" if every else ""
    yield count_text(whole.limited), "limited (429)", "the quota at work; counted apart"
    if whole.resends:
        kinds = f"{whole.resends - whole.ambiguous:,} after a refusal, {whole.ambiguous:,} ambiguous"
        yield count_text(whole.resends), "sent again", f"{percent_text(whole.resends / every)}: {kinds}"
    if online := [each["gauges"]["online"]["high"] for each in timeline.slices.values() if "online" in each["gauges"]]:
        yield count_text(max(online)), "devices online at most", f"of {record.devices:,}"
    lag = f"of the intended load; lag p99 {time_text(health.send_lag_p99_s)}"
    if health.undelivered:
        lag += f"; {health.undelivered:,} never ended"
    yield percent_text(health.sent / health.intended) if health.intended else DASH, "sent by the generator", lag


def _stages(record: RunRecord) -> Iterator[Mapping[str, Any]]:
    """The stages of a command's way; the bars are shares of the slowest stage's 99th percentile, in percent."""
    stages = stages_of(record.operations)
    found = {name: stages[name] for name in _STAGES if name in stages}
    top = max((times.percentile(99) for times in found.values() if times.count), default=1.0) or 1.0
    for name, times in found.items():
        bars = [100 * min(times.percentile(at) / top, 1.0) if times.count else 0.0 for at in (50, 99)]
        yield {"name": _STAGES[name], "count": times.count, "times": percentiles(times), "bars": bars}


def _spans(record: RunRecord, timeline: Timeline) -> Iterator[Mapping[str, Any]]:
    """Phases and faults by time, and what was done; ``run.json`` names the devices, too."""
    rows = [("phase", span) for span in timeline.spans] + [("fault", span) for span in record.faults]
    for what, span in sorted(rows, key=lambda row: row[1].begin_s):
        done = {name: value for name, value in span.truth.items() if name not in _NAMED and value is not None}
        texts = [(name.replace("_", " "), value if isinstance(value, str) else json.dumps(value, default=str))
                 for name, value in done.items()]  # fmt: skip
        yield {"what": what, "span": span, "done": texts}


def _instant(text: str) -> str:
    """An instant of the record to the second, in words that may stand on two lines."""
    day, _, clock = text.partition("T")
    return f"{day} {clock[:8]} UTC" if clock.endswith("Z") else text
