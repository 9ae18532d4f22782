"""YAML as JSON values, with the place of every key and value, for scenarios and seeds: whoever complains names a line.

Only what JSON could say is taken: no aliases (a few of them stand for gigabytes), no tags, no dates, no NaN, no key
twice. Words follow YAML 1.2: ``on``, ``yes`` and ``1:30`` are text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 40
_DIGITS_MAX: Final = 40
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

KeyPath = tuple[str | int, ...]
"""Keys and indices from the document's root to a value."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands; both begin at 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something wrong with a document.

    Attributes:
        path: the key that it concerns; empty for the document as a whole.
        issue: one sentence.
    """

    place: Place
    path: KeyPath = field(compare=False)
    issue: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place), dotted(self.path), self.issue)))


@dataclass(slots=True)
class Document:
    """A document and where its parts stand.

    Attributes:
        value: JSON values.
        keys: where each key stands; items of lists by their index.
        values: where each value begins.
        faults: what YAML could say and JSON could not.
    """

    value: Any = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def place_of(self, path: KeyPath, *, key: bool = False) -> Place:
        """Where a value (or its key) stands; of what is nearest around it when it is not there."""
        for end in range(len(path), -1, -1):
            where = self.keys if key or end < len(path) else self.values
            found = where.get(path[:end]) or self.values.get(path[:end])
            if found is not None:
                return found
        return Place(1, 1)

    def take(self, node: yaml.Node, path: KeyPath = ()) -> Any:
        """The value of a node, whose place and faults are noted."""
        self.values[path] = _place(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.keys[(*path, index)] = _place(item.start_mark)
            return [self.take(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._complain(key, path, "a key must be a word")
                continue
            name = self._text(key, path)
            inner = (*path, name)
            if name in made:
                self._complain(key, inner, "is there twice; remove one")
            else:
                self.keys[inner] = _place(key.start_mark)
                made[name] = self.take(value, inner)
        if node.tag != "tag:yaml.org,2002:map":
            self._complain(node, path, f"the tag {node.tag} is not taken: remove it")
        return made

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text = str(node.value)
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "str":
                return self._text(node, path)
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float" as kind:
                return self._number(node, path, text.replace("_", ""), kind)
        self._complain(node, path, f"the tag {node.tag} is not taken: remove it")
        return text

    def _text(self, node: yaml.Node, path: KeyPath) -> str:
        # JSON writes what lies beyond 16 bits as a pair of them.
        text = str(node.value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if "\x00" in text or _SURROGATE.search(text):
            self._complain(node, path, "holds a character that JSON text cannot")
            return ""
        return text

    def _number(self, node: yaml.Node, path: KeyPath, text: str, kind: str) -> Any:
        if len(text) <= _DIGITS_MAX:
            try:
                number = int(text) if kind == "int" else float(text)
            except ValueError:  # an explicit tag on something else
                number = math.nan
            if math.isfinite(number):
                return number
        self._complain(node, path, "must be a finite number of a sensible length")
        return 0

    def _complain(self, node: yaml.Node, path: KeyPath, issue: str) -> None:
        self.faults.append(Fault(_place(node.start_mark), path, issue))


def dotted(path: KeyPath) -> str:
    """The path of a key, such as ``fleet.models[0].share``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class _Loader(yaml.SafeLoader):
    """The words of YAML 1.2's core schema."""


_WORDS: Final = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN"),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _WORDS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_first))
_Loader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile("^$")))


def read_document(raw: bytes, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> Document:
    """The document of a YAML text.

    Args:
        raw: the text.
        bytes_max: how long it may be.
        depth_max: how many lists and mappings may stand within each other.

    Returns:
        The document; with ``value`` None and one fault where it is no YAML at all, without one where it is empty.
    """
    if len(raw) > bytes_max:
        return _broken(Place(1, 1), f"is larger than {bytes_max} bytes")
    try:
        complaint = _refuse_expansion(raw, depth_max)
        root = None if complaint else yaml.compose(raw, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return _broken(_place(mark), f"is not YAML: {error.problem or error.context}")
    except (yaml.YAMLError, ValueError) as error:
        return _broken(_place_of_character(raw, error), "is not YAML: it holds characters that are not allowed")
    if complaint is not None:
        return Document(faults=[complaint])
    document = Document()
    if root is not None:
        document.value = document.take(root)
    return document


def _refuse_expansion(raw: bytes, depth_max: int) -> Fault | None:
    depth = 0
    for event in yaml.parse(raw, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > depth_max:  # the composer's time grows with the square of the depth
            return Fault(_place(event.start_mark), (), "is nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            return Fault(_place(event.start_mark), (), f"the alias *{event.anchor} is not taken: write it out")
    return None


def _broken(place: Place, issue: str) -> Document:
    return Document(faults=[Fault(place, (), issue)])


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)


def _place_of_character(raw: bytes, error: Exception) -> Place:
    position = getattr(error, "position", None)
    before = raw[:position] if isinstance(position, int) else b""
    return Place(before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1)
