"""Faults that pydantic found, as sentences with what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from simulator.fleet.settings import DURATION_FORMS
from simulator.yaml_document import Document, Fault, KeyPath, dotted

_SHOWN: Final = 60
_KINDS: Final = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be text; put it in quotes",
    "path_type": "must be the path of a file",
    "dict_type": "must be a section with keys of its own",
    "model_type": "must be a section with keys of its own",
    "model_attributes_type": "must be a section with keys of its own",
    "tuple_type": "must be a list: begin each item with '-'",
    "list_type": "must be a list: begin each item with '-'",
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "holds a character that is not allowed here",
}


def faults_of(error: ValidationError, root: type[BaseModel], document: Document) -> list[Fault]:
    """One fault for each key, however many alternatives pydantic tried.

    Args:
        error: what pydantic found.
        root: the model of the whole document.
        document: what was validated.
    """
    raws = [(raw, _find(raw["loc"], root, document.value)) for raw in error.errors(include_url=False)]
    paths = [spot.path for _, spot in raws]
    meant = {
        (*spot.path[:-1], near)
        for raw, spot in raws
        if raw["type"] == "extra_forbidden"
        for near in _near(str(spot.path[-1]), spot.siblings)
    }
    found: dict[KeyPath, Fault] = {}
    for raw, spot in raws:
        if raw["type"] == "missing" and spot.path in meant:
            continue  # it is there, under a wrong name, which is reported
        if raw["type"] == "too_short" and any(_is_inside(path, spot.path) for path in paths):
            continue  # pydantic does not count the faulty ones, which are reported
        place = document.place_of(spot.path, key=raw["type"] == "extra_forbidden")
        found.setdefault(spot.path, Fault(place, spot.path, _sentence(raw, spot, root)))
    return list(found.values())


def _is_inside(path: KeyPath, outer: KeyPath) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


@dataclass(frozen=True, slots=True)
class _Location:
    """What a location of pydantic's means.

    Attributes:
        path: in the document.
        siblings: the keys that are known where it stands.
    """

    path: KeyPath
    siblings: tuple[str, ...]


def _find(location: tuple[int | str, ...], root: type[BaseModel], value: Any) -> _Location:
    """Leave out the steps that name an alternative of a union: they are no keys of the document."""
    path: list[str | int] = []
    models: tuple[type[BaseModel], ...] = (root,)
    siblings = _keys(models)
    for number, step in enumerate(location):
        last = number == len(location) - 1
        if _names_alternative(step, models, value, last=last):
            models = tuple(m for m in models if step in _kinds_of(m)) or models
            continue
        path.append(step)
        siblings = _keys(models)
        if isinstance(step, str) and step in siblings:  # else a name of the author's choice, such as a reading's
            models = tuple(found for model in models for found in _models_in(_annotation(model, step)))
        value = _below(value, step)
    return _Location(tuple(path), siblings)


def _names_alternative(step: int | str, models: tuple[type[BaseModel], ...], value: Any, *, last: bool) -> bool:
    if isinstance(step, int):
        return False
    if step.startswith(("(", "function-")) or step == "[key]":
        return True
    if isinstance(value, Mapping) and step in value:
        return False
    # The tag of a union: its own kind. A missing key comes last, and is a key of a model.
    return any(step in _kinds_of(model) for model in models) and not (last and step in _keys(models))


def _below(value: Any, step: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(str(step))
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return value[step]
    return None


def _kinds_of(model: type[BaseModel]) -> tuple[str, ...]:
    info = model.model_fields.get("kind")
    return tuple(kind for kind in get_args(info.annotation) if isinstance(kind, str)) if info else ()


def _keys(models: tuple[type[BaseModel], ...]) -> tuple[str, ...]:
    names = [info.alias or name for model in models for name, info in model.model_fields.items()]
    return tuple(dict.fromkeys(names))


def _annotation(model: type[BaseModel], key: str) -> Any:
    return next((info.annotation for name, info in model.model_fields.items() if key in {name, info.alias}), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _sentence(raw: Any, spot: _Location, root: type[BaseModel]) -> str:
    kind = raw["type"]
    if kind == "missing":
        return "is missing; add it"
    if kind == "extra_forbidden":
        return f"is no key of a scenario{_nearest(spot, root)}"
    if kind == "value_error":
        return str(raw["msg"]).removeprefix("Value error, ")
    if kind == "union_tag_not_found":
        return "is missing its 'kind'; add it"
    if kind == "union_tag_invalid":
        return _unknown_kind(raw)
    name = str(spot.path[-1]) if spot.path else ""
    return f"{_KINDS.get(kind) or _reworded(raw)}, not {_shown(raw['input'])}{_unit_hint(name, raw['input'])}"


def _unknown_kind(raw: Any) -> str:
    expected = re.findall(r"'([^']*)'", str(raw["ctx"]["expected_tags"]))
    return f"has no known kind {raw['ctx']['tag']!r}{_did_you_mean(str(raw['ctx']['tag']), expected)}"


def _did_you_mean(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}" if known else ""


def _reworded(raw: Any) -> str:
    if raw["type"] == "literal_error":
        return f"must be one of {raw['ctx']['expected']}"
    message = str(raw["msg"])
    for old, new in (("Input should be", "must be"), ("String should", "must"), ("Tuple should", "must")):
        message = message.replace(old, new)
    return message[:1].lower() + message[1:]


def _shown(value: Any) -> str:
    text = repr(value)
    # A secret in the wrong place must not reach a log through the complaint about it.
    if "msk_" in text or "mk_" in text:
        return "a key"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_WITH_UNIT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmM%]?)\s*(?:(?:/|per |p)\s*(?:s|sec|second))?\s*", re.ASCII)
_FACTORS: Final = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "%": 0.01}


def _unit_hint(key: str, value: Any) -> str:
    """``; write 0.5`` for ``50%``; what a duration looks like for anything else under a key in seconds."""
    if not isinstance(value, str):
        return f"; it takes {DURATION_FORMS}" if _is_duration(key) and not _is_number(value) else ""
    found = _WITH_UNIT.fullmatch(value)
    if found is None:
        return ""
    number = float(found[1]) * _FACTORS[found[2]]
    return f"; write {number:.12g}"


def _is_duration(key: str) -> bool:
    return key.endswith("_s") and not key.endswith("_per_s")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nearest(spot: _Location, root: type[BaseModel]) -> str:
    given = str(spot.path[-1])
    near = _near(given, spot.siblings)
    if near:
        return f"; did you mean {near[0]!r}?"
    homes = [path for path in all_keys(root) if path[-1] == given]
    if homes:
        return f"; it belongs to {dotted(homes[0][:-1]) or 'the top of the file'}"
    return f"; known here are {', '.join(spot.siblings)}" if spot.siblings else ""


def _near(given: str, siblings: tuple[str, ...]) -> list[str]:
    # duration or duration_ms for duration_s, pool_size for pool: the unit or a word around is what people miss.
    stem = given.rsplit("_", 1)[0]
    near = [key for key in siblings if key.startswith(f"{given}_") or key.rsplit("_", 1)[0] == stem or key == stem]
    return near[:1] or difflib.get_close_matches(given, siblings, n=1)


def all_keys(model: type[BaseModel], path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key below a model; what stands inside a list is named without an index."""
    for name, info in model.model_fields.items():
        inner = (*path, info.alias or name)
        yield inner
        for below in _models_in(info.annotation):
            yield from all_keys(below, inner)
