"""GPS: a drive along recorded points, with latitude, longitude, heading and speed."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, Literal, Self
from xml.etree import ElementTree as ET

from pydantic import model_validator

from agent.errors import ConfigurationError
from simulator.fleet.settings import ReadingName, key
from simulator.fleet.signals.base import Individual, Shaped, millisecond_of, salt_of
from simulator.fleet.signals.kind import SignalBasis, SignalContext, register_signal
from simulator.fleet.signals.kinds.csv_replay import read_rows

_EARTH_M: Final = 6_371_008.8
"""Mean radius (IUGG)."""

_NORTH_MAX: Final = 90.0
_EAST_MAX: Final = 180.0
_FULL_TURN: Final = 360.0
_FEWEST: Final = 2
_DIGITS: Final = {"latitude": 6, "longitude": 6, "heading": 1, "speed": 2}
"""Decimals of each part of a position."""


class GpsRouteSettings(SignalBasis):
    """A drive along recorded points; gives four readings: latitude, longitude, heading and speed."""

    kind: Literal["gps_route"]
    file: str = key("GPX file, or CSV with the columns latitude and longitude", min_length=1, example="routes/van.gpx")
    speed_mps: float = key("speed along the route", unit="m/s", gt=0, le=1000, default=13.9)
    at_the_end: Literal["turn_back", "jump_to_start", "stay"] = key("what a device does there", default="turn_back")
    begin: Literal["hashed", "in_step"] = key(
        "`hashed`: each device begins somewhere on the route; `in_step`: all at the first point", default="hashed"
    )
    noise_m: float = key("standard deviation of the receiver's error, north and east", unit="m", ge=0, default=0.0)
    latitude: ReadingName = key("name of the reading with degrees north", default="latitude")
    longitude: ReadingName = key("name of the reading with degrees east", default="longitude")
    heading: ReadingName = key("name of the reading with degrees from north, clockwise", default="heading_degrees")
    speed: ReadingName = key("name of the reading with metres per second", default="speed_mps")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if len(set(self.names())) < len(self.names()):
            raise ValueError("latitude, longitude, heading and speed need four different names")
        return self

    def names(self, name: str = "") -> tuple[str, ...]:
        """The four readings."""
        return self.latitude, self.longitude, self.heading, self.speed


class RouteEnd(StrEnum):
    """What a device does at the end of its route."""

    TURN_BACK = "turn_back"
    JUMP_TO_START = "jump_to_start"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class Point:
    """A place: degrees north and east."""

    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Position:
    """Where a device is, and how it moves: degrees, degrees from north clockwise, metres per second."""

    latitude: float
    longitude: float
    heading: float
    speed: float


class Route:
    """A drive along points at a constant speed.

    Args:
        name: another one gives another chance on the same device.
        points: at least two different ones.
        speed_mps: metres per second.
        at_the_end: what happens there.
        begin_s: when a device is at the first point; None: each begins somewhere on the route.
        origin_s: when a drive begins that is made once.
        noise_m: standard deviation of the receiver's error, north and east.
    """

    def __init__(
        self,
        name: str,
        points: Sequence[Point],
        *,
        speed_mps: float,
        at_the_end: RouteEnd,
        begin_s: float | None,
        origin_s: float,
        noise_m: float = 0.0,
    ) -> None:
        self._salt = salt_of("gps_route", name)
        self._east_salt = salt_of("gps_route", name, "east")
        legs = [(a, b, distance_m(a, b)) for a, b in pairwise(points)]
        legs = [leg for leg in legs if leg[2] > 0]
        self._legs = [(a, b, length_m, heading_degrees(a, b)) for a, b, length_m in legs]
        self._ends = list(accumulate(leg[2] for leg in legs))
        self._speed_mps = speed_mps
        self._at_the_end = at_the_end
        self._begin_s = begin_s
        self._origin_s = origin_s
        self._noise_m = noise_m

    def place_at(self, device: Individual, time_s: float) -> Position:
        """Where the device is at ``time_s``."""
        length_m = self._ends[-1]
        once = self._at_the_end is RouteEnd.STAY
        if self._begin_s is not None:
            driven_m = (time_s - self._begin_s) * self._speed_mps
        else:
            ahead = device.fraction(self._salt) * (2.0 if self._at_the_end is RouteEnd.TURN_BACK else 1.0)
            driven_m = (time_s - (self._origin_s if once else 0.0)) * self._speed_mps + ahead * length_m
        speed, turned = self._speed_mps, 0.0
        if once:
            if not 0.0 <= driven_m < length_m:
                speed = 0.0
            driven_m = min(max(driven_m, 0.0), length_m)
        elif self._at_the_end is RouteEnd.TURN_BACK:
            driven_m %= 2.0 * length_m
            if driven_m > length_m:
                driven_m, turned = 2.0 * length_m - driven_m, 180.0
        else:
            driven_m %= length_m
        leg = min(bisect_right(self._ends, driven_m), len(self._legs) - 1)
        begin, end, leg_m, heading = self._legs[leg]
        part = 1.0 - (self._ends[leg] - driven_m) / leg_m
        latitude = begin.latitude + (end.latitude - begin.latitude) * part
        longitude = begin.longitude + _turn(end.longitude - begin.longitude) * part
        if self._noise_m:
            which = millisecond_of(time_s)
            degrees = math.degrees(self._noise_m / _EARTH_M)
            latitude += degrees * device.normal(self._salt, which)
            longitude += degrees * device.normal(self._east_salt, which) / max(math.cos(math.radians(latitude)), 1e-6)
        latitude = min(max(latitude, -_NORTH_MAX), _NORTH_MAX)
        return Position(latitude, _turn(longitude), (heading + turned) % _FULL_TURN, speed)


@dataclass(frozen=True, slots=True)
class RouteReading:
    """A reading of a route: latitude, longitude, speed or heading.

    Attributes:
        part: name of the member of :class:`Position`.
    """

    route: Route
    part: str

    def value_at(self, device: Individual, time_s: float) -> float:
        """What the reading of ``device`` is at ``time_s``; NaN where it has none."""
        value: float = getattr(self.route.place_at(device, time_s), self.part)
        return value


def distance_m(a: Point, b: Point) -> float:
    """Metres between two points on a sphere (haversine)."""
    north = math.radians(b.latitude - a.latitude) / 2
    east = math.radians(_turn(b.longitude - a.longitude)) / 2
    scale = math.cos(math.radians(a.latitude)) * math.cos(math.radians(b.latitude))
    return 2 * _EARTH_M * math.asin(min(1.0, math.sqrt(math.sin(north) ** 2 + scale * math.sin(east) ** 2)))


def heading_degrees(a: Point, b: Point) -> float:
    """The direction from one point to another: degrees from north, clockwise, in [0, 360)."""
    east = math.radians(_turn(b.longitude - a.longitude))
    from_north, to_north = math.radians(a.latitude), math.radians(b.latitude)
    across = math.sin(east) * math.cos(to_north)
    along = math.cos(from_north) * math.sin(to_north) - math.sin(from_north) * math.cos(to_north) * math.cos(east)
    return math.degrees(math.atan2(across, along)) % _FULL_TURN


def read_route(path: Path) -> list[Point]:
    """The points of a GPX file (track, route or way points, the first that there are), or of a CSV file.

    Raises:
        ConfigurationError: the file cannot be read, or has not two different points; the text says what it takes.
    """
    points = _read_gpx(path) if path.suffix.lower() == ".gpx" else _read_csv(path)
    if len(set(points)) < _FEWEST:
        raise ConfigurationError(["has fewer than two different points"], str(path))
    return points


def _read_gpx(path: Path) -> list[Point]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except UnicodeDecodeError:
        raise ConfigurationError(["is not UTF-8"], str(path)) from None
    if "<!" in text.replace("<!--", "").replace("<![CDATA[", ""):
        # Entities are how small files become large ones.
        raise ConfigurationError(["has a document type, which no GPX file needs"], str(path))
    try:
        document = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError as error:
        raise ConfigurationError([f"is not XML: {error}"], str(path)) from None
    for kind in ("trkpt", "rtept", "wpt"):
        found = [node for node in document.iter() if node.tag.rpartition("}")[2] == kind]
        if found:
            return [
                _point(node.get("lat", ""), node.get("lon", ""), path, f"{kind} {number}")
                for number, node in enumerate(found, 1)
            ]
    raise ConfigurationError(["has no trkpt, rtept or wpt: it is no GPX file with points"], str(path))


def _read_csv(path: Path) -> list[Point]:
    rows = read_rows(path, ["latitude", "longitude"])
    return [_point(row["latitude"], row["longitude"], path, f"line {number}") for number, row in rows]


def _point(north: str, east: str, path: Path, where: str) -> Point:
    try:
        point = Point(float(north), float(east))
    except ValueError:
        raise ConfigurationError([f"{where}: {north!r}, {east!r} are no degrees"], str(path)) from None
    if not (abs(point.latitude) <= _NORTH_MAX and abs(point.longitude) <= _EAST_MAX):
        raise ConfigurationError([f"{where}: {north}, {east} is no place on earth"], str(path))
    return point


def _turn(degrees: float) -> float:
    """The same angle in [-180, 180)."""
    return (degrees + _EAST_MAX) % _FULL_TURN - _EAST_MAX


@register_signal(GpsRouteSettings, reads_file=True)
def make_signals(name: str, settings: GpsRouteSettings, context: SignalContext) -> Mapping[str, Shaped]:
    """Make the four signals of the route that the settings describe, by reading name."""
    route = Route(
        name,
        read_route(context.folder / settings.file),
        speed_mps=settings.speed_mps,
        at_the_end=RouteEnd(settings.at_the_end),
        begin_s=context.begin_s(settings.begin),
        origin_s=context.origin_s,
        noise_m=settings.noise_m,
    )
    return {
        reading: Shaped(RouteReading(route, part), digits=digits)
        for reading, (part, digits) in zip(settings.names(), _DIGITS.items(), strict=True)
    }
