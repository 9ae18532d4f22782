"""YAML text to plain values with the line of every key. Refuses what a configuration never needs.

Aliases (a few of them make gigabytes), duplicate keys (one of the two is a mistake), tags, depth and huge files are
faults with a line number. ``true`` and ``false`` are the only booleans: ``off`` stays the word it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 12

KeyPath = tuple[str | int, ...]

_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INTEGER_CHARACTERS: Final = 20  # what 64 bit need with a sign; beyond it is no number of ours
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_PLAIN_TAGS: Final = frozenset({None, "!", "tag:yaml.org,2002:str"})

# libyaml's scanner where PyYAML was built with it: the same events in a tenth of the time.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Document:
    """A parsed YAML text, with the line of each key.

    Attributes:
        values: mappings, lists, text, numbers, booleans, None.
        lines: where each key or item begins, 1 for the first line.
        faults: sentences; ``values`` is still what could be read.
    """

    values: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read_document(text: str) -> Document:
    """Parse one YAML document; never raises for what the text holds."""
    document = Document()
    try:
        events = iter(_checked_events(text))
        document.values = _value(next(events, None), events, (), document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        document.faults.append(f"line {line}: this is no YAML: {error.problem}; mend the line or the one above it")
    except yaml.YAMLError as error:
        document.faults.append(f"this is no YAML: {' '.join(str(error).split())}")
    except UnsupportedYaml as error:
        document.faults.append(str(error))
    return document


class UnsupportedYaml(Exception):
    """The text uses something that we do not take."""


def _checked_events(text: str) -> list[Any]:
    events: list[Any] = []
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = _line(event)
        match event:
            case yaml.AliasEvent():
                raise UnsupportedYaml(f"line {line}: aliases (*{event.anchor}) are not allowed; write the value out")
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise UnsupportedYaml(f"line {line}: a second document begins here; remove the line '---'")
            case yaml.CollectionStartEvent():
                depth += 1
                if depth > MAX_DEPTH:
                    raise UnsupportedYaml(f"line {line}: nested more than {MAX_DEPTH} deep")
            case yaml.CollectionEndEvent():
                depth -= 1
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent | yaml.CollectionEndEvent):
            events.append(event)
    return events


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _value(event: Any, events: Any, path: KeyPath, document: Document) -> Any:
    match event:
        case None:
            return None
        case yaml.ScalarEvent():
            return _scalar(event, path, document)
        case yaml.SequenceStartEvent():
            return _sequence(events, path, document)
        case _:
            return _mapping(events, path, document)


def _sequence(events: Any, path: KeyPath, document: Document) -> list[Any]:
    items: list[Any] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        here = (*path, len(items))
        document.lines[here] = _line(event)
        items.append(_value(event, events, here, document))
    return items


def _mapping(events: Any, path: KeyPath, document: Document) -> dict[str, Any]:
    members: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        line = _line(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise UnsupportedYaml(f"line {line}: a key must be a word, not a list or a mapping")
        name: str = event.value
        here = (*path, name)
        if name in members:
            first = document.lines[here]
            document.faults.append(
                f"{dotted(here)} (line {line}) is there twice, first in line {first}; remove one of them"
            )
        document.lines[here] = line
        members[name] = _value(next(events), events, here, document)
    return members


def _scalar(event: Any, path: KeyPath, document: Document) -> Any:
    text: str = event.value
    if event.tag not in _PLAIN_TAGS:
        line = _line(event)
        document.faults.append(f"{dotted(path)} (line {line}): tags such as {event.tag} are not allowed; remove it")
        return text
    return plain_scalar(text) if event.style in {None, ""} else text


def plain_scalar(text: str) -> Any:
    """An unquoted word as YAML 1.2 reads it: null, boolean, number or text."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.match(text) and len(text) <= _INTEGER_CHARACTERS:
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


def dotted(path: KeyPath) -> str:
    """A path as a person writes it: ``sensors[0].interval_s``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"
