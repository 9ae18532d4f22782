"""A scenario out of its file: all faults at once, each with its line and column."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.scenario.checks import check_code, check_scenario
from simulator.fleet.scenario.model import KINDS, READER, Scenario, scenario_schema
from simulator.yaml_document import Document, Fault, KeyPath, Place, read_document

_SHOWN: Final = 60


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
            code = [] if allow_python else list(check_code(scenario))
            found = code or check_scenario(scenario, folder)
            faults += [Fault(document.place_of(path), path, issue) for path, issue in found]
    if scenario is None or faults:
        raise ConfigurationError([str(fault) for fault in sorted(set(faults))], source)
    return scenario


def _is_consequence(raw: Any) -> bool:
    """Whether a list only lacks the items that are faulty."""
    return bool(raw["type"] == "too_short" and len(raw["input"]) >= raw["ctx"]["min_length"])


def _fault_of(raw: Any, document: Document) -> Fault:
    kind, path = raw["type"], _path_of(raw["loc"], document.value)
    given = path[-1] if path else ""
    if kind == "missing":
        issue = "is missing; add it"
    elif kind == "extra_forbidden":
        near = difflib.get_close_matches(str(given), _all_keys(), n=1, cutoff=0.7)
        issue = "is no key here" + (f"; did you mean {near[0]!r}?" if near and near[0] != given else "")
    elif kind == "union_tag_not_found":
        issue = "is missing its 'kind'; add it"
    elif kind == "union_tag_invalid":
        path = path or ("kind",)
        known = ", ".join(KINDS) if path == ("kind",) else str(raw["ctx"]["expected_tags"]).replace("'", "")
        issue = f"has no known kind {str(raw['ctx']['tag'])[:_SHOWN]!r}; known are {known}"
    elif kind == "value_error":
        issue = str(raw["msg"]).removeprefix("Value error, ")
    else:
        issue = f"{str(raw['msg']).replace('Input should', 'should')}, not {_shown(raw['input'])}"
    return Fault(document.place_of(path, key=kind == "extra_forbidden"), path, issue)


def _path_of(loc: tuple[str | int, ...], value: Any) -> KeyPath:
    """The keys of an error's place; pydantic names the members of unions there as well, which the document has not."""
    path: KeyPath = ()
    for number, step in enumerate(loc[1:], start=2):  # the first names the kind of the scenario
        if isinstance(value, dict) and (step in value or number == len(loc)):
            path, value = (*path, step), value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path, value = (*path, step), value[step]
    return path


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
