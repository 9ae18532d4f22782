"""pydantic's errors as sentences to act on: the key, its line, what is wrong, what to write."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from agent.config.text import KeyPath, dotted

_SHOWN_CHARACTERS: Final = 60
_EXAMPLES: Final = {
    "service.base_url": "set it to the service's address, such as https://api.example.com",
    "device.device_id": "set it to the id that the service gave this device when it was registered",
    "service": "add a section 'service:' with base_url",
    "device": "add a section 'device:' with device_id",
}
_KINDS: Final = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be text; put it in quotes",
    "path_type": "must be the path of a file or directory",
    "dict_type": "must be a section with keys of its own",
    "model_type": "must be a section with keys of its own",
    "model_attributes_type": "must be a section with keys of its own",
    "tuple_type": "must be a list: begin each item with '-'",
    "list_type": "must be a list: begin each item with '-'",
    "finite_number": "must be a finite number",
}


def sentences(
    error: ValidationError, model: type[BaseModel], lines: Mapping[KeyPath, int], origins: Mapping[KeyPath, str]
) -> list[str]:
    """One sentence for each fault, in the order of the keys; alternatives of one key give one sentence.

    Args:
        error: what pydantic found.
        model: of the whole configuration, for the valid keys.
        lines: where in the file each key stands.
        origins: which environment variable set which key.
    """
    found: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        path = _real_path(fault["loc"], fault["type"])
        where = _where(path, lines, origins)
        found.setdefault(dotted(path), _sentence(path, where, fault, model))
    return list(found.values())


def _real_path(location: tuple[int | str, ...], kind: str) -> KeyPath:
    # A union adds the name of the alternative it tried ("float", "dict[str,float]"): no key of the file.
    path = tuple(step for step in location if isinstance(step, int) or not _is_alternative(step))
    return path if path or kind == "value_error" else location


def _is_alternative(step: str) -> bool:
    return step in {"float", "int", "[key]"} or step.startswith(("dict[", "constrained-", "function-"))


def _where(path: KeyPath, lines: Mapping[KeyPath, int], origins: Mapping[KeyPath, str]) -> str:
    for end in range(len(path), 0, -1):
        if path[:end] in origins:
            return f" (from {origins[path[:end]]})"
    if path in lines:
        return f" (line {lines[path]})"
    parent = path[:-1]
    return f" (section in line {lines[parent]})" if parent in lines else ""


def _sentence(path: KeyPath, where: str, fault: Any, model: type[BaseModel]) -> str:
    name, kind = dotted(path), fault["type"]
    if kind == "missing":
        return f"{name}{where} is missing; {_EXAMPLES.get(name, 'add it')}"
    if kind == "extra_forbidden":
        return f"{name}{where} is no key that this agent knows{nearest_key(path, model)}"
    if kind == "value_error":
        text = str(fault["msg"]).removeprefix("Value error, ")
        # What a section's own check says begins with the full name of the key already.
        named = not path or (len(path) == 1 and "." in text.split(" ", 1)[0])
        return f"{text}{where}" if named else f"{name}{where}: {text}"
    text = _KINDS.get(kind) or _reworded(fault)
    return f"{name}{where} {text}, not {_shown(fault['input'])}"


def _reworded(fault: Any) -> str:
    message = str(fault["msg"])
    if fault["type"] == "literal_error":
        return f"must be one of {fault['ctx']['expected']}"
    if fault["type"] == "string_pattern_mismatch":
        return "holds a character that is not allowed here"
    return (
        message.replace("Input should be", "must be").replace("String should", "must").replace("Value should", "must")
    )


def _shown(value: Any) -> str:
    text = repr(value)
    # A secret in the wrong place must not reach the log through the complaint about it.
    if "msk_" in text or "mk_" in text:
        return "a key"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def nearest_key(path: KeyPath, root: type[BaseModel]) -> str:
    """``; did you mean 'x'?`` or where such a key belongs; empty when nothing is near."""
    known = list(_fields_at(path[:-1], root))
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    homes = [
        dotted((section, str(path[-1]))) for section in root.model_fields if path[-1] in _fields_at((section,), root)
    ]
    if homes:
        return f"; it belongs under {homes[0]}"
    return f"; known here: {', '.join(known)}" if known else ""


def _fields_at(path: KeyPath, root: type[BaseModel]) -> list[str]:
    model: Any = root
    for step in path:
        if isinstance(step, int):
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
        info = model.model_fields.get(step)
        if info is None:
            continue  # a name inside a mapping, such as a handler's
        model = _model_in(info.annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)
