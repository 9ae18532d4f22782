"""The configuration as text: a commented YAML file, and a JSON Schema. Both are made from the models alone."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.config.commands import HandlerConfig
from agent.config.model import AgentConfig, SensorConfig

_WIDTH: Final = 110
_HEAD: Final = (
    "Configuration of device-agent. Every key is here with its default; a line that begins with '#' and a key is the "
    "default or an example. What the command update_config changed goes before this file, and environment variables "
    "before both: DEVICE_AGENT_SERVICE__BASE_URL sets service.base_url. Secrets never stand here: they are in files of "
    "mode 600 or in systemd credentials. Check it with: device-agent check --config THIS_FILE"
)
_EXAMPLES: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    "handlers": (HandlerConfig, "read_sensors"),
    "sensors": (SensorConfig, ""),
}
# Also those that only other readers of YAML (version 1.1) take for booleans.
_WORDS_WITH_A_MEANING: Final = frozenset({"true", "false", "null", "on", "off", "yes", "no", "y", "n"})
_EXECUTABLE_EXAMPLE: Final = """\
# open_valve:
#   argv: [/usr/local/bin/valve, --open]
"""


def json_schema(model: type[BaseModel] = AgentConfig, title: str = "device-agent configuration") -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file; each key with description, default, ``unit`` and ``why``."""
    schema = model.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def commented_file(values: Mapping[str, Any], model: type[BaseModel] = AgentConfig, head: str = _HEAD) -> str:
    """A configuration file with these values and every other key at its default, commented.

    Args:
        values: nested like the file; what is not given is shown at its default.
        model: of the whole file.
        head: what stands on top.
    """
    lines = [*_comment(head, 0), ""]
    for name, info in model.model_fields.items():
        lines += [*_field(name, info, values, 0), ""]
    return "\n".join(lines).rstrip() + "\n"


def _field(name: str, info: FieldInfo, values: Mapping[str, Any], depth: int) -> list[str]:
    pad = "  " * depth
    lines = _comment(_explanation(info), depth)
    model = _section(info)
    if model is not None:
        inner: list[str] = []
        for child, child_info in model.model_fields.items():
            inner += _field(child, child_info, values.get(name) or {}, depth + 1)
        if name not in values and _default(info) is None and not info.is_required():
            # The whole section may be missing: it is shown, and none of it counts.
            return [*lines, *(f"# {line}" for line in [f"{pad}{name}:", *inner])]
        if all(line.lstrip().startswith("#") for line in inner):
            # Nothing in it counts, and YAML takes a name alone for null.
            return [*lines, f"{pad}# {name}:", *inner]
        return [*lines, f"{pad}{name}:", *inner]
    if name in _EXAMPLES or name == "executables":
        return [*lines, *_open_section(name, values.get(name), depth)]
    value = values[name] if name in values else _default(info)
    if value is not None:
        return [*lines, f"{pad}{name}: {_yaml(value)}"]
    example = (info.examples or ["..."])[0]
    return [*lines, f"{pad}# {name}: {_yaml(example)}"]


def _open_section(name: str, value: Any, depth: int) -> list[str]:
    """A section whose items the user names: what is given, then one item with every key as a comment."""
    pad = "  " * depth
    if name == "executables":
        example = _EXECUTABLE_EXAMPLE.splitlines()
    else:
        model, item_name = _EXAMPLES[name]
        body: list[str] = []
        for child, info in model.model_fields.items():
            body += _item_field(child, info, 1)
        head = f"# {item_name}:" if item_name else "# -"
        example = [head, *body]
    written = [f"{pad}{name}:"] if value else [f"{pad}{name}: {'[]' if name == 'sensors' else '{}'}"]
    for item in value or []:
        entries = iter(item.items())
        first_key, first_value = next(entries)
        written.append(f"{pad}  - {first_key}: {_yaml(first_value)}")
        written += [f"{pad}    {key}: {_yaml(entry)}" for key, entry in entries]
    return [*written, *(f"{pad}  {line}" for line in example)]


def _item_field(name: str, info: FieldInfo, depth: int) -> list[str]:
    pad = "#" + "  " * depth + " "
    explanation = [f"{pad}# {line}" for line in textwrap.wrap(_explanation(info), _WIDTH - 10)]
    model = _section(info)
    if model is not None:
        inner: list[str] = []
        for child, child_info in model.model_fields.items():
            inner += _item_field(child, child_info, depth + 1)
        return [*explanation, f"{pad}{name}:", *inner]
    value = _default(info)
    shown = (info.examples or [None])[0] if value is None else value
    return [*explanation, f"{pad}{name}: {_yaml(shown)}"]


def _section(info: FieldInfo) -> type[BaseModel] | None:
    alternatives = get_args(info.annotation) if isinstance(info.annotation, UnionType) else (info.annotation,)
    for annotation in alternatives:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
    return None


def _default(info: FieldInfo) -> Any:
    if info.is_required():
        return None
    default = info.get_default(call_default_factory=True, validated_data={})
    return list(default) if isinstance(default, tuple) else default


def _explanation(info: FieldInfo) -> str:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    parts = [info.description or ""]
    if extra.get("why"):
        parts.append(str(extra["why"]))
    choices = _choices(info.annotation)
    if choices:
        parts.append(f"One of: {', '.join(choices)}.")
    if info.is_required():
        parts.append("Required.")
    elif _section(info) is None and _default(info) not in (None, {}, []):
        unit = f" {extra['unit']}" if extra.get("unit") else ""
        parts.append(f"Default: {_yaml(_default(info))}{unit}.")
    elif extra.get("unit"):
        parts.append(f"Unit: {extra['unit']}.")
    return " ".join(parts)


def _choices(annotation: Any) -> list[str]:
    """The words that a key takes, and what else it takes, as words; empty for one that takes no fixed words."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    alternatives = get_args(annotation) if isinstance(annotation, UnionType) or get_origin(annotation) is Union else ()
    words = [word for each in alternatives if get_origin(each) is Literal for word in _choices(each)]
    if words and any(get_origin(each) in {list, tuple} for each in alternatives):
        words.append("a list of words")
    return words


def _comment(text: str, depth: int) -> list[str]:
    pad = "  " * depth
    return [f"{pad}# {line}" for line in textwrap.wrap(text, _WIDTH - len(pad))]


def _yaml(value: Any) -> str:
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    # JSON is YAML, and its quoting leaves nothing to guess; plain words need none.
    if (
        isinstance(value, str)
        and value
        and value.replace("-", "").replace("_", "").isalnum()
        and not value[0].isdigit()
    ):
        return json.dumps(value) if value in _WORDS_WITH_A_MEANING else value
    return json.dumps(value, ensure_ascii=False)
