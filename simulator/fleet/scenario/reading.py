"""A scenario out of its file: all faults at once, each with its line and column."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.scenario.checks import check_scenario
from simulator.fleet.scenario.fault_checks import check_fault_readings
from simulator.fleet.scenario.files import check_code
from simulator.fleet.scenario.finding import Finding
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.validation_text import faults_of
from simulator.yaml_document import Document, Fault, KeyPath, Place, read_document


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
    if document.value is None:
        empty = Fault(Place(1, 1), (), "is empty; 'fleet-simulator init' writes one to start from")
        faults = document.faults or (empty,)
        raise ConfigurationError([str(fault) for fault in faults], source)
    return scenario_of(document, folder, source, allow_python=allow_python)


def scenario_of(document: Document, folder: Path, source: str, *, allow_python: bool = False) -> Scenario:
    """The scenario of a document.

    Args:
        document: the scenario.
        folder: relative paths in it start here.
        source: what complaints name.
        allow_python: whether Python files that signals name may be run.

    Raises:
        ConfigurationError: see :func:`read_scenario_file`.
    """
    faults = list(document.faults)
    if not isinstance(document.value, dict):
        faults.append(Fault(document.place_of(()), (), "a scenario is a section with keys such as 'fleet:'"))
        raise _refusal(faults, source)

    def check(scenario: Scenario) -> list[Finding]:
        barred = [] if allow_python else list(check_code(scenario))
        return barred or [*check_scenario(scenario, folder), *check_fault_readings(scenario)]

    try:
        scenario = Scenario.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        faults += faults_of(error, Scenario, document)
        faults += _others(document, check, [fault.path for fault in faults])
    else:
        faults += [_placed(finding, document) for finding in check(scenario)]
    if faults:
        raise _refusal(faults, source)
    return scenario


def _others(document: Document, check: Callable[[Scenario], list[Finding]], wrong: list[KeyPath]) -> list[Fault]:
    """What is wrong beside the keys that are known to be: checked on what is left of the document without them."""
    # Without its only item a list may be none any more: then the faulty keys alone are left out.
    for left_out in ({_item_around(path) for path in wrong}, set(wrong)):
        try:
            rest = Scenario.model_validate_json(json.dumps(_without(document.value, (), left_out)), strict=True)
        except ValidationError:
            continue
        findings = [
            Finding(tuple(_counted_with(path, left_out) for path in finding.paths), finding.issue)
            for finding in check(rest)
        ]
        return [_placed(f, document) for f in findings if not any(_touches(p, bad) for p in f.paths for bad in wrong)]
    return []


def _without(value: Any, path: KeyPath, wrong: set[KeyPath]) -> Any:
    if isinstance(value, dict):
        return {key: _without(v, (*path, key), wrong) for key, v in value.items() if (*path, key) not in wrong}
    if isinstance(value, list):
        return [_without(v, (*path, i), wrong) for i, v in enumerate(value) if (*path, i) not in wrong]
    return value


def _item_around(path: KeyPath) -> KeyPath:
    """The item of a list that a key is in; the key itself where it is in none."""
    numbers = [place for place, step in enumerate(path) if isinstance(step, int)]
    return path[: numbers[-1] + 1] if numbers else path


def _counted_with(path: KeyPath, left_out: set[KeyPath]) -> KeyPath:
    """A path in a document without some items, as it is with them: the others of their lists were counted anew."""
    found: KeyPath = ()
    for step in path:
        place = step
        if isinstance(place, int):
            for index in itertools.count():
                missing = (*found, index) in left_out
                if not missing and place == 0:
                    place = index
                    break
                place -= not missing
        found = (*found, place)
    return found


def _touches(one: KeyPath, other: KeyPath) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def _placed(finding: Finding, document: Document) -> Fault:
    path = finding.paths[0]
    return Fault(document.place_of(path), path, finding.issue)


def _refusal(faults: list[Fault], source: str) -> ConfigurationError:
    return ConfigurationError([str(fault) for fault in sorted(set(faults))], source)
