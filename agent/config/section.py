"""The base of every section of the configuration, and the types of its keys."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from agent.wire.address import read_host

Seconds = Annotated[float, Field(gt=0, le=31 * 86400)]
Host = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(read_host)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


def key(what: str, *, unit: str | None = None, why: str | None = None, example: Any = None, **rules: Any) -> Any:
    """A field with its documentation; ``rules`` go to :func:`pydantic.Field` (``default``, ``ge``, ...)."""
    extra: JsonDict = {name: value for name, value in (("unit", unit), ("why", why)) if value is not None}
    if example is not None:
        rules["examples"] = [example]
    return Field(description=what, json_schema_extra=extra or None, **rules)


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a file; each key with description, default, ``unit`` and ``why``."""
    schema = model.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


class Section(BaseModel):
    """The base of all sections: frozen, and an unknown key is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def is_this_machine(host: str) -> bool:
    """True for names and addresses that never leave this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
