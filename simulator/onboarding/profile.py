"""A server's behaviour as a document, and what two of them differ in.

The document holds what was answered and nothing else: no time, no id, no address, no sentence. So two runs against the
same server give the same bytes, and two servers can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError
from simulator.onboarding.cases import ConcurrentRequests
from simulator.onboarding.driver import StepReport, StepRequest
from simulator.onboarding.journey import StepVerdict
from simulator.onboarding.running import CaseReport, CasesReport

FORMAT: Final = "device-agent/onboarding-profile/1"
Document = dict[str, Any]


def make_profile(report: CasesReport, extensions: Iterable[str]) -> Document:
    """The profile of a server.

    Args:
        report: of a run whose requests were noted.
        extensions: that the server announces.
    """
    return {
        "format": FORMAT,
        "extensions": sorted(extensions),
        "cases": {one.case.name: _case(one) for one in sorted(report.cases, key=lambda one: one.case.name)},
    }


def _case(report: CaseReport) -> Document:
    if report.journey is None:
        return {"not_played": report.skipped}
    steps: list[Document] = []
    raced = False
    for planned, step in zip(report.case.steps, report.journey.steps, strict=True):
        steps.append(_step(step, after_race=raced))
        raced = raced or isinstance(planned, ConcurrentRequests)
    return {"steps": steps}


def _step(step: StepReport, *, after_race: bool) -> Document:
    """Who wins a race is chance: of what comes after it only whether it fits is kept."""
    name = {"action": step.action, "label": step.label}
    if step.verdict is StepVerdict.SKIPPED:
        return {**name, "answers": "not asked"}
    if after_race:
        return {**name, "fits": step.verdict.is_good}
    answers = [_answer(asked) for asked in step.asked]
    if len({asked.action for asked in step.asked}) > 1 and len(step.asked) == _PAIR:
        return {**name, "fits": step.verdict.is_good}  # two different requests: either may be the first
    return {**name, "answers": sorted(_different(answers), key=_text)}


_PAIR: Final = 2


def _answer(asked: StepRequest) -> Document:
    exchange = asked.exchange
    if exchange is None or exchange.status is None:
        return {"answer": asked.answer.value}
    return {
        "answer": asked.answer.value,
        "status": exchange.status,
        "error": exchange.error or None,
        "body": exchange.shape,
    }


def _different(answers: Sequence[Document]) -> list[Document]:
    return list({_text(answer): answer for answer in answers}.values())


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def profile_text(profile: Document) -> str:
    """The document as JSON, always in the same order."""
    return json.dumps(profile, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_profile(path: Path) -> Document:
    """A profile from its file, or out of the folder of a run.

    Raises:
        ConfigurationError: it cannot be read, or is no profile of this version.
    """
    file = path / "profile.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationError([f"{file} cannot be read: {problem.strerror}"], "profile") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("cases"), dict):
        fault = f"{file} is no profile of `fleet-simulator onboard profile` in the format {FORMAT}: take it again"
        raise ConfigurationError([fault], "profile")
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which two profiles differ.

    Attributes:
        case: its name; empty for what concerns the whole server.
        step: number from 1, and what was asked; empty for the whole case.
        what: the member, such as ``status`` or ``body.device_id``.
        one, other: what each profile has there, as a person reads it.
    """

    case: str
    step: str
    what: str
    one: str
    other: str


def compare_profiles(one: Document, other: Document) -> list[Difference]:
    """Every place in which they differ, in the order of the cases."""
    found = _unequal("", "", "extensions", one.get("extensions"), other.get("extensions"))
    for name in sorted(one["cases"].keys() | other["cases"].keys()):
        left, right = one["cases"].get(name), other["cases"].get(name)
        if left is None or right is None or "steps" not in left or "steps" not in right:
            found += _unequal(name, "", "case", _played(left), _played(right))
            continue
        for number, (mine, theirs) in enumerate(zip(left["steps"], right["steps"], strict=False), 1):
            found += _compare_steps(name, f"{number} {mine['action']}", mine, theirs)
        if len(left["steps"]) != len(right["steps"]):
            found += _unequal(name, "", "steps", len(left["steps"]), len(right["steps"]))
    return found


@dataclass(frozen=True, slots=True)
class Group:
    """Differences that are the same but for their place.

    Attributes:
        asked: what was asked; empty for what concerns whole cases.
        where: the case, or how many and the first of them.
    """

    asked: str
    what: str
    one: str
    other: str
    where: str


def grouped(differences: Sequence[Difference]) -> list[Group]:
    """One group for each thing that differs, in the order of the first."""
    places: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for each in differences:
        asked = each.step.partition(" ")[2]
        places.setdefault((asked, each.what, each.one, each.other), {})[each.case] = None
    return [
        Group(*key, where=next(iter(cases)) if len(cases) == 1 else f"{len(cases)} cases: {next(iter(cases))}, ...")
        for key, cases in places.items()
    ]


def _played(case: Document | None) -> str:
    if case is None:
        return "not in this profile"
    return "played" if "steps" in case else f"not played: {case.get('not_played', '')}"


def _compare_steps(case: str, step: str, one: Document, other: Document) -> list[Difference]:
    mine, theirs = one.get("answers"), other.get("answers")
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs) == 1:
        return _compare_members(case, step, "", mine[0], theirs[0])
    return _unequal(case, step, "answers", mine, theirs) + _unequal(
        case, step, "fits", one.get("fits"), other.get("fits")
    )


def _compare_members(case: str, step: str, path: str, one: object, other: object) -> list[Difference]:
    """Down to the members that differ, so that one changed member is one line."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) == 1:
        return _compare_members(case, step, f"{path}[]", one[0], other[0])
    if not isinstance(one, dict) or not isinstance(other, dict):
        return _unequal(case, step, path, one, other)
    found: list[Difference] = []
    for name in sorted(one.keys() | other.keys()):
        inner = f"{path}.{name}" if path else name
        found += _compare_members(case, step, inner, one.get(name, _ABSENT), other.get(name, _ABSENT))
    return found


_ABSENT: Final = "absent"


def _unequal(case: str, step: str, what: str, one: object, other: object) -> list[Difference]:
    return [] if one == other else [Difference(case, step, what, _shown(one), _shown(other))]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else _text(value)
