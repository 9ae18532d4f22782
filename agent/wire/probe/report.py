"""The report of a probe: rules that hold or are broken, choices that were observed; as JSON and as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from agent.frozen import dataclass
from agent.wire.server_findings import sentence


class RuleVerdict(StrEnum):
    """The verdict on a rule of the specification."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNJUDGED = "not judged"


class ProbeVerdict(StrEnum):
    """The verdict on the whole probe."""

    GOOD = "every rule holds"
    BROKEN = "a stated rule is broken"
    INCONCLUSIVE = "a stated rule could not be judged"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A rule that the specification states.

    Attributes:
        name: unique in a report, snake_case.
        rule: in the specification's words.
        verdict: whether it holds.
        seen: what was answered, or why it could not be judged.
    """

    name: str
    rule: str
    verdict: RuleVerdict
    seen: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that the specification leaves open.

    Attributes:
        topic: choices of one kind stand together.
        name: unique in a report, snake_case.
        value: the choice as one word for programs; None when it was not observed.
        seen: in words; of a choice that was not observed the reason.
        loss: what the user loses by it; empty when nothing.
    """

    topic: str
    name: str
    value: str | None
    seen: str
    loss: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The report of a whole probe: what the server does, item by item.

    Attributes:
        base_url: of the server.
        may_write: whether it wrote to the server.
        is_gateway: the answers are those of ``device-gateway``, which stands before the server.
        requests: how many were sent.
        began_at: RFC 3339.
        requirements: the rules, in the order of the probe.
        choices: the open choices, those of a topic together.
        words: what the agent will do, each a phrase that follows on ``this server:``.
        dialect: YAML for the configuration of the agent; comments alone when there is nothing to set.
        wrote: what was written, one sentence each.
        left: what of it could not be removed again.
    """

    base_url: str
    may_write: bool
    is_gateway: bool
    requests: int
    began_at: str
    requirements: tuple[Requirement, ...]
    choices: tuple[Choice, ...]
    words: tuple[str, ...]
    dialect: str
    wrote: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def standing(self) -> ProbeVerdict:
        """The result of the whole probe: a broken rule goes before one that could not be judged."""
        verdicts = {requirement.verdict for requirement in self.requirements}
        if RuleVerdict.BROKEN in verdicts:
            return ProbeVerdict.BROKEN
        return ProbeVerdict.INCONCLUSIVE if RuleVerdict.UNJUDGED in verdicts or not verdicts else ProbeVerdict.GOOD

    @property
    def losses(self) -> tuple[str, ...]:
        """What the user loses by this server's choices."""
        return tuple(choice.loss for choice in self.choices if choice.loss)

    def topics(self) -> dict[str, list[Choice]]:
        """The choices by topic, in the order of their first."""
        found: dict[str, list[Choice]] = {}
        for choice in self.choices:
            found.setdefault(choice.topic, []).append(choice)
        return found

    def count(self, verdict: RuleVerdict) -> int:
        """How many rules have this verdict."""
        return sum(requirement.verdict is verdict for requirement in self.requirements)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON members."""
        return {
            "base_url": self.base_url,
            "standing": self.standing.name.lower(),
            "may_write": self.may_write,
            "is_gateway": self.is_gateway,
            "requests": self.requests,
            "began_at": self.began_at,
            "requirements": [
                {"name": each.name, "rule": each.rule, "verdict": each.verdict.name.lower(), "seen": each.seen}
                for each in self.requirements
            ],
            "choices": [
                {
                    "topic": each.topic,
                    "name": each.name,
                    "value": each.value,
                    "seen": each.seen,
                    "loss": each.loss or None,
                }
                for each in self.choices
            ],
            "agent": list(self.words),
            "losses": list(self.losses),
            "dialect": self.dialect,
            "wrote": list(self.wrote),
            "left": list(self.left),
        }


_WIDTH: Final = 110
_MARKS: Final = {RuleVerdict.HOLDS: "ok", RuleVerdict.BROKEN: "BROKEN", RuleVerdict.UNJUDGED: "?"}
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
    counts = f"{report.count(RuleVerdict.HOLDS)} hold, {report.count(RuleVerdict.BROKEN)} broken"
    counts += f", {report.count(RuleVerdict.UNJUDGED)} not judged"
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
