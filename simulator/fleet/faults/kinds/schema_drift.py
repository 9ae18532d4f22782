"""Readings that are suddenly called something else, are of another type, gone, or new: firmware that was not announced.

New names are valid, and a service takes them. Values of another type are not: a service refuses the reading (400, or an
entry of the batch's ``errors``), and the device sets it aside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Self

from pydantic import model_validator

from simulator.fleet.faults.base import DeviceFault, LastingBasis, register_fault
from simulator.fleet.faults.json_body import close_body, open_body
from simulator.fleet.models.fault_hooks import Body, Read, Values
from simulator.fleet.settings import ReadingName, key
from simulator.fleet.signals.base import Individual

_RETYPED: Final[dict[str, Callable[[Any], Any]]] = {
    "text": str,
    "object": lambda value: {"value": value},
    "array": lambda value: [value],
    "null": lambda _: None,
    "boolean": bool,
}


class SchemaDriftSettings(LastingBasis):
    """Readings change their names or types."""

    kind: Literal["schema_drift"]
    rename: dict[ReadingName, ReadingName] = key("old name: new name", default_factory=dict)
    drop: tuple[ReadingName, ...] = key("readings that are gone", default=())
    add: dict[ReadingName, float] = key("readings that are new, and their value", default_factory=dict)
    retype: dict[ReadingName, Literal["text", "object", "array", "null", "boolean"]] = key(
        "readings that are no numbers any more, and what they are instead", default_factory=dict
    )

    @model_validator(mode="after")
    def _check_something(self) -> Self:
        if not (self.rename or self.drop or self.add or self.retype):
            raise ValueError("give at least one of rename, drop, add, retype")
        return self


@register_fault(SchemaDriftSettings, makes_refusals=True)
class SchemaDrift(DeviceFault[SchemaDriftSettings]):
    """Applies :class:`SchemaDriftSettings` to the devices of one run."""

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """The readings under their new names."""
        if not self.acts(device, time_s):
            return values
        settings = self.settings
        kept = {settings.rename.get(name, name): value for name, value in values.items() if name not in settings.drop}
        return {**kept, **settings.add}

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body with values of other types."""
        opened = open_body(body.content) if self.settings.retype and self.acts(device, time_s) else None
        if opened is None:
            return (body,)
        readings, array = opened
        changed = False
        for reading in readings:
            values = reading["sensor_data"]
            for name, kind in self.settings.retype.items():
                if name in values:
                    values[name] = _RETYPED[kind](values[name])
                    changed = True
        if not changed:
            return (body,)
        return (dataclasses.replace(body, content=close_body(readings, array=array)),)
