"""pydantic's errors as sentences to act on: the key, its line, what is wrong, what to write.

Of the configuration, and of settings and payloads of plug-ins.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from agent.config.yaml_file import KeyPath, dotted

_SHOWN_CHARACTERS: Final = 60
_NAME_CHARACTERS: Final = 200
_EXAMPLES: Final = {
    "service.base_url": "set it to the service's address, such as https://api.example.com",
    "device.device_id": "set it to the id that the service gave this device when it was registered",
    "device": "add a section 'device:' with device_id",
}


def sentences(
    error: ValidationError,
    model: type[BaseModel],
    lines: Mapping[KeyPath, int] = {},
    origins: Mapping[KeyPath, str] = {},
    *,
    shows_values: bool = True,
) -> list[str]:
    """One sentence for each fault, in the order of the keys; alternatives of one key give one sentence.

    Args:
        error: what pydantic found.
        model: of the whole, for the valid keys.
        lines: where in the file each key stands.
        origins: what has set a key that does not come from the file: an environment variable, a command.
        shows_values: False where a value may be somebody's secret.
    """
    found: dict[KeyPath, str] = {}
    for fault in error.errors(include_url=False):
        # A union adds the name of the alternative it tried ("float", "dict[str,float]"): no key of the file.
        path = tuple(step for step in fault["loc"] if isinstance(step, int) or not _is_alternative(step))
        shown = f", not {_shown(fault['input'])}" if shows_values else ""
        found.setdefault(path, _sentence(path, place_of(path, lines, origins), fault, model, shown))
    return list(found.values())


def place_of(path: KeyPath, lines: Mapping[KeyPath, int], origins: Mapping[KeyPath, str]) -> str:
    """Where a key was set, in brackets; empty when that is not known."""
    for end in range(len(path), 0, -1):
        if path[:end] in origins:
            return f" (from {origins[path[:end]]})"
    if path in lines:
        return f" (line {lines[path]})"
    return f" (section in line {lines[path[:-1]]})" if path[:-1] in lines else ""


def _is_alternative(step: str) -> bool:
    return step in {"float", "int"} or step.startswith(("dict[", "constrained-", "function-", "literal["))


def _sentence(path: KeyPath, where: str, fault: Any, model: type[BaseModel], shown: str) -> str:
    name, kind = dotted(path)[:_NAME_CHARACTERS], fault["type"]
    if kind == "missing":
        return f"{name}{where} is missing; {_EXAMPLES.get(name, 'add it')}"
    if kind == "extra_forbidden":
        return f"{name}{where} is no key that this version knows{nearest(name, _keys_of(model))}"
    text = str(fault["msg"]).partition(", unable to")[0]
    if kind == "value_error":
        text = text.removeprefix("Value error, ")
        # What a section's own check says begins with the full name of the key already.
        is_named = not path or (len(path) == 1 and "." in text.split(" ", 1)[0])
        return f"{text}{where}" if is_named else f"{name}{where}: {text}"
    text = text.replace("Input should be", "must be").replace("String should", "must").replace("Value should", "must")
    return f"{name}{where} {text}{shown}"


def _shown(value: Any) -> str:
    text = repr(value)
    # A secret in the wrong place must not reach the log through the complaint about it.
    if "msk_" in text or "mk_" in text:
        return "a key"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'service.base_url'?)``; empty when no known name is near this one."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _keys_of(annotation: Any, before: str = "") -> Iterator[str]:
    """Every key of a section, and of those in it, with dots."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        for part in get_args(annotation):
            yield from _keys_of(part, before)
        return
    for name, field in annotation.model_fields.items():
        yield before + name
        yield from _keys_of(field.annotation, f"{before}{name}.")
