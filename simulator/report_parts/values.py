"""What a report shows, as values. Times are seconds since the run began, unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """How a thing is coloured."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    PLAIN = "plain"
    ACCENT = "accent"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the headline.

    Attributes:
        value: as it is shown.
        label: what it counts.
        note: one more thing to know about it.
    """

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the story's timeline.

    Attributes:
        actor: who did it, such as ``service`` or a device's name.
    """

    at_s: float
    actor: str
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Claim:
    """A proof as the report shows it; ``inconclusive``: it neither held nor failed."""

    name: str
    held: bool
    expected: str
    found: str
    details: tuple[str, ...] = ()
    inconclusive: bool = False


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One command of the table and of the lanes.

    Attributes:
        payload: its JSON text.
        outcome: the result or the error, one line.
        created_s, delivered_s, completed_s: when; None when it never happened.
        as_expected: whether it ended as it had to.
    """

    device: str
    title: str
    payload: str
    status: str
    outcome: str
    created_s: float
    delivered_s: float | None
    completed_s: float | None
    as_expected: bool

    @property
    def total_s(self) -> float | None:
        """Seconds from the order to the result."""
        return None if self.completed_s is None else self.completed_s - self.created_s


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a device was off."""

    device: str
    from_s: float
    to_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line in plots and lanes."""

    at_s: float
    label: str


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: pairs of seconds and value, ascending in time."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same time.

    Attributes:
        crowd: many like lines, of which none matters more: drawn thin, in one colour.
    """

    title: str
    unit: str
    series: tuple[Series, ...]
    digits: int = 1
    crowd: bool = False

    @property
    def summary(self) -> str:
        """What the chart says in words, for who cannot see it."""
        values = [value for line in self.series for _, value in line.points]
        if not values:
            return "no readings"
        low, high, mean = min(values), max(values), sum(values) / len(values)
        form = f"{{:,.{self.digits}f}}"
        unit = f" {self.unit}" if self.unit else ""
        spread = f"{form.format(low)} to {form.format(high)}{unit}, mean {form.format(mean)}"
        return f"{len(values):,} readings, {spread}"


@dataclass(frozen=True, slots=True)
class DeviceCard:
    """One device with its label.

    Attributes:
        kind: ``real agent`` or ``virtual``.
        label_png: the label's picture.
    """

    name: str
    identifier: str
    device_id: str
    kind: str
    state: str
    readings: int
    commands: int
    label_png: bytes


@dataclass(frozen=True, slots=True)
class DemoStory:
    """Everything that the demo's report shows.

    Attributes:
        began_at: RFC 3339.
        machine: one line about where it ran.
    """

    held: bool
    began_at: str
    duration_s: float
    machine: str
    version: str
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    events: tuple[Event, ...]
    marks: tuple[Mark, ...]
    outages: tuple[Outage, ...]
    charts: tuple[Chart, ...]
    commands: tuple[CommandRow, ...]
    devices: tuple[DeviceCard, ...]
    files: tuple[tuple[str, str], ...]
