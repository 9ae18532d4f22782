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

_TEXT: Final = "tag:yaml.org,2002:str"
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INTEGER_CHARACTERS: Final = 20  # what 64 bit need with a sign; beyond it is no number of ours
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


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


class _Unsupported(Exception):
    """The text uses something that we do not take."""


class _Loader(yaml.SafeLoader):
    """Composes nodes alone: words stay text, and nothing is built that the text could make large."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _Unsupported(f"line {line}: aliases (*{event.anchor}) are not allowed; write the value out")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Unsupported(f"line {line}: nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(text: str) -> Document:
    """Parse one YAML document; never raises for what the text holds."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=_Loader)
        document.values = None if node is None else _value(node, (), document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        if error.problem == "but found another document":
            document.faults.append(f"line {line}: a second document begins here; remove the line '---'")
        else:
            document.faults.append(f"line {line}: this is no YAML: {error.problem}; mend the line or the one above it")
    except _Unsupported as error:
        document.faults.append(str(error))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: a character that there is not
        document.faults.append(f"this is no YAML: {' '.join(str(error).split())}")
    return document


def _value(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    if isinstance(node, yaml.ScalarNode):
        if node.tag != _TEXT:
            text = f"tags such as {node.tag} are not allowed; remove it"
            document.faults.append(f"{dotted(path)} (line {node.start_mark.line + 1}): {text}")
        elif node.style is None:
            return plain_scalar(node.value)
        return node.value
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, each in enumerate(node.value):
            document.lines[*path, index] = each.start_mark.line + 1
            items.append(_value(each, (*path, index), document))
        return items
    members: dict[str, Any] = {}
    for key, value in node.value:
        here, line = (*path, key.value), key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _Unsupported(f"line {line}: a key must be a word, not a list or a mapping")
        if key.value in members:
            text = f"is there twice, first in line {document.lines[here]}; remove one of them"
            document.faults.append(f"{dotted(here)} (line {line}) {text}")
        document.lines[here] = line
        members[key.value] = _value(value, here, document)
    return members


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
