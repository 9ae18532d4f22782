"""The report of a probe as lines for a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from agent.wire.probe.report import ProbeReport, Verdict
from agent.wire.server_findings import sentence

_WIDTH: Final = 110
_MARKS: Final = {Verdict.HOLDS: "ok", Verdict.BROKEN: "BROKEN", Verdict.UNJUDGED: "?"}
_COLUMN: Final = 9


def report_lines(report: ProbeReport) -> Iterator[str]:
    """Each line without its end."""
    how = "with writing" if report.may_write else "read only"
    whose = ", as device-gateway answers" if report.is_gateway else ""
    yield f"{report.base_url}{whose}: {report.requests} requests, {how}"
    yield ""
    yield from _rules(report)
    yield from _choices(report)
    yield from textwrap.wrap(as_sentence(report), _WIDTH)
    titled = (
        ("What is lost by it", report.losses),
        ("What was written", report.wrote),
        ("What could not be removed again", report.left),
    )
    for title, texts in titled:
        yield from _listed(title, texts)
    yield ""
    yield "For the configuration of the agent"
    yield from (f"  {line}" for line in report.dialect.splitlines())
    yield ""
    counts = f"{report.count(Verdict.HOLDS)} hold, {report.count(Verdict.BROKEN)} broken"
    counts += f", {report.count(Verdict.UNJUDGED)} not judged"
    yield f"{str(report.standing).capitalize()}: {counts}."


def as_sentence(report: ProbeReport) -> str:
    """What the agent will do with the server, as one sentence."""
    words = sentence(report.words)
    return f"{words[:1].upper()}{words[1:]}."


def _rules(report: ProbeReport) -> Iterator[str]:
    yield "Rules of the specification"
    for rule in report.requirements:
        mark = _MARKS[rule.verdict]
        yield from _row(mark, rule.rule)
        yield from _row("", rule.seen)
    yield ""


def _choices(report: ProbeReport) -> Iterator[str]:
    yield "Where the specification leaves the choice"
    for topic, choices in report.topics().items():
        for choice in choices:
            if choice.value is not None:
                yield from _row(topic, f"{choice.name}: {choice.seen}", 14)
    yield ""
    unseen: dict[str, list[str]] = {}
    for choice in report.choices:
        if choice.value is None:
            unseen.setdefault(choice.seen, []).append(choice.name)
    texts = tuple(f"{', '.join(names)}: {reason}" for reason, names in unseen.items())
    if texts:
        yield from list(_listed("Not observed", texts))[1:]
        yield ""


def _listed(title: str, texts: tuple[str, ...]) -> Iterator[str]:
    if texts:
        yield ""
        yield title
    for text in texts:
        yield from _row("-", text, 4)


def _row(head: str, text: str, column: int = _COLUMN) -> Iterator[str]:
    lines = textwrap.wrap(text, _WIDTH - column, break_on_hyphens=False) or [""]
    yield f"  {head:<{column - 2}}{lines[0]}".rstrip()
    yield from (f"{'':<{column}}{line}" for line in lines[1:])
