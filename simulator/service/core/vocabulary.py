"""``--validate-commands``: a payload against its product's command vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from agent.wire.base import JsonObject
from simulator.service.errors import invalid, invalid_all

NAMED_BY: Final = "command"
"""The member of a payload that names the command."""

_NOTHING_FETCHED: Final[Registry[Any]] = Registry()


def check_payload(vocabulary: Sequence[Mapping[str, Any]], payload: JsonObject) -> None:
    """Refuse a payload that the vocabulary does not have. An empty vocabulary takes all.

    Raises:
        Invalid: naming each fault.
    """
    if not vocabulary:
        return
    name = payload.get(NAMED_BY)
    known = {definition["name"]: definition for definition in vocabulary}
    if not isinstance(name, str) or name not in known:
        raise invalid(f"command_payload.{NAMED_BY}", f"must be a command of this product: {', '.join(known)}")
    schema = known[name].get("payload_schema")
    if schema is None:
        return
    validator = Draft202012Validator(schema, registry=_NOTHING_FETCHED)
    try:
        faults = [
            (".".join(["command_payload", *map(str, error.absolute_path)]), error.message[:200])
            for error in validator.iter_errors(payload)
        ]
    except Unresolvable as exc:
        raise invalid("command_payload", f"the product's payload_schema for {name!r} points nowhere: {exc}") from None
    if faults:
        raise invalid_all(faults)
