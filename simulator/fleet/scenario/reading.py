"""A scenario out of its file: all faults at once, each with its line and column.

The sections judge their own keys (:mod:`simulator.fleet.scenario.model`). Here is what none of them can know on its
own: whether the parts fit each other, and the files that they name.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.errors import ConfigurationError
from agent.wire.network import trust_store
from agent.wire.secret import read_key_file
from simulator.fleet.device.handlers import SENSOR, VOCABULARY, payload_fault
from simulator.fleet.metrics.thresholds import Source, Threshold, ThresholdError, parse
from simulator.fleet.scenario.model import (
    READER,
    CommandSettings,
    DevicesScenario,
    OnboardingScenario,
    Scenario,
    scenario_schema,
)
from simulator.fleet.scenario.phases import StepsPhase
from simulator.fleet.signals import build_signals
from simulator.fleet.target.provisioning import BUILT_IN, load_product
from simulator.yaml_document import Document, Fault, KeyPath, Place, read_document

_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}
_SHOWN: Final = 60
_OTHERS_MAY_NOT: Final = 0o077

Found = Iterator[tuple[KeyPath, str]]
"""Where something does not fit, and what to do about it."""


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A scenario with what it was read from.

    Attributes:
        folder: relative paths in it start here.
        text: as it was given, for the record of the run.
    """

    scenario: Scenario
    folder: Path
    text: str


def read_scenario_file(path: Path, *, allow_python: bool = False) -> ScenarioFile:
    """The scenario of a YAML file, with the text beside it.

    Args:
        path: of the file.
        allow_python: whether Python files that signals name may be run.

    Raises:
        ConfigurationError: it cannot be read or is faulty: one sentence for each fault, each with line and column.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}; name a file that is there"], str(path)) from None
    scenario = parse_scenario(raw, path.parent, str(path), allow_python=allow_python)
    return ScenarioFile(scenario, path.parent, raw.decode("utf-8", errors="replace"))


def parse_scenario(raw: bytes, folder: Path, source: str = "scenario", *, allow_python: bool = False) -> Scenario:
    """The scenario of a YAML text.

    Args:
        raw: the text.
        folder: relative paths in it start here.
        source: what complaints name.
        allow_python: whether Python files that signals name may be run.

    Raises:
        ConfigurationError: see :func:`read_scenario_file`.
    """
    document = read_document(raw)
    faults = list(document.faults)
    scenario: Scenario | None = None
    if document.value is None:
        faults = faults or [Fault(Place(1, 1), (), "is empty; 'fleet-simulator init' writes one to start from")]
    elif not isinstance(document.value, dict):
        faults.append(Fault(document.place_of(()), (), "a scenario is a section with keys such as 'fleet:'"))
    else:
        try:
            scenario = READER.validate_json(json.dumps(document.value), strict=True)
        except ValidationError as error:
            faults += [_fault_of(each, document) for each in error.errors() if not _is_consequence(each)]
        else:
            found = [] if allow_python else list(_code(scenario))  # none of it runs before somebody allowed it
            found = found or [
                *_polls(scenario),
                *_phases(scenario),
                *_faults(scenario),
                *_thresholds(scenario),
                *_files(scenario, folder),
            ]
            faults += [Fault(document.place_of(path), path, issue) for path, issue in found]
    if scenario is None or faults:
        raise ConfigurationError([str(fault) for fault in sorted(set(faults))], source)
    return scenario


def _is_consequence(raw: Any) -> bool:
    """Whether a list only lacks the items that are faulty."""
    return bool(raw["type"] == "too_short" and len(raw["input"]) >= raw["ctx"]["min_length"])


def _fault_of(raw: Any, document: Document) -> Fault:
    kind, path = raw["type"], _path_of(raw, document.value)
    given = path[-1] if path else ""
    if kind == "missing":
        issue = "is missing; add it"
    elif kind in _UNKNOWN:
        near = difflib.get_close_matches(str(given), _all_keys(), n=1, cutoff=0.7)
        issue = "is no key here" + (f"; did you mean {near[0]!r}?" if near and near[0] != given else "")
    elif kind == "union_tag_not_found":
        issue = "is missing its 'kind'; add it"
    elif kind == "union_tag_invalid":
        path, tags = path or ("kind",), str(raw["ctx"]["expected_tags"]).replace("'", "")
        issue = f"has no known kind {str(raw['ctx']['tag'])[:_SHOWN]!r}; known are {tags}"
    elif kind == "too_short":
        issue = f"is too short: it needs {raw['ctx']['min_length']} or more"
    elif kind == "value_error":
        issue = str(raw["msg"]).removeprefix("Value error, ")
    else:
        issue = f"{str(raw['msg']).replace('Input should', 'should')}, not {_shown(raw['input'])}"
    return Fault(document.place_of(path, key=kind in _UNKNOWN), path, issue)


def _path_of(raw: Any, value: Any) -> KeyPath:
    """The keys of an error's place; pydantic names the members of unions there as well, which the document has not."""
    path: KeyPath = ()
    for step in raw["loc"][1:]:  # the first names the kind of the scenario
        is_key = isinstance(value, dict) and step in value
        if is_key or (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            path, value = (*path, step), value[step]
    return (*path, raw["loc"][-1]) if raw["type"] == "missing" else path


@cache
def _all_keys() -> frozenset[str]:
    sections = scenario_schema()["$defs"].values()
    return frozenset(name for section in sections for name in section.get("properties", ()))


def _shown(value: Any) -> str:
    text = repr(value)
    # A secret in the wrong place must not reach a log through the complaint about it.
    if "msk_" in text or "mk_" in text:
        return "a key"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# --- whether the parts fit each other ---------------------------------------------------------------------------------


def _code(scenario: Scenario) -> Found:
    """The signals that run code, which somebody has to allow."""
    for index, model in enumerate(scenario.fleet.models):
        for name, settings in model.signals.items():
            if settings.kind == "python":
                here = ("fleet", "models", index, "signals", name, "file")
                yield here, "is a program; look into it, and give --allow-python if you trust it"


def _polls(scenario: Scenario) -> Found:
    if isinstance(scenario, DevicesScenario):
        transport = scenario.target.transport
        useless = "wait_s" if transport == "http_poll" else "every_s"
        for index, model in enumerate(scenario.fleet.models):
            if useless in model.poll.model_fields_set:
                here = ("fleet", "models", index, "poll", useless)
                yield here, f"does nothing with 'transport: {transport}'; remove it"


def _phases(scenario: Scenario) -> Found:
    names = [phase.name for phase in scenario.phases]
    if again := next((name for name in names if names.count(name) > 1), None):
        yield ("phases",), f"several phases are called {again!r}: give each a name of its own"
    if isinstance(scenario, OnboardingScenario):
        rate_per_s, labels = scenario.onboarding.rate_per_s, scenario.fleet.devices
        scanned = rate_per_s * sum(phase.rate_factor * phase.duration_s for phase in scenario.phases)
        if scanned < labels:
            issue = f"at {rate_per_s:g} labels/s only {scanned:.0f} of {labels} are scanned"
            yield ("phases",), f"{issue}; make a phase longer or the rate higher"
    for index, phase in enumerate(getattr(scenario, "listed", ())):
        if isinstance(phase, StepsPhase):
            yield from _steps(scenario, phase, ("phases", index))


def _steps(scenario: Any, steps: StepsPhase, here: KeyPath) -> Found:
    if steps is not scenario.search:
        yield here, "a search for the limit ends the run: make it the last phase"
    of_devices = isinstance(scenario, DevicesScenario)
    if steps.to > scenario.whole:
        whole = "fleet.devices" if of_devices else "all rate_per_s of the arrivals together"
        yield (*here, "to"), f"is more than {scenario.whole:,.10g}, which is {whole}: write less, or raise that"
    if of_devices and not all(level.is_integer() for level in steps.levels):
        yield here, "counts devices: write whole numbers"

    def unfit(threshold: Threshold) -> str:
        if threshold.source is Source.AUDIT or threshold.phase is not None:
            return "is about one step: leave out 'in', and put the audit in 'thresholds'"
        over_s = threshold.over_s or 0
        return f"no {over_s} s fit into hold_s: hold longer" if over_s > steps.hold_s - 1 else ""

    yield from _judged(scenario, steps.until_broken, (*here, "until_broken"), unfit)


def _faults(scenario: Scenario) -> Found:
    known = {name for model in scenario.fleet.models for name in model.signals}
    for index, fault in enumerate(scenario.faults):
        end_s = fault.at_s + fault.duration_s
        if end_s > scenario.duration_s:
            issue = f"ends {end_s:g} s after the begin; the phases end after {scenario.duration_s:g} s"
            yield ("faults", index), issue
        for name in getattr(fault, "readings", ()):
            if name not in known:
                issue = f"no model has a reading {name!r}; there are {', '.join(sorted(known))}"
                yield ("faults", index, "readings"), issue


def _thresholds(scenario: Scenario) -> Found:
    def unfit_to_abort(threshold: Threshold) -> str:
        fix = "is held against the latest seconds of the run: write 'over 10s' or the like, and no 'in'"
        return fix if threshold.over_s is None or threshold.phase is not None else ""

    yield from _judged(scenario, scenario.thresholds, ("thresholds",), lambda _: "")
    yield from _judged(scenario, scenario.abort_on, ("abort_on",), unfit_to_abort)


def _judged(scenario: Scenario, listed: Iterable[str], here: KeyPath, unfit: Callable[[Threshold], str]) -> Found:
    """The thresholds of a list that nothing can be held against; ``unfit`` says what this list does not take."""
    commands, phases = {command.name for command in scenario.commands}, {phase.name for phase in scenario.phases}
    reads = isinstance(scenario, DevicesScenario) or any(each.operation == "sensor_data" for each in scenario.arrivals)
    for index, expression in enumerate(listed):
        try:
            fault = unfit(parse(expression, phases=phases, commands=commands))
        except ThresholdError as error:
            fault = str(error)
        if expression.strip().startswith("commands.") and not commands:
            fault = "the scenario sends no commands: add 'commands:', or remove the threshold"
        elif expression.strip().startswith("readings.") and not reads:
            fault = "nothing takes readings here that could grow old; remove the threshold"
        if fault:
            yield (*here, index), fault


# --- the files that it names ------------------------------------------------------------------------------------------


def _files(scenario: Scenario, folder: Path) -> Found:
    """Whether files are there, readable, and where they hold a secret, private."""
    fleet, target = scenario.fleet, scenario.target
    try:
        words = [command.name for command in load_product(fleet.product, folder).commands or ()]
    except ConfigurationError as error:
        yield ("fleet", "product"), f"{error.source}: {'; '.join(error.faults)}; built in is {BUILT_IN!r}"
    else:
        for index, command in enumerate(scenario.commands):
            if command.expect not in {"rejected", "any"} and (fault := _refusal(scenario, command, words)):
                yield ("commands", index, "payload"), f"{fault}; give 'expect: rejected' if that is meant"
    for index, model in enumerate(fleet.models):
        try:
            build_signals(model.signals, folder=folder)
        except ConfigurationError as error:
            for fault in error.faults:
                yield ("fleet", "models", index, "signals"), fault
    for index, pair in enumerate(target.keys):
        try:
            read_key_file(folder / pair.secret_key_file, others_may_not=_OTHERS_MAY_NOT)
        except ConfigurationError as error:
            yield ("target", "keys", index, "secret_key_file"), "; ".join(error.faults)
    if target.ca_file is not None:
        try:
            trust_store(folder / target.ca_file)
        except OSError as error:
            issue = f"{folder / target.ca_file} cannot be used ({error.strerror or error})"
            yield ("target", "ca_file"), f"{issue}; name a PEM file with certificates"


def _refusal(scenario: Scenario, command: CommandSettings, words: list[str]) -> str:
    """Why product or virtual devices refuse a command; empty where they take it."""
    name = command.payload.get("command")
    known = words or list(VOCABULARY)
    if not isinstance(name, str) or name not in known:
        return f"command {name!r} is not in the product's vocabulary ({', '.join(known)})"
    if name not in VOCABULARY:
        return f"virtual devices have no handler for {name!r} and reject it ({', '.join(VOCABULARY)})"
    if fault := payload_fault(VOCABULARY[name], command.payload):
        return fault[:200]
    if others := {*command.payload.get("names", ()), command.payload.get("name", SENSOR)} - {SENSOR}:
        return f"virtual devices have one sensor, {SENSOR!r}, and no {str(others.pop())[:80]!r}"
    return ""
