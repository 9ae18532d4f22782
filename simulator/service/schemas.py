"""Schemas of the OpenAPI document: the messages' own, tightened until "fits the schema" means "is accepted"."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from agent.wire.limits import INT_MAX, INT_MIN, QR_BYTES

Json = dict[str, Any]

REF: Final = "#/components/schemas/{model}"
_ATTRIBUTES: Final = re.compile(r"\n*Attributes:\n(?P<lines>(?: {4}.*\n?|\n)+)")
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ROLE: Final = re.compile(r":\w+:`~?([^`]+)`")
_TIME_MEMBERS: Final = re.compile(r"\w+_at|from|to|time")
_IN_WORDS: Final = {"source", "options", "metadata", "data_payload", "result", "command_payload", "payload_schema"}


class Schemas:
    """Collects the schemas of all types under ``components``."""

    def __init__(self) -> None:
        self.components: Json = {}
        self._found: dict[tuple[Any, bool], Json] = {}

    def of(self, kind: Any, *, received: bool) -> Json:
        """The schema of a type, by reference where it has a name.

        Args:
            kind: any type that pydantic knows.
            received: for a body that comes in; else for an answer.
        """
        # Nearly every answer of the document is one of a few errors, and to ask pydantic is what takes the time.
        if (kind, received) not in self._found:
            self._found[kind, received] = self._make(kind, received=received)
        return copy.deepcopy(self._found[kind, received])

    def _make(self, kind: Any, *, received: bool) -> Json:
        schema = TypeAdapter(kind).json_schema(mode="validation" if received else "serialization", ref_template=REF)
        named: Json = {name: _finish(name, found, received=received) for name, found in schema.pop("$defs", {}).items()}
        if "title" in schema and "properties" in schema:
            title = schema["title"]
            named[title] = _finish(title, schema, received=received)
            schema = {"$ref": REF.format(model=title)}
        for name, found in named.items():
            if self.components.setdefault(name, found) != found:
                raise ValueError(f"two different types are called {name}: their schemas cannot share the document")
        return schema


def list_of(item: Json) -> Json:
    """The envelope of a list."""
    return {
        "type": "object",
        "required": ["data", "next_cursor", "has_more"],
        "properties": {
            "data": {"type": "array", "items": item},
            "next_cursor": {"type": ["string", "null"], "description": "`cursor` of the next page; null on the last"},
            "has_more": {"type": "boolean"},
        },
    }


def _finish(name: str, schema: Json, *, received: bool) -> Json:
    _describe(schema)
    for part in _walk(schema):
        part.pop("title", None)
        if received and part.get("type") == "integer":
            part.setdefault("minimum", INT_MIN)
            part.setdefault("maximum", INT_MAX)
        if not received and part.get("additionalProperties") is True:
            del part["additionalProperties"]  # it is the default, and pydantic hands it down to nested types
    if not received:
        _mark_times(schema)
    tighten = _TIGHTENED.get(name)
    if tighten is not None:
        tighten(schema)
    schema["title"] = name
    return schema


def _walk(schema: Json) -> Iterator[Json]:
    """Every schema inside a schema; names of members are no schemas."""
    yield schema
    for member in schema.get("properties", {}).values():
        yield from _walk(member)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), dict):
            yield from _walk(schema[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for member in schema.get(key, ()):
            yield from _walk(member)


def _describe(schema: Json) -> None:
    """A docstring as Markdown: its ``Attributes:`` become descriptions of the members."""
    text = schema.get("description")
    if text is None:
        return
    attributes = _ATTRIBUTES.search(text)
    if attributes:
        for member, about in _ATTRIBUTE.findall(attributes["lines"]):
            if member in schema.get("properties", {}):
                # A reference may stand beside a description since OpenAPI 3.1.
                schema["properties"][member].setdefault("description", _markdown(" ".join(about.split())))
        text = text[: attributes.start()] + text[attributes.end() :]
    schema["description"] = _markdown(text.strip())


def _markdown(text: str) -> str:
    return _ROLE.sub(r"`\1`", text.replace("``", "`"))


def _mark_times(schema: Json) -> None:
    """Every time in an answer is RFC 3339 text."""
    for name, member in schema.get("properties", {}).items():
        if _TIME_MEMBERS.fullmatch(name) and name not in _IN_WORDS:
            for part in _walk(member):
                if part.get("type") == "string":
                    part.setdefault("format", "date-time")


def _without_null(schema: Json, *members: str) -> None:
    """The members can be left out, and not be null."""
    for name in members:
        member = schema["properties"][name]
        kinds = [kind for kind in member.pop("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:
            member.update(kinds[0])
        elif kinds:
            member["anyOf"] = kinds
        member.pop("default", None)


def _product_change(schema: Json) -> None:
    _without_null(schema, "name")
    schema["anyOf"] = [{"required": [name]} for name in schema["properties"]]


def _device_change(schema: Json) -> None:
    _without_null(schema, "device_name")
    schema["minProperties"] = 1


def _dashboard(schema: Json) -> None:
    schema["anyOf"] = [{"required": ["name"]}, {"required": ["widgets"]}]


def _rule_change(schema: Json) -> None:
    """Here null counts as left out, so one member that is not null must be there."""
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in schema["properties"]
    ]


def _action(schema: Json) -> None:
    """The type says which action it is, so it must be there."""
    schema["properties"]["type"].pop("default", None)
    schema["required"] = ["type", *schema["required"]]


def _scan(schema: Json) -> None:
    schema["properties"]["qr_data"] |= {"maxLength": QR_BYTES, "description": f"At most {QR_BYTES} bytes as UTF-8."}


def _vocabulary_word(schema: Json) -> None:
    schema["properties"]["payload_schema"]["description"] = "JSON Schema 2020-12 of the `command_payload`."


def _account(schema: Json) -> None:
    """Its profile is looked at together with everything else, and stands there as an object."""
    described = schema["properties"]["profile"]["description"]
    kinds = [{"$ref": REF.format(model="ProfileWanted")}, {"type": "null"}]
    schema["properties"]["profile"] = {"anyOf": kinds, "default": None, "description": described}


def _profile(schema: Json) -> None:
    schema["required"] = list(schema["properties"])


def _scripted_device(schema: Json) -> None:
    schema["properties"]["script"] = {"$ref": REF.format(model="DeviceScript")}


_TIGHTENED: Final[Mapping[str, Callable[[Json], None]]] = {
    "ProductChange": _product_change,
    "DeviceChange": _device_change,
    "RuleChange": _rule_change,
    "NewDashboard": _dashboard,
    "CommandAction": _action,
    "RecordAction": _action,
    "ScanQr": _scan,
    "NewCommandDefinition": _vocabulary_word,
    "AccountBody": _account,
    "ServerProfile": _profile,
    "ScriptedDeviceRecord": _scripted_device,
}
