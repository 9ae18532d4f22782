"""The findings of a probe so far, and the report that is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.frozen import dataclass
from agent.wire import extensions
from agent.wire.answers import one_line
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.probe.line import NOT_JSON, ProbeLine, Seen
from agent.wire.probe.report import Choice, ProbeReport, Requirement, RuleVerdict
from agent.wire.server_findings import ServerFindings, describe
from agent.wire.times import to_rfc3339

TOPICS: Final = (
    *("server", "lists", "times", "devices", "commands", "results", "readings", "errors", "groups", "quota"),
    "transport",
)
NEEDS_WRITING: Final = "fleet-simulator probe --may-write finds it out"
"""Why a choice was not observed by a probe that only reads."""

_NOTHING: Final = "# nothing to set: the agent finds out by itself what this server does"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of ``service.dialect``.

    Attributes:
        key: its name.
        value: a text, or a list of texts.
        why: one line without a line end.
        only_if_wanted: the agent works without it, so it is written as a comment.
    """

    key: str
    value: object
    why: str
    only_if_wanted: bool = False


class Notes:
    """Rules, choices and answers of one probe.

    Args:
        line: makes the requests.
        dialect: what the configuration says of the server.

    Attributes:
        announced: the server's extensions; None while that is not known.
        is_gateway: ``device-gateway`` answers.
        findings: what the agent would find out.
        settings: keys of ``service.dialect`` that are needed.
        device: the record of the device under test, from the list of devices.
        products: ids of products.
        wrote, left: see :class:`~agent.wire.probe.report.ProbeReport`.
    """

    def __init__(self, line: ProbeLine, dialect: Dialect | None = None) -> None:
        self.line = line
        self.dialect = Dialect() if dialect is None else dialect
        self.announced: frozenset[str] | None = None
        self.is_gateway = False
        self.findings = ServerFindings(str(line.base_url))
        self.settings: list[Setting] = []
        self.device: Mapping[str, Any] = {}
        self.products: list[str] = []
        self.wrote: list[str] = []
        self.left: list[str] = []
        self.began_at = to_rfc3339(round(line.wall()))
        self._requirements: list[Requirement] = []
        self._choices: dict[str, Choice] = {}

    def offers(self, extension: str) -> bool:
        """The server announces it, or the configuration says so."""
        names = self.dialect.extensions if self.dialect.extensions is not None else self.announced
        return extension in (names or extensions.NONE)

    def judge(self, name: str, rule: str, *answers: tuple[Seen, bool], seen: str = "") -> bool:
        """Judge a rule by answers and whether each is as the rule says; without a status it cannot be judged.

        Args:
            name: of the rule.
            rule: in the specification's words.
            answers: each with its verdict.
            seen: instead of the answers, in words.
        """
        wrong = [answer for answer, is_right in answers if answer.status and not is_right]
        missing = [answer for answer, _ in answers if not answer.status]
        if wrong:
            verdict, shown = RuleVerdict.BROKEN, wrong
        elif missing or not answers:
            verdict, shown = RuleVerdict.UNJUDGED, missing
        else:
            verdict, shown = RuleVerdict.HOLDS, [answer for answer, _ in answers]
        words = seen or "; ".join(answer.brief() for answer in shown) or "nothing was answered that shows it"
        self._requirements.append(Requirement(name, rule, verdict, self._clean(words)))
        return verdict is RuleVerdict.HOLDS

    def note(self, topic: str, name: str, value: str | None, seen: str, loss: str = "") -> None:
        """Note a choice as observed; a later note replaces an earlier one."""
        self._choices[name] = Choice(
            topic, name, None if value is None else self._clean(value), self._clean(seen), self._clean(loss)
        )

    def unseen(self, topic: str, name: str, reason: str) -> None:
        """A choice that was not observed; what was observed before stays."""
        if self.value(name) is None:
            self._choices[name] = Choice(topic, name, None, self._clean(reason))

    def value(self, name: str) -> str | None:
        """The value of a choice; None when it was not observed."""
        choice = self._choices.get(name)
        return None if choice is None else choice.value

    def found(self, **changes: Any) -> None:
        """Fields of :class:`~agent.wire.server_findings.ServerFindings`."""
        self.findings = replace(self.findings, **changes)

    def set(self, key: str, value: object, why: str, *, only_if_wanted: bool = False) -> None:
        """A key of ``service.dialect`` that this server needs, or that its user may want."""
        self.unset(key)
        self.settings.append(Setting(key, value, why, only_if_wanted))

    def unset(self, key: str) -> None:
        """This key is not needed after all."""
        self.settings = [setting for setting in self.settings if setting.key != key]

    def _clean(self, text: str) -> str:
        """What a server sent may be in a text: printable, on one line, without the credentials."""
        return self.line.redact(one_line(text))

    def report(self, *, may_write: bool) -> ProbeReport:
        """The report of what was gathered."""
        chosen = {setting.key: setting.value for setting in self.settings if not setting.only_if_wanted}
        if may_write:
            for name, choice in self._choices.items():
                self._choices[name] = replace(
                    choice, seen=choice.seen.replace(NEEDS_WRITING, "writing did not show it")
                )
        announced = None if self.announced is None else tuple(sorted(self.announced))
        self.found(announced=announced)
        return ProbeReport(
            base_url=str(self.line.base_url),
            may_write=may_write,
            is_gateway=self.is_gateway,
            requests=self.line.sent,
            began_at=self.began_at,
            requirements=tuple(self._requirements),
            choices=tuple(sorted(self._choices.values(), key=lambda choice: TOPICS.index(choice.topic))),
            words=describe(self.findings, _with(self.dialect, chosen)),
            dialect=dialect_text(self.settings),
            wrote=tuple(self.wrote),
            left=tuple(self.left),
        )


def _with(dialect: Dialect, chosen: Mapping[str, object]) -> Dialect:
    """The dialect as it will be with the keys that were found."""
    changes: dict[str, Any] = {}
    if isinstance(names := chosen.get("extensions"), list):
        changes["extensions"] = frozenset(names)
    if isinstance(place := chosen.get("results"), str):
        changes["results"] = ResultPlace(place)
    if isinstance(lists := chosen.get("command_lists"), str):
        changes["command_lists"] = CommandLists(lists)
    return replace(dialect, **changes)


def is_json(seen: Seen) -> bool:
    """The answer's body is JSON."""
    return seen.json() is not NOT_JSON


def dialect_text(settings: Sequence[Setting]) -> str:
    """YAML for the agent's configuration; keys that are only wanted stand there as comments."""
    needed = [setting for setting in settings if not setting.only_if_wanted]
    wanted = [setting for setting in settings if setting.only_if_wanted]
    if not settings:
        return f"{_NOTHING}\n"
    lines = ["service:", "  dialect:", *(line for setting in needed for line in _lines(setting))]
    if needed:
        for setting in wanted:
            why, line = _lines(setting)
            lines += [why, f"    # {line.strip()}"]
    else:
        lines += [line for setting in wanted for line in _lines(setting)]
        lines = [_NOTHING, "# if you want:", *(f"# {line}" for line in lines)]
    return "\n".join(lines) + "\n"


def _lines(setting: Setting) -> tuple[str, str]:
    return f"    # {setting.why}", f"    {setting.key}: {json.dumps(setting.value)}"
