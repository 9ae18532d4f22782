"""Signals out of a product: what its devices would measure, by its tables and its vocabulary.

Three sources, the first that says anything about a reading wins:

1. ``tables`` of the product (as ``POST /database/tables`` takes them; columns may have ``min``, ``max`` and ``unit``),
2. ``metadata.readings``: names, each with ``min``, ``max`` and ``unit`` where they are known,
3. the vocabulary: numbers that a command sets (``set_temperature`` with ``temperature``) are measured, too.

A reading's name decides what it looks like: temperature goes up and down with the day, a battery falls, a door is open
or shut. What has no such name walks between its bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent.core.values import JsonObject
from agent.errors import ConfigurationError
from agent.wire.base import describe_faults
from simulator.fleet.signals.registry import SignalMap, SignalSettings
from simulator.wire.products import NewProduct

_NUMBERS: Final = frozenset({"number", "integer", "boolean"})
_NOT_MEASURED: Final = re.compile(r"(^|_)(ids?|count|number|serial|version|timeout|ttl|seconds|interval_s)$|_at$|^id_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SETTER: Final = re.compile(r"^(set|adjust|change|target)_")
NO_SIGNALS: Final = "what the product measures"
"""Source of the errors here."""

_DAY_PART: Final = 0.12
_WALK_PART: Final = 0.0008
_DIGITS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """One thing that a product's devices measure.

    Attributes:
        type: ``number``, ``integer`` or ``boolean``.
        low, high: its bounds, where they are known.
    """

    name: str
    type: str = "number"
    low: float | None = None
    high: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class _Suggestion:
    """What readings of some names look like.

    Attributes:
        kind: of the signal.
        low, high: usual values, for bounds that are not known.
        start: where a walk begins and a day has its middle.
    """

    kind: str
    low: float
    high: float
    start: float
    unit: str | None = None


_SUGGESTIONS: Final[Sequence[tuple[re.Pattern[str], _Suggestion]]] = tuple(
    (re.compile(pattern), look)
    for pattern, look in (
        (r"temp.*(_f$|fahrenheit)", _Suggestion("diurnal", 50, 90, 70, "fahrenheit")),
        (r"temp", _Suggestion("diurnal", 10, 32, 21, "celsius")),
        (r"humid|moisture", _Suggestion("random_walk", 0, 100, 45, "percent")),
        (r"batter.*volt|^v_?bat", _Suggestion("battery", 3.0, 4.2, 4.2, "volt")),
        (r"batter|charge", _Suggestion("battery", 5, 100, 100, "percent")),
        (r"^lat(itude)?$|_lat(itude)?$", _Suggestion("latitude", -90, 90, 52.52, "degrees")),
        (r"^(lon|lng)(gitude)?$|_(lon|lng)(gitude)?$", _Suggestion("longitude", -180, 180, 13.405, "degrees")),
        (r"pressure|baro", _Suggestion("random_walk", 950, 1050, 1013, "hPa")),
        (r"co2|ppm", _Suggestion("random_walk", 400, 2000, 700, "ppm")),
        (r"rssi|signal|dbm", _Suggestion("random_walk", -95, -40, -67, "dBm")),
        (r"lux|light|illumin|solar", _Suggestion("diurnal", 0, 1000, 400, "lux")),
        (
            r"open|door|valve|motion|occup|alarm|leak|contact|running|active|enabled|^on$",
            _Suggestion("markov", 0, 1, 0),
        ),
        (r"speed|velocity", _Suggestion("random_walk", 0, 30, 10, "m/s")),
        (r"power|watt", _Suggestion("random_walk", 0, 2000, 300, "watt")),
        (r"volt", _Suggestion("random_walk", 220, 240, 230, "volt")),
        (r"current|amp", _Suggestion("random_walk", 0, 16, 2, "ampere")),
    )
)

_PLAIN: Final = _Suggestion("random_walk", 0, 100, 50)
_CLIMATE: Final[Mapping[str, JsonObject]] = {
    "temperature_celsius": {"kind": "random_walk", "start": 21.0, "step": 0.09, "unit": "celsius"},
    "humidity_percent": {"kind": "random_walk", "start": 45.0, "step": 0.16, "min": 0.0, "max": 100.0},
    "battery_percent": {"kind": "battery"},
    "signal_dbm": {"kind": "random_walk", "start": -67.0, "step": 0.35, "digits": 0, "unit": "dBm"},
}
"""The climate node's own: for products that say nothing of what they measure."""

_SIGNALS: Final[TypeAdapter[dict[str, SignalSettings]]] = TypeAdapter(SignalMap)


def signals_of_product(product: NewProduct) -> dict[str, SignalSettings]:
    """The signals of a product's devices, by reading name; the climate node's where the product has none.

    Raises:
        ConfigurationError: its tables or ``metadata.readings`` cannot be read.
    """
    found: dict[str, Measured] = {}
    for measured in (*_in_tables(product), *_in_metadata(product), *_in_vocabulary(product)):
        found.setdefault(measured.name, measured)
    if not found:
        return _SIGNALS.validate_python(dict(_CLIMATE))
    return signals_of_readings(found.values())


def signals_of_readings(readings: Iterable[Measured]) -> dict[str, SignalSettings]:
    """A signal for each reading, guessed by its name.

    Raises:
        ConfigurationError: the bounds of a reading cannot be kept.
    """
    documents = {measured.name: _signal(measured) for measured in readings}
    try:
        return _SIGNALS.validate_python(documents)
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], NO_SIGNALS) from None


def _signal(measured: Measured) -> JsonObject:
    look = next((look for pattern, look in _SUGGESTIONS if pattern.search(measured.name.lower())), _PLAIN)
    if measured.type == "boolean":
        look = _Suggestion("markov", 0, 1, 0)
    low = look.low if measured.low is None else measured.low
    high = look.high if measured.high is None else measured.high
    if high <= low:  # one bound is known, and beyond what is usual
        low, high = (
            (low, low + (look.high - look.low)) if measured.high is None else (high - (look.high - look.low), high)
        )
    start = look.start if low < look.start < high else (low + high) / 2
    digits = 0 if measured.type != "number" else max(0, min(_DIGITS_MAX, 3 - math.floor(math.log10(high - low))))
    shape: JsonObject = {"min": low, "max": high, "digits": digits, "unit": measured.unit or look.unit}
    width = high - low
    match look.kind:
        case "diurnal":
            noise = width / 200
            return {"kind": "diurnal", "mean": start, "amplitude": width * _DAY_PART, "noise": noise, **shape}
        case "battery":
            return {"kind": "battery", "full": high, "empty": low, "digits": digits, "unit": shape["unit"]}
        case "markov":
            states = {"no": {"value": low, "stay_s": 900}, "yes": {"value": high, "stay_s": 60}}
            return {"kind": "markov", "states": states, **shape}
        case "latitude" | "longitude":
            shape["digits"] = _DIGITS_MAX
            return {"kind": "random_walk", "start": start, "step": 2e-6, "spread": min(0.05, width / 10), **shape}
        case _:
            return {"kind": "random_walk", "start": start, "step": width * _WALK_PART, "spread": width / 50, **shape}


def _in_tables(product: NewProduct) -> Iterator[Measured]:
    tables = (product.model_extra or {}).get("tables")
    for number, table in enumerate(_list_of_objects(tables, "tables")):
        for column in _list_of_objects(table.get("columns"), f"tables[{number}].columns"):
            yield from _of_column(column)


def _in_metadata(product: NewProduct) -> Iterator[Measured]:
    readings = (product.metadata or {}).get("readings")
    if readings is None:
        return
    if isinstance(readings, Mapping):
        readings = [{"name": name, **(about if isinstance(about, Mapping) else {})} for name, about in readings.items()]
    if isinstance(readings, list):
        readings = [{"name": entry} if isinstance(entry, str) else entry for entry in readings]
    for entry in _list_of_objects(readings, "metadata.readings"):
        yield from _of_column({"type": "number", **entry})


def _in_vocabulary(product: NewProduct) -> Iterator[Measured]:
    for command in product.commands or ():
        if not _SETTER.match(command.name):
            continue
        properties = (command.payload_schema or {}).get("properties")
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
            if isinstance(schema, Mapping) and str(schema.get("type")) in _NUMBERS:
                about = {"min": schema.get("minimum"), "max": schema.get("maximum"), "type": schema["type"]}
                yield from _of_column({"name": _SETTER.sub("", str(name)), **about})


def _of_column(column: Mapping[str, Any]) -> Iterator[Measured]:
    name, kind = str(column.get("name", "")), column.get("type")
    if str(kind) in _NUMBERS and _NAME.fullmatch(name) and not _NOT_MEASURED.search(name.lower()):
        unit = column.get("unit")
        yield Measured(
            name, str(kind), _bound(column.get("min")), _bound(column.get("max")), str(unit) if unit else None
        )


def _bound(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else None


def _list_of_objects(value: Any, where: str) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise ConfigurationError([f"{where} has to be a list of objects, each with a name"], NO_SIGNALS)
    return value
