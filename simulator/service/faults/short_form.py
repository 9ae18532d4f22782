"""An effect as one word, for a header and for the command line: ``lose=answer``, ``latency:min_s=1,max_s=3``, JSON."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from agent.errors import InvalidMessage
from agent.wire.json_text import parse_json
from simulator.service.errors import invalid, invalid_all, nearest
from simulator.service.faults.model import ALONE, EFFECTS, FaultEffect
from simulator.service.member_faults import list_member_faults


def read_effect(text: str, field: str) -> FaultEffect:
    """The effect that a text names.

    Args:
        text: ``name``, ``name=value``, ``name:member=value,...`` or a JSON object such as ``{"lose": "answer"}``.
        field: what errors are about.

    Raises:
        Invalid: it is none.
    """
    try:
        return FaultEffect.model_validate(_members(text.strip(), field))
    except ValidationError as exc:
        found = list_member_faults(exc, FaultEffect)
        faults = [(field if name == "body" else f"{field}: {name}", issue) for name, issue in found]
        raise invalid_all(faults) from None


def _members(text: str, field: str) -> Any:
    if text.startswith("{"):
        try:
            return parse_json(text.encode())
        except (InvalidMessage, UnicodeEncodeError) as exc:
            raise invalid(field, str(exc)) from None
    ends = [at for at in (text.find("="), text.find(":")) if at >= 0]
    name = text[: min(ends)] if ends else text
    if name not in EFFECTS:
        raise invalid(field, f"{name[:40]!r} is no effect{nearest(name, EFFECTS)}; effects: {', '.join(EFFECTS)}")
    rest = text[len(name) + 1 :]
    if not ends:
        if name not in ALONE:
            raise invalid(field, f"{name} needs a value: {name}={'request' if name in {'lose', 'reset'} else '...'}")
        return {name: True}
    if text[len(name)] == ":":
        return {name: _pairs(rest, field)}
    return {name: _value(rest)}


def _pairs(text: str, field: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        if not equals or name.strip() in members:
            raise invalid(field, f"{pair[:40]!r} must be member=value, each member once")
        members[name.strip()] = _value(value)
    return members


def _value(text: str) -> Any:
    """A number or a truth value where it reads as one, else the text."""
    text = text.strip()
    try:
        value = parse_json(text.encode())
    except (InvalidMessage, UnicodeEncodeError):
        return text
    return value if isinstance(value, int | float) else text
