"""The smallest scenario of each kind, level and transport, how keys are put into it, and what its run looks like."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from simulator.fleet.plan.forecast import Forecast, forecast
from simulator.fleet.plan.forecast_text import describe
from simulator.fleet.plan.plan import Plan
from simulator.fleet.scenario.reading import read_scenario_file
from tests.certificates import Authority
from tests.virtual_fleet.service import BEFORE_S, NEVER, Sent
from tests.virtual_fleet.stage import Run, play

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


def put(document: Document, path: str, value: Any) -> Document:
    """The document with a value at ``fleet.models.0.share`` and its like."""
    step, _, rest = path.partition(".")
    if step.isdigit():
        raise ValueError(f"{path} begins with a number")
    found = copy.deepcopy(document)
    if not rest:
        found[step] = copy.deepcopy(value)
        return found
    number, _, below = rest.partition(".")
    if not number.isdigit():
        found[step] = put(found.get(step, {}), rest, value)
        return found
    items = found.setdefault(step, [])
    items += [{}] * (int(number) + 1 - len(items))
    items[int(number)] = put(items[int(number)], below, value) if below else copy.deepcopy(value)
    return found


_HTTP = {"target": {"transport": "http_poll"}}
_MQTT = {"target": {"transport": "mqtt", "through": "gateway", "broker": {}}}
_OPEN = {"level": "wire", "arrivals": [{"kind": "open", "rate_per_s": 2}]}
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
    "wire-http": _context(_HTTP, _OPEN),
    "wire-mqtt": _context(_MQTT, _OPEN),
    "history": _context(
        _HTTP,
        {"kind": "backfill", "backfill": {"history_s": 600, "ends_at": "2026-01-01T00:00:00Z"}},
        {"fleet": {"models": [{"telemetry": {"every_s": 60}}]}, "phases": [{"until": "waiting_readings < 1"}]},
    ),
    "labels": _context(_HTTP, {"kind": "onboarding_storm", "onboarding": {"rate_per_s": 2}, "fleet": {"devices": 12}}),
}
"""The least that can be run of each kind, level and transport. ``command_round_trip`` is ``load`` with commands."""


def write_files(folder: Path) -> None:
    """The files that the scenarios of the tables name."""
    (folder / "values.csv").write_text("t,who,a,b\n0,x,1,2\n1,x,5,6\n2,x,3,1\n3,x,9,0\n", encoding="utf-8")
    (folder / "two.csv").write_text("device,a\nx,1\ny,100\nx,2\ny,200\n", encoding="utf-8")
    (folder / "route.csv").write_text("latitude,longitude\n52,13\n52.001,13\n52.001,13.001\n", encoding="utf-8")
    (folder / "other.csv").write_text("latitude,longitude,a\n1,2,70\n1.1,2,80\n", encoding="utf-8")
    ids = "\n".join(f"own-{number}" for number in range(12))
    (folder / "ids.csv").write_text(f"device_identifier\n{ids}\n", encoding="utf-8")
    (folder / "product.yaml").write_text("name: Pump\ncategory: water\nmodel: P-1\ndescription: It pumps.\n")
    for name in ("one", "two"):
        (folder / name).write_text("msk_" + name * 8, encoding="utf-8")
        (folder / name).chmod(0o600)
    (folder / "ca.pem").write_bytes(Authority(folder / "authority").certificate.read_bytes())


@dataclass
class Look:
    """What a scenario is, planned and performed; each is done when it is asked for."""

    path: Path
    folder: Path
    answers: Answers | None = None

    @cached_property
    def forecast(self) -> Forecast:
        return forecast(Plan(read_scenario_file(self.path).scenario), "d" * 32, cores=2)

    @cached_property
    def plan(self) -> str:
        """What ``fleet-simulator plan`` prints."""
        return "\n".join(describe(self.forecast))

    @cached_property
    def run(self) -> Run:
        return play(read_scenario_file(self.path), self.folder, answers=self.answers or (lambda _sent: None))

    @property
    def job(self) -> Any:
        """What the first worker was given."""
        return self.run.jobs[0]

    @property
    def header(self) -> Any:
        """What the audit goes by."""
        return self.job.ledger.header

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


def silent(sent: Sent) -> Any:
    """A service that answers nothing once the run has begun."""
    return NEVER if sent.at_s > BEFORE_S else None


def limited(sent: Sent) -> Any:
    """A service that takes no reading before the eighth second."""
    limited_now = sent.operation == "POST /sensor-data" and 0 <= sent.at_s < 8
    return (429, {"error": "rate_limited", "message": "later"}) if limited_now else None


# --- the keys that there are ------------------------------------------------------------------------------------------


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Every key below a section, as ``phases[ramp].to``, and whether it is a section or a list of them."""
    for name, described in model.model_fields.items():
        path = prefix + (described.alias or name)
        below = list(_sections(described.annotation))
        yield path, bool(below)
        for suffix, section in below:
            kind = section.model_fields.get("kind")
            tag = f"[{get_args(kind.annotation)[0]}]" if kind is not None and len(below) > 1 else suffix
            yield from keys_of(section, f"{path}{tag}.")


def _sections(kind: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _sections(get_args(kind)[0])
    elif origin in {Union, UnionType}:
        for each in get_args(kind):
            yield from _sections(each)
    elif origin in {tuple, list, dict}:
        for each in get_args(kind)[-1 if origin is dict else 0 :]:
            yield from (("[]", section) for _, section in _sections(each))
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield "", kind


def key_text(value: Any) -> str:
    """A value in the name of a test."""
    return json.dumps(value, default=str)[:40]
