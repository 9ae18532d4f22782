"""The faults of a scenario: kinds, each a small class whose fields are the keys in the file.

A fault takes power or link away for some time (``away``), changes what goes over the link (``passage``, ``outgoing``,
``held_until_s``) or what sensors read (``values``), or sets the clock wrong (``clock_ahead_s``). All of it is a
function of device and time, so that every worker, and every later reader of the record, finds the same. Times are
seconds since the run's begin. A new kind is one more subclass of :class:`Fault`, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from zlib import crc32

from pydantic import Field, PrivateAttr, model_validator

from agent.core.values import Moment
from simulator.fleet.record import Span
from simulator.fleet.settings import Delay, ReadingName, Seconds, Section, Share, kinds_of, one_of
from simulator.fleet.signals import DeviceRandom, SignalSet, salt_of

NAMES_KEPT: Final = 1_000
"""How many of the devices of a fault are named in the record."""
_CENTURY_S: Final = 100 * 366 * 86_400.0
_RETRANSMIT_S: Final = 0.3
_SHARE: Final = 1 << 32  # above every checksum of a body

Values = Mapping[str, float]
Away = tuple[float, float] | None
"""Begin and end of an outage of power or link."""


class Fate(IntEnum):
    """The fate of a message on its link. Of several faults the greatest value decides."""

    ARRIVES = 0
    WRONG_KEY = 1
    """It arrives with a secret that the service does not know."""
    LOST = 2
    DOWN = 3
    """There is no link."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The fate of one message, and its additional delay."""

    fate: Fate = Fate.ARRIVES
    delay_s: float = 0.0


FREE: Final = Passage()


class Fault(Section):
    """The base of all kinds; has no effect by itself.

    Attributes:
        takes: what ``away`` takes: the ``power`` or the ``link``.
        spoils_readings: the service refuses readings because of it, as the scenario intends.
    """

    takes: ClassVar[Literal["", "power", "link"]] = ""
    spoils_readings: ClassVar[bool] = False

    kind: str
    name: str = Field(description="what the report calls it; without it, its kind", default="", max_length=64)
    at_s: Delay = Field(description="when it begins, since the run's begin")
    share: Share = Field(description="which part of the devices it concerns, by hash", default=1.0)
    duration_s: Seconds = Field(description="how long it lasts")
    _salt: bytes = PrivateAttr(b"")

    @classmethod
    def does(cls, what: str) -> bool:
        """Whether this kind overrides the method of this name."""
        return getattr(cls, what) is not getattr(Fault, what)

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.duration_s if self.duration_s else math.inf

    @property
    def title(self) -> str:
        """Its name in reports."""
        return self.name or self.kind

    def placed(self, number: int, begin_s: float) -> Self:
        """This fault as it happens in a run.

        Args:
            number: its position in the scenario, so that two of a kind choose different devices.
            begin_s: when it begins.
        """
        made = self.model_copy(update={"at_s": begin_s})
        made._salt = salt_of("fault", str(number), self.kind)
        return made

    def chooses(self, device: DeviceRandom) -> bool:
        """Whether it concerns this device."""
        # Not the cheap fraction(): values for two salts correlate, so all chosen devices would also share one moment.
        return self.share >= 1.0 or device.uniform(self._salt, _SHARE) < self.share

    def acts(self, device: DeviceRandom, time_s: float) -> bool:
        """Whether it concerns this device at this time."""
        return self.at_s <= time_s < self.end_s and self.chooses(device)

    def strikes(self, device: DeviceRandom, time_s: float, content: bytes, often: float) -> bool:
        """Whether it hits a body; the same for each resend of it."""
        return self.acts(device, time_s) and (often >= 1.0 or device.uniform(self._salt, crc32(content)) < often)

    def away(self, device: DeviceRandom, after_s: float) -> Away:
        """The first outage that ends after ``after_s``; None if there is none."""
        return None

    def passage(self, device: DeviceRandom, which: int, time_s: float, size_bytes: int) -> Passage:
        """The passage of the ``which``-th message of a device."""
        return FREE

    def values(self, device: DeviceRandom, time_s: float, values: Values, read: Callable[[float], Values]) -> Values:
        """Replaces ``values``; ``read`` gives the values at another time."""
        return values

    def clock_ahead_s(self, device: DeviceRandom, time_s: float) -> float:
        """How far it sets the device's wall clock ahead."""
        return 0.0

    def held_until_s(self, device: DeviceRandom, time_s: float) -> float:
        """No readings are sent before this time."""
        return -math.inf

    def outgoing(self, device: DeviceRandom, time_s: float, body: bytes) -> tuple[bytes, int]:
        """Replaces a body of readings; and the number of duplicates, whose answers do not matter."""
        return body, 0

    def truth(self, seed: int, names: Iterable[str]) -> Span:
        """What it does, for the record; ``names`` are those of all devices, in their order."""
        chosen = [name for index, name in enumerate(names) if self.chooses(DeviceRandom(seed, index))]
        done: dict[str, Any] = self.model_dump(mode="json", exclude={"name", "at_s", "duration_s", "kind"})
        done["devices"] = chosen[:NAMES_KEPT]
        if len(chosen) > NAMES_KEPT:
            done["devices_not_named"] = len(chosen) - NAMES_KEPT
        return Span(self.title, self.kind, self.at_s, self.end_s, len(chosen), done)


# --- power ------------------------------------------------------------------------------------------------------------


class RebootLoop(Fault):
    """Devices restart again and again, each at its own point of the turn."""

    takes = "power"
    kind: Literal["reboot_loop"]
    up_s: Seconds = Field(description="how long they run", default=15.0)
    down_s: Seconds = Field(description="how long they are gone", default=5.0)

    def away(self, device: DeviceRandom, after_s: float) -> Away:
        if not self.chooses(device):
            return None
        turn_s = self.up_s + self.down_s
        first_s = self.at_s - device.fraction(self._salt) * turn_s
        turn = math.floor((max(after_s, self.at_s) - first_s) / turn_s)
        # By rounding the division may give the turn that has just ended.
        for end_s in (first_s + (turn + 1) * turn_s, first_s + (turn + 2) * turn_s):
            off_s, on_s = max(end_s - self.down_s, self.at_s), min(end_s, self.end_s)
            if max(off_s, after_s) < on_s:
                return off_s, on_s
        return None


class RollingRestart(Fault):
    """Every device restarts once, each at its own moment of the fault."""

    takes = "power"
    kind: Literal["rolling_restart"]
    away_s: Seconds = Field(description="how long a restart takes", default=5.0)

    def away(self, device: DeviceRandom, after_s: float) -> Away:
        away_s = min(self.away_s, self.duration_s)  # the last one is back at the fault's end
        turn = device.uniform(salt_of("fault", "rolling_restart", "turn"), 0)
        off_s = self.at_s + (self.duration_s - away_s) * turn
        return (off_s, off_s + away_s) if self.chooses(device) and off_s + away_s > after_s else None


# --- links ------------------------------------------------------------------------------------------------------------


class Blackout(Fault):
    """No link until it is over; the devices' clocks, sensors and memory go on."""

    takes = "link"
    kind: Literal["blackout"]
    recovery_s: Delay = Field(description="over how long links come back, each at a hashed moment", default=0.0)

    @property
    def end_s(self) -> float:
        """When the last one is back."""
        return self.at_s + self.duration_s + self.recovery_s

    def away(self, device: DeviceRandom, after_s: float) -> Away:
        late_s = self.recovery_s * device.uniform(salt_of("fault", "blackout", "back"), 0)
        back_s = self.at_s + self.duration_s + late_s
        return (self.at_s, back_s) if self.chooses(device) and back_s > after_s else None


class _Waves(Fault):
    """All devices lose something at once and get it back at once, in one or more waves."""

    waves: Annotated[int, Field(ge=1, le=1000)] = Field(description="how many times, evenly over the fault", default=1)
    away_s: Seconds = Field(description="how long each wave keeps them away", default=1.0)

    def away(self, device: DeviceRandom, after_s: float) -> Away:
        every_s = self.duration_s / self.waves
        away_s = min(self.away_s, every_s)
        wave = max(math.floor((after_s - away_s - self.at_s) / every_s) + 1, 0)
        begin_s = self.at_s + wave * every_s
        return (begin_s, begin_s + away_s) if self.chooses(device) and wave < self.waves else None


class PowerCut(_Waves):
    """Devices lose their power: what was not committed is gone."""

    takes = "power"
    kind: Literal["power_cut"]


class DisconnectStorm(_Waves):
    """Links go down."""

    takes = "link"
    kind: Literal["disconnect_storm"]


@dataclass(frozen=True, slots=True)
class LinkKind:
    """One kind of link.

    Attributes:
        delay_s: round-trip time, and up to ``jitter_s`` longer.
        bits_per_s: upstream bandwidth.
        loss: the share of messages that TCP has to retransmit.
        dead: the share of messages that end their connection.
    """

    delay_s: float
    jitter_s: float
    bits_per_s: float
    loss: float = 0.0
    dead: float = 0.0


# 2G (EDGE) and 3G as the network profiles of Chromium's developer tools, the satellite as a geostationary one, bad
# Wi-Fi as 5 % of loss, of which TCP makes delays and sometimes a dead connection.
PROFILES: Final[Mapping[str, LinkKind]] = {
    "2g": LinkKind(0.3, 0.1, 35_000, 0.02, 0.002),
    "3g": LinkKind(0.1, 0.03, 330_000, 0.005),
    "bad_wifi": LinkKind(0.02, 0.05, 1_000_000, 0.05, 0.01),
    "satellite": LinkKind(0.54, 0.02, 1_000_000, 0.005),
}


class LinkProfile(Fault):
    """These devices have a link of this profile until it is over."""

    kind: Literal["link_profile"]
    profile: Literal["2g", "3g", "bad_wifi", "satellite"] = Field(description="what kind of link")

    def passage(self, device: DeviceRandom, which: int, time_s: float, size_bytes: int) -> Passage:
        """Delayed by distance, bandwidth and what TCP sends again; or lost."""
        if not self.acts(device, time_s):
            return FREE
        profile = PROFILES[self.profile]
        delay_s = profile.delay_s + size_bytes * 8 / profile.bits_per_s
        delay_s += profile.jitter_s * device.uniform(salt_of("fault", "link_profile", "jitter"), which)
        chance = device.uniform(salt_of("fault", "link_profile", "retransmit"), which)
        if chance < profile.dead:
            return Passage(Fate.LOST)
        return Passage(delay_s=delay_s + _RETRANSMIT_S if chance < profile.dead + profile.loss else delay_s)


class RevokedKeys(Fault):
    """The service answers 401 to these devices until it is over: they speak with a key that is not valid."""

    kind: Literal["revoked_keys"]

    def passage(self, device: DeviceRandom, which: int, time_s: float, size_bytes: int) -> Passage:
        return Passage(Fate.WRONG_KEY) if self.acts(device, time_s) else FREE


# --- bodies -----------------------------------------------------------------------------------------------------------


class Duplicates(Fault):
    """Bodies of readings are sent more than once.

    They have the idempotency key of the first: a service with ``idempotency-key`` stores them once.
    """

    kind: Literal["duplicates"]
    often: Share = Field(description="which part of the bodies, by hash", default=0.1)
    copies: Annotated[int, Field(ge=1, le=100)] = Field(description="how many more of each", default=1)

    def outgoing(self, device: DeviceRandom, time_s: float, body: bytes) -> tuple[bytes, int]:
        return body, self.copies if self.strikes(device, time_s, body, self.often) else 0


class LateBatches(Fault):
    """Readings are sent only once every ``hold_s``, each device at its own moment."""

    kind: Literal["late_batches"]
    hold_s: Seconds = Field(description="how long readings are kept back", default=600.0)

    def held_until_s(self, device: DeviceRandom, time_s: float) -> float:
        if not self.acts(device, time_s):
            return -math.inf
        phase = device.fraction(self._salt)
        turn = math.floor((time_s - self.at_s) / self.hold_s + phase) + 1
        return min(self.at_s + (turn - phase) * self.hold_s, self.end_s)


class BrokenJson(Fault):
    """The end of bodies of readings is missing."""

    spoils_readings = True
    kind: Literal["broken_json"]
    often: Share = Field(description="which part of the bodies, by hash", default=0.05)

    def outgoing(self, device: DeviceRandom, time_s: float, body: bytes) -> tuple[bytes, int]:
        if not self.strikes(device, time_s, body, self.often):
            return body, 0
        end = 1 + int(device.uniform(salt_of("fault", "broken_json", "end"), crc32(body)) * (len(body) - 1))
        return body[: min(end, len(body) - 1)], 0


# --- readings and clocks ----------------------------------------------------------------------------------------------


class FrozenSensor(Fault):
    """Readings keep the values of the fault's begin."""

    kind: Literal["frozen_sensor"]
    readings: tuple[ReadingName, ...] = Field(description="which readings; without it, all", default=())

    def values(self, device: DeviceRandom, time_s: float, values: Values, read: Callable[[float], Values]) -> Values:
        """The values when the fault began."""
        if not self.acts(device, time_s):
            return values
        then = read(self.at_s)
        names = self.readings or tuple(values)
        return {name: then.get(name, value) if name in names else value for name, value in values.items()}


class ClockSkew(Fault):
    """Wall clocks are off while it lasts."""

    kind: Literal["clock_skew"]
    offset_s: Delay = Field(
        description="most that a clock is off, either way; each by a hashed part of it", default=60.0
    )

    def clock_ahead_s(self, device: DeviceRandom, time_s: float) -> float:
        if not self.acts(device, time_s):
            return 0.0
        return self.offset_s * (2.0 * device.fraction(self._salt) - 1.0)


class ClockJump(Fault):
    """Wall clocks jump, and jump back where ``duration_s`` is given."""

    kind: Literal["clock_jump"]
    jump_s: float = Field(description="how far; below 0 it is back in time", ge=-_CENTURY_S, le=_CENTURY_S)
    duration_s: Delay = Field(description="after so long it jumps back; 0: never", default=0.0)

    @model_validator(mode="after")
    def _check_jump(self) -> Self:
        if not self.jump_s:
            raise ValueError("jump_s is 0: the clock stays where it is")
        return self

    def clock_ahead_s(self, device: DeviceRandom, time_s: float) -> float:
        return self.jump_s if self.acts(device, time_s) else 0.0


# --- all of them ------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    AnyFault = Fault
    AnyLinkFault = Fault
else:
    AnyFault = one_of(kinds_of(Fault))
    """One fault of a scenario."""
    AnyLinkFault = one_of(kind for kind in kinds_of(Fault) if kind.takes == "link" or kind.does("passage"))
    """One of the network, which requests without devices behind them meet too."""


def count_concerned(faults: Sequence[Fault], seed: int, devices: int) -> list[int]:
    """How many devices each fault of a scenario concerns, exactly."""
    if all(fault.share >= 1 for fault in faults):
        return [devices] * len(faults)
    fleet = [DeviceRandom(seed, index) for index in range(devices)]
    return [sum(map(fault.placed(number, 0.0).chooses, fleet)) for number, fault in enumerate(faults)]


class ActiveFaults:
    """Applies a run's faults to its devices: readings, clocks, bodies and messages.

    Times in and out are on the worker's monotonic clock.

    Args:
        began_s: the run's begin.
        origin_s: the same, seconds since the epoch.
        faults: see :meth:`set`.
    """

    def __init__(self, began_s: float = 0.0, origin_s: float = 0.0, faults: Iterable[Fault] = ()) -> None:
        self.began_s = began_s
        self.origin_s = origin_s
        self.set(faults)

    def set(self, faults: Iterable[Fault]) -> None:
        """Use these faults, present and future, in the order in which they are applied; each is placed."""
        found = tuple(faults)
        self._clocks = [fault for fault in found if fault.does("clock_ahead_s")]
        self._values = [fault for fault in found if fault.does("values")]
        self._holds = [fault for fault in found if fault.does("held_until_s")]
        self._bodies = [fault for fault in found if fault.does("outgoing")]
        self.links = [fault for fault in found if fault.does("passage")]

    def moment(self, device: DeviceRandom, now: Moment) -> Moment:
        """The current time by the device's own wall clock."""
        time_s = now.monotonic_s - self.began_s
        ahead_s = sum(fault.clock_ahead_s(device, time_s) for fault in self._clocks)
        return Moment(now.monotonic_s, now.wall_s + ahead_s, now.boot_id) if ahead_s else now

    def read(self, device: DeviceRandom, signals: SignalSet, now: Moment) -> dict[str, float]:
        """The current values of the device's sensors."""
        time_s = now.monotonic_s - self.began_s

        def read(then_s: float) -> Values:
            return signals.read(device, self.origin_s + then_s)

        values = read(time_s)
        for fault in self._values:
            values = fault.values(device, time_s, values, read)
        return dict(values)

    def held_until_s(self, device: DeviceRandom, now: Moment) -> float:
        """No readings are sent before this."""
        time_s = now.monotonic_s - self.began_s
        return self.began_s + max((fault.held_until_s(device, time_s) for fault in self._holds), default=-math.inf)

    def outgoing(self, device: DeviceRandom, now: Moment, content: bytes) -> tuple[bytes, int]:
        """The bytes that go out instead, and the number of duplicates; a spoiled body has none."""
        time_s = now.monotonic_s - self.began_s
        body, copies = content, 0
        for fault in self._bodies:
            body, more = fault.outgoing(device, time_s, body)
            copies += more
        return body, copies if body == content else 0

    def passage(self, device: DeviceRandom, which: int, now_s: float, size_bytes: int) -> Passage:
        """The fate and delay of the device's next message."""
        found = [fault.passage(device, which, now_s - self.began_s, size_bytes) for fault in self.links]
        return Passage(max(each.fate for each in found), sum(each.delay_s for each in found)) if found else FREE

    def has_link_fault(self, device: DeviceRandom, now_s: float) -> bool:
        """Whether a fault of the link acts on the device now."""
        return any(fault.acts(device, now_s - self.began_s) for fault in self.links)
