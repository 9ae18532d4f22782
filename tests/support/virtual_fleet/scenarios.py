"""The smallest scenario of each kind and transport, how keys are put into it, and what its run looks like."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from simulator.fleet.scenario.reading import read_scenario_file
from tests.support.virtual_fleet.service import NEVER, Sent
from tests.support.virtual_fleet.stage import Run, play

Document = dict[str, Any]
Answers = Callable[[Sent], Any]
_RUN_ID = re.compile(r"[0-9a-f]{12}(?=-\d)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def merged(one: Any, other: Any) -> Any:
    """Both documents; of equal keys the other's value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{name: merged(one.get(name), value) for name, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        both = [merged(first, second) for first, second in zip(one, other, strict=False)]
        return both + one[len(other) :] + copy.deepcopy(other[len(one) :])
    return copy.deepcopy(other)


_HTTP = {"target": {"transport": "http_poll"}}
_MQTT = {"target": {"transport": "mqtt"}}
_OPEN = {"kind": "requests", "arrivals": [{"rate_per_s": 2}]}
_READS = {"telemetry": {"every_s": 3}}
_LEAST = {
    "scenario": "s",
    "fleet": {"devices": 6, "models": [{}]},
    "phases": [{"name": "first", "kind": "hold", "duration_s": 12}],
    "drain_s": 5,
}


def _context(*parts: Document) -> Document:
    found: Document = _LEAST
    for part in parts:
        found = merged(found, part)
    return found


CONTEXTS: Mapping[str, Document] = {
    "core-poll": _context(_HTTP, {"fleet": {"models": [{**_READS, "poll": {"every_s": 3}}]}}),
    "core-hold": _context(
        {"target": {"transport": "http_long_poll"}, "fleet": {"models": [{**_READS, "poll": {"wait_s": 4}}]}}
    ),
    "core-mqtt": _context(_MQTT, {"fleet": {"models": [_READS]}}),
    "requests": _context(_OPEN),
    "history": {
        "scenario": "s",
        "kind": "backfill",
        "backfill": {"history_s": 600},
        "fleet": {"devices": 6, "models": [{"telemetry": {"every_s": 60}}]},
    },
    "labels": {
        "scenario": "s",
        "kind": "onboarding",
        "onboarding": {"rate_per_s": 2},
        "fleet": {"devices": 12},
        "phases": [{"name": "first", "kind": "hold", "duration_s": 12}],
        "drain_s": 5,
    },
}
"""The least that can be run of each kind and transport."""


def write_files(folder: Path) -> None:
    """The secret keys that a pool of keys names."""
    for name in ("one", "two"):
        (folder / name).write_text("msk_" + name * 8, encoding="utf-8")
        (folder / name).chmod(0o600)


@dataclass
class Look:
    """What a scenario is when it is performed, which is done when it is asked for."""

    path: Path
    folder: Path
    answers: Answers | None = None

    @cached_property
    def run(self) -> Run:
        return play(read_scenario_file(self.path), self.folder, answers=self.answers or (lambda _sent: None))

    @cached_property
    def wire(self) -> list[tuple[Any, ...]]:
        """Everything that was sent while the run lasted, what tells runs apart left out."""
        return [
            (round(sent.at_s, 6), sent.device, sent.operation, sent.target, _credential(sent), _text(sent))
            for sent in self.run.sent
        ]


def _credential(sent: Sent) -> str | None:
    return sent.headers.get("authorization") or sent.headers.get("x-secret-key")


def _text(sent: Sent) -> str:
    return _RUN_ID.sub("", re.sub(r'"fleet_sequence":\d+,?', "", sent.body.decode(errors="replace")))


@dataclass
class Looker:
    """Looks at scenarios, at the same one once."""

    folder: Path
    _seen: dict[str, Look] = field(default_factory=dict)

    def __call__(self, document: Document, answers: Answers | None = None) -> Look:
        """Read a scenario.

        Raises:
            ConfigurationError: it is refused.
        """
        text = yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False)  # nothing shared: no anchors
        name = text + (getattr(answers, "__name__", "") if answers else "")
        if name not in self._seen:
            path = self.folder / f"scenario-{len(self._seen)}.yaml"
            path.write_text(text, encoding="utf-8")
            read_scenario_file(path)
            self._seen[name] = Look(path, self.folder / path.stem, answers)
        return self._seen[name]


def frozen(sent: Sent) -> Any:
    """A service that stands still from the sixth second on."""
    return NEVER if sent.at_s >= 6 else None


def limited(sent: Sent) -> Any:
    """A service that takes no reading before the eighth second."""
    limited_now = sent.operation == "POST /sensor-data" and 0 <= sent.at_s < 8
    return (429, {"error": "rate_limited", "message": "later"}) if limited_now else None
