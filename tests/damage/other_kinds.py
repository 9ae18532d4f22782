"""The record of a storm of labels, and of a limiter's test: the runs that judge themselves, and what damages them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.damage.run import API_KEY, INCONCLUSIVE, SECRET_KEY, Case, Kind, Recorded, planted, played, serving
from tests.damage.short_limiter import WINDOW_S, short_limiter

STORM: Final = "run.json of a storm of labels"
LIMITER: Final = "run.json of a limiter's test"
_BASIS: Final = {"target": {"transport": "http_poll"}, "drain_s": 60}
_STORM: Final = {
    **_BASIS,
    "scenario": "labels",
    "kind": "onboarding_storm",
    "fleet": {"devices": 30},
    "onboarding": {"rate_per_s": 20, "races": 0.3, "remove": 0.2},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 3}],
}
_LIMITER: Final = {
    **_BASIS,
    "scenario": "limits",
    "kind": "limiter",
    "level": "wire",
    "fleet": {"devices": 1},
    "limiter": {"quota": 5, "window_s": WINDOW_S},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 4 * WINDOW_S}],
}


def _record_storm(root: Path) -> Recorded:
    with serving(root / "service") as service:
        return played(root, _STORM, service.base_url)


def _record_limiter(root: Path) -> Recorded:
    with short_limiter(API_KEY, SECRET_KEY, 5) as base_url:
        return played(root, _LIMITER, base_url)


RECORD: Final[Mapping[str, Callable[[Path], Recorded]]] = {STORM: _record_storm, LIMITER: _record_limiter}
"""How the run is made that the kinds of a place damage."""


def other_kinds() -> Iterator[Kind]:
    """Every kind of damage to them."""
    yield from _storm(partial(planted, STORM))
    yield from _limiter(partial(planted, LIMITER))
    for place in (STORM, LIMITER):
        yield from _reasons(partial(planted, place))


def _document(change: Callable[[dict[str, Any]], object]) -> Callable[[Case], None]:
    return lambda case: case.document(change)


def _storm(kind: Callable[..., Kind]) -> Iterator[Kind]:
    yield kind(
        "a label too few",
        _document(lambda document: document["extras"]["onboarding_storm"].update(labels=29)),
        INCONCLUSIVE,
        "the verdict is passed, and its labels are not those of its audit",
    )
    yield kind(
        "a race that nobody won",
        _document(lambda document: document["extras"]["onboarding_storm"].update(races_decided=1)),
        INCONCLUSIVE,
        "the verdict is passed, and not every race was decided",
    )
    yield kind(
        "its counts missing",
        _document(lambda document: document["extras"].pop("onboarding_storm")),
        INCONCLUSIVE,
        "the verdict is passed, and its labels are not those of its audit",
    )
    yield kind(
        "a registration lost",
        _document(lambda document: document["audit"]["registrations"].update(lost=1)),
        INCONCLUSIVE,
        "the verdict is passed, and its audit has findings",
    )
    yield kind(
        "a list not read to its end",
        _document(lambda document: document["audit"].update(complete=False)),
        INCONCLUSIVE,
        "the verdict is passed, and its audit is not",
    )
    yield kind(
        "no audit",
        _document(lambda document: document.update(audit=None)),
        INCONCLUSIVE,
        "the verdict is passed, and its labels are not those of its audit",
    )


def _limiter(kind: Callable[..., Kind]) -> Iterator[Kind]:
    otherwise = "the verdict is passed, and its checks of the limiter are not those that held"
    checks = "limiter"
    yield kind(
        "a check that was broken",
        _document(lambda document: document["extras"][checks]["count"].update(outcome="broken")),
        INCONCLUSIVE,
        otherwise,
    )
    yield kind(
        "a check that was not made",
        _document(lambda document: document["extras"][checks]["count"].update(outcome="skipped")),
        INCONCLUSIVE,
        otherwise,
    )
    yield kind(
        "a check missing", _document(lambda document: document["extras"][checks].pop("count")), INCONCLUSIVE, otherwise
    )
    yield kind(
        "its checks missing", _document(lambda document: document["extras"].pop(checks)), INCONCLUSIVE, otherwise
    )


def _reasons(kind: Callable[..., Kind]) -> Iterator[Kind]:
    comes_to = "the verdict is passed, and what is kept of its reasons comes to"
    for member, value, word in (
        ("failures", ["planted"], "failed"),
        ("saturated", ["planted"], "inconclusive"),
        ("broken", ["planted"], "inconclusive"),
        ("unreachable", "planted", "unreachable"),
        ("interrupted", "planted", "interrupted"),
    ):
        change = partial(_planted_reason, member, value)
        yield kind(f"a reason against it: {member}", _document(change), INCONCLUSIVE, f"{comes_to} {word}")
    yield kind(
        "what it proved, changed",
        _document(lambda document: document["reasons"].update(held=["9 of 9 checks of planted things held"])),
        INCONCLUSIVE,
        "the verdict does not say what its reasons come to",
    )
    yield kind(
        "a verdict that has no reason",
        _document(lambda document: document["verdict"].update(word="failed", exit_code=1)),
        INCONCLUSIVE,
        "the verdict is failed, and what is kept of its reasons comes to passed",
    )


def _planted_reason(member: str, value: object, document: dict[str, Any]) -> None:
    document["reasons"][member] = value
