"""What every part of a scenario is built from: frozen, checked, and documented key by key for the JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

Share = Annotated[float, Field(ge=0, le=1)]
"""A part of the whole: 0.25 is a quarter."""

Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]
"""A duration above 0, at most a year."""

Delay = Annotated[float, Field(ge=0, le=366 * 86_400)]
"""A duration that may be 0."""

ReadingName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
"""What a reading is called in ``sensor_data``, such as ``temperature_celsius``."""


def key(what: str, *, unit: str | None = None, why: str | None = None, example: Any = None, **rules: Any) -> Any:
    """A field with its documentation; ``rules`` go to :func:`pydantic.Field` (``default``, ``ge``, ...)."""
    extra: JsonDict = {name: value for name, value in (("unit", unit), ("why", why)) if value is not None}
    if example is not None:
        rules["examples"] = [example]
    return Field(description=what, json_schema_extra=extra or None, **rules)


class Section(BaseModel):
    """The base of all sections: frozen, and an unknown key is a fault."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True, use_attribute_docstrings=False
    )
