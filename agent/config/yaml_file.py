"""YAML text to plain values with the line of every key. Refuses what a configuration never needs.

Aliases (a few of them make gigabytes), duplicate keys (one of the two is a mistake), depth and huge files are faults.
``true`` and ``false`` are the only booleans: ``off`` stays the word it is.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.composer import ComposerError

from agent.errors import ConfigurationError

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 12

KeyPath = tuple[str | int, ...]
Lines = dict[KeyPath, int]
"""Where each key or item begins, 1 for the first line."""

_WORDS: Final = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]*)",
    "float": r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}


class _Loader(yaml.SafeLoader):
    """Reads unquoted words as YAML 1.2 does."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
        if isinstance(event, yaml.AliasEvent):
            _refuse(f"aliases (*{event.anchor}) are not allowed; write the value out", event)
        return super().compose_node(parent, index)

    def plain(self, node: yaml.Node, path: KeyPath, lines: Lines) -> Any:
        """The value of a node; the lines of its keys go into ``lines``."""
        if len(path) > MAX_DEPTH:
            _refuse(f"nested more than {MAX_DEPTH} deep", node)
        if isinstance(node, yaml.SequenceNode):
            lines |= {(*path, index): each.start_mark.line + 1 for index, each in enumerate(node.value)}
            return [self.plain(each, (*path, index), lines) for index, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return self.construct_object(node)
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse("a key must be a word, not a list or a mapping", key)
            here = (*path, key.value)
            if here in lines:
                _refuse(f"{dotted(here)} is there twice, first in line {lines[here]}; remove one of them", key)
            lines[here] = key.start_mark.line + 1
            members[key.value] = self.plain(value, here, lines)
        return members


for _tag, _pattern in _WORDS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), None)


def _refuse(problem: str, at: Any) -> None:
    raise ComposerError(None, None, problem, at.start_mark)


def parse_yaml(text: str, source: str) -> tuple[Any, Lines]:
    """The values of one YAML document and the lines of its keys.

    Args:
        text: the document.
        source: what an error is about.

    Raises:
        ConfigurationError: it is no YAML of ours.
    """
    lines: Lines = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return (None if node is None else loader.plain(node, (), lines)), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        fault = f"line {line}: {error.problem}; mend the line or the one above it"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        fault = f"this is no YAML: {' '.join(str(error).split())}"
    raise ConfigurationError([fault], source)


def read_sections(path: Path, *, hint: str = "") -> tuple[dict[str, Any], Lines]:
    """The sections of a configuration file and the lines of their keys.

    Args:
        path: of the file.
        hint: what to do when the file is not there or may not be read.

    Raises:
        ConfigurationError: it cannot be read or used.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1).removeprefix(BOM_UTF8)
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}{hint}"], str(path)) from None
    return parse_sections(raw, str(path))


def parse_sections(raw: bytes, source: str) -> tuple[dict[str, Any], Lines]:
    """As :func:`read_sections`, of the file's content.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigurationError([f"is larger than {MAX_BYTES} bytes; is it the right text?"], source)
    try:
        values, lines = parse_yaml(raw.decode(), source)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"line {line} is not UTF-8 text; save the file as UTF-8"], source) from None
    if not isinstance(values, dict | None):
        raise ConfigurationError(["must hold sections such as 'service:', not a list or a word"], source)
    return values or {}, lines


def dotted(path: KeyPath) -> str:
    """A path as a person writes it: ``sensors[0].interval_s``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the file"
