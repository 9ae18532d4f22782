"""The kinds of faults: twelve small classes, each with its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from simulator.fleet.faults.base import DeviceFault, FaultBasis, LastingBasis, checksum, register_fault
from simulator.fleet.faults.link import FREE, ForeignAnswer, LinkFault, LinkPassage
from simulator.fleet.models.condition import Condition, cut_power, shift_clock
from simulator.fleet.models.fault_hooks import Body, Read, Values
from simulator.fleet.settings import Delay, ReadingName, Seconds, Share, key
from simulator.fleet.signals.base import Individual, period_at, salt_of


class FrozenSensorSettings(LastingBasis):
    """Readings stand still."""

    kind: Literal["frozen_sensor"]
    readings: tuple[ReadingName, ...] = key("which readings; without it, all", default=())


@register_fault(FrozenSensorSettings)
class FrozenSensor(DeviceFault[FrozenSensorSettings]):
    """Applies :class:`FrozenSensorSettings` to the devices of one run."""

    def values(self, device: Individual, time_s: float, values: Values, read: Read) -> Values:
        """What was read when the fault began."""
        if not self.acts(device, time_s):
            return values
        then = read(self.begin_s)
        names = self.settings.readings or tuple(values)
        return {name: then.get(name, value) if name in names else value for name, value in values.items()}


class RebootLoopSettings(LastingBasis):
    """Devices restart again and again."""

    kind: Literal["reboot_loop"]
    up_s: Seconds = key("how long they run", unit="s", default=15.0)
    down_s: Seconds = key("how long they are gone", unit="s", default=5.0)


@register_fault(RebootLoopSettings)
class RebootLoop(DeviceFault[RebootLoopSettings]):
    """Applies :class:`RebootLoopSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """Up and down by turns, each device at its own point of the turn."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        settings = self.settings
        phase = device.fraction(salt_of("reboot_loop", self.salt.hex()))
        turn = period_at(time_s, settings.up_s + settings.down_s, phase, self.begin_s)
        return cut_power(condition, time_s, turn.begin_s + settings.up_s, min(turn.end_s, self.end_s))


_TURN = salt_of("fault", "rolling_restart", "turn")


class RollingRestartSettings(LastingBasis):
    """Every device restarts once, each at its own moment of the fault."""

    kind: Literal["rolling_restart"]
    away_s: Seconds = key("how long a restart takes", unit="s", default=5.0)


@register_fault(RollingRestartSettings)
class RollingRestart(DeviceFault[RollingRestartSettings]):
    """Applies :class:`RollingRestartSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The device's condition: without power for a while from its own turn on."""
        if not self.chooses(device):
            return condition
        away_s = min(self.settings.away_s, self.settings.duration_s)  # the last one is back at the fault's end
        off_s = self.begin_s + (self.settings.duration_s - away_s) * device.uniform(_TURN, 0)
        return cut_power(condition, time_s, off_s, off_s + away_s)


_MILLION: Final = 1e6


class ClockSkewSettings(LastingBasis):
    """Wall clocks are off while it lasts."""

    kind: Literal["clock_skew"]
    offset_s: Delay = key("most that a clock is off, either way; each by a hashed part of it", unit="s", default=60.0)
    drift_ppm: float = key(
        "most that a clock gains or loses, in millionths; each a hashed part of it", ge=0, le=500_000, default=0.0
    )


@register_fault(ClockSkewSettings, sets_clocks=True)
class ClockSkew(DeviceFault[ClockSkewSettings]):
    """Applies :class:`ClockSkewSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The device's condition meanwhile: a wrong clock."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        offset = 2.0 * device.fraction(salt_of("clock_skew", "offset", self.salt.hex())) - 1.0
        drift = 2.0 * device.fraction(salt_of("clock_skew", "drift", self.salt.hex())) - 1.0
        return shift_clock(
            condition,
            self.settings.offset_s * offset,
            drift=self.settings.drift_ppm / _MILLION * drift,
            since_s=self.begin_s,
        )


_CENTURY_S = 100 * 366 * 86_400.0


class ClockJumpSettings(FaultBasis):
    """Wall clocks jump, and jump back where ``duration_s`` is given."""

    kind: Literal["clock_jump"]
    jump_s: float = key("how far; below 0 it is back in time", unit="s", ge=-_CENTURY_S, le=_CENTURY_S, example=-3600.0)
    duration_s: Delay = key("after so long it jumps back; 0: never", unit="s", default=0.0)

    @model_validator(mode="after")
    def _check_jump(self) -> Self:
        if not self.jump_s:
            raise ValueError("jump_s is 0: the clock stays where it is")
        return self


@register_fault(ClockJumpSettings, sets_clocks=True)
class ClockJump(DeviceFault[ClockJumpSettings]):
    """Applies :class:`ClockJumpSettings` to the devices of one run."""

    def condition(self, device: Individual, time_s: float, condition: Condition) -> Condition:
        """The clock after the jump."""
        condition = self.bounded(device, time_s, condition)
        if not self.acts(device, time_s):
            return condition
        return shift_clock(condition, self.settings.jump_s, since_s=self.begin_s)


class DuplicatesSettings(LastingBasis):
    """Bodies of readings are sent again, although they arrived.

    A copy with the same idempotency key is answered and stored once by a service with ``idempotency-key``. One with a
    key of its own is a new reading for every service: an audit has to find it doubled.
    """

    kind: Literal["duplicates"]
    often: Share = key("which part of the bodies, by hash", default=0.1)
    copies: Annotated[int, Field(ge=1, le=100)] = key("how many more of each", default=1)
    delay_s: Delay = key("how long after the first, and after each other", unit="s", default=0.0)
    idempotency_key: Literal["same", "fresh"] = key("whether a copy has the key of the first", default="same")


@register_fault(DuplicatesSettings)
class Duplicates(DeviceFault[DuplicatesSettings]):
    """Applies :class:`DuplicatesSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body and its copies."""
        settings = self.settings
        if not self.acts(device, time_s) or not self.happens(device, checksum(body.content), settings.often):
            return (body,)
        same = settings.idempotency_key == "same"
        copies = [
            Body(body.content, body.delay_s + number * settings.delay_s, same_key=same)
            for number in range(1, settings.copies + 1)
        ]
        return (body, *copies)


class LateBatchesSettings(LastingBasis):
    """Nothing is handed over but once in ``hold_s``."""

    kind: Literal["late_batches"]
    hold_s: Seconds = key("how long readings are kept back", unit="s", default=600.0)
    together: bool = key("all devices hand over in the same moment; else each at its own", default=False)


@register_fault(LateBatchesSettings)
class LateBatches(DeviceFault[LateBatchesSettings]):
    """Applies :class:`LateBatchesSettings` to the devices of one run."""

    def held_until(self, device: Individual, time_s: float, until_s: float) -> float:
        """The next moment at which something may be handed over."""
        if not self.acts(device, time_s):
            return until_s
        hold_s = self.settings.hold_s
        phase = 0.0 if self.settings.together else device.fraction(self.salt)
        next_s = period_at(time_s, hold_s, phase, self.begin_s).end_s
        return max(until_s, min(next_s, self.end_s))


class BrokenJsonSettings(LastingBasis):
    """Bodies of readings are spoiled on their way out."""

    kind: Literal["broken_json"]
    often: Share = key("which part of the bodies, by hash", default=0.05)
    how: Literal["cut", "bytes", "utf16", "python"] = key(
        "`cut`: the end is missing; `bytes`: a byte is no UTF-8; `utf16`: another encoding; `python`: quotes as "
        "Python's `str()` writes them",
        default="cut",
    )


@register_fault(BrokenJsonSettings, makes_refusals=True)
class BrokenJson(DeviceFault[BrokenJsonSettings]):
    """Applies :class:`BrokenJsonSettings` to the devices of one run."""

    def bodies(self, device: Individual, time_s: float, body: Body) -> Sequence[Body]:
        """The body that is sent instead: broken JSON."""
        which = checksum(body.content)
        if not self.acts(device, time_s) or not self.happens(device, which, self.settings.often):
            return (body,)
        place = int(device.uniform(salt_of("broken_json", self.salt.hex()), which) * (len(body.content) - 1)) + 1
        return (replace(body, content=self._broken(body.content, place)),)

    def _broken(self, content: bytes, place: int) -> bytes:
        match self.settings.how:
            case "cut":
                return content[: min(place, len(content) - 1)]
            case "bytes":
                return content[:place] + b"\xff" + content[place:]
            case "utf16":
                return content.decode("utf-8", errors="replace").encode("utf-16")
            case "python":
                return content.replace(b'"', b"'")


_BACK = salt_of("fault", "blackout", "back")


class BlackoutSettings(LastingBasis):
    """No link until it is over; the devices' clocks, sensors and memory go on."""

    kind: Literal["blackout"]
    recovery_s: Delay = key("over how long links come back, each at a hashed moment", unit="s", default=0.0)


@register_fault(BlackoutSettings)
class Blackout(LinkFault[BlackoutSettings]):
    """Applies :class:`BlackoutSettings` to the devices of one run."""

    def __init__(self, settings: BlackoutSettings, origin_s: float, number: int = 0) -> None:
        super().__init__(settings, origin_s, number)
        self.end_s += settings.recovery_s  # the last one is back

    def away(self, device: Individual) -> Sequence[tuple[float, float]]:
        """When the device is off: from the begin until its own moment of the recovery."""
        if not self.chooses(device):
            return ()
        back_s = self.begin_s + self.settings.duration_s + self.settings.recovery_s * device.uniform(_BACK, 0)
        return [(self.begin_s, back_s)]


class DisconnectStormSettings(LastingBasis):
    """Links go down in one instant and are up again in one instant."""

    kind: Literal["disconnect_storm"]
    waves: Annotated[int, Field(ge=1, le=1000)] = key("how many times, evenly over the fault", default=1)
    away_s: Seconds = key("how long each wave keeps them away", unit="s", default=1.0)


@register_fault(DisconnectStormSettings)
class DisconnectStorm(LinkFault[DisconnectStormSettings]):
    """Applies :class:`DisconnectStormSettings` to the devices of one run."""

    def away(self, device: Individual) -> Sequence[tuple[float, float]]:
        """When the device is disconnected: once in each wave."""
        if not self.chooses(device):
            return ()
        every_s = self.settings.duration_s / self.settings.waves
        begins = [self.begin_s + wave * every_s for wave in range(self.settings.waves)]
        return [(begin_s, begin_s + min(self.settings.away_s, every_s)) for begin_s in begins]


_JITTER = salt_of("fault", "link_profile", "jitter")
_RETRANSMIT = salt_of("fault", "link_profile", "retransmit")
_RETRANSMIT_S: Final = 0.3
_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of link.

    Attributes:
        one_way_s: how long a packet is on its way.
        jitter_s: up to so much longer.
        bits_per_s: of the way up.
        loss: the part of the packets that TCP has to send again.
        dead: the part of the requests whose connection dies of it.
    """

    one_way_s: float
    jitter_s: float
    bits_per_s: float
    loss: float = 0.0
    dead: float = 0.0


# 2G (EDGE) and 3G as the network profiles of Chromium's developer tools, the satellite as a geostationary one, bad
# Wi-Fi as 5 % of loss, of which TCP makes delays and sometimes a dead connection.
PROFILES: Final = MappingProxyType(
    {
        "2g": Profile(0.15, 0.1, 35_000, 0.02, 0.002),
        "3g": Profile(0.05, 0.03, 330_000, 0.005),
        "bad_wifi": Profile(0.01, 0.05, 1_000_000, 0.05, 0.01),
        "satellite": Profile(0.27, 0.02, 1_000_000, 0.005),
        "captive_portal": Profile(0.005, 0.005, 10_000_000),
    }
)
_PORTAL: Final = ForeignAnswer(
    302,
    ((b"location", b"http://portal.example/sign-in"), (b"content-type", b"text/html"), (b"content-length", b"0")),
    b"",
)


class LinkProfileSettings(LastingBasis):
    """These devices have such a link until it is over."""

    kind: Literal["link_profile"]
    profile: Literal["2g", "3g", "bad_wifi", "satellite", "captive_portal"] = key("what kind of link")
    more_loss: Share = key("loss beside the profile's own", default=0.0)
    more_delay_s: Annotated[Delay, Field(le=60)] = key(
        "delay beside the profile's own, each way", unit="s", default=0.0
    )


@register_fault(LinkProfileSettings)
class LinkProfile(LinkFault[LinkProfileSettings]):
    """Applies :class:`LinkProfileSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """Delayed by distance, bandwidth and what TCP sends again; or answered by the portal."""
        if not self.acts(device, time_s):
            return FREE
        settings, profile = self.settings, PROFILES[self.settings.profile]
        out_s = profile.one_way_s + settings.more_delay_s + size_bytes * _BITS / profile.bits_per_s
        out_s += profile.jitter_s * device.uniform(_JITTER, which)
        if settings.profile == "captive_portal":
            return LinkPassage(out_s=out_s, foreign=_PORTAL)
        chance = device.uniform(_RETRANSMIT, which)
        loss = profile.loss + settings.more_loss
        if chance < profile.dead:
            return LinkPassage(out_s=out_s, request_lost=True)
        if chance < profile.dead + loss:
            out_s += _RETRANSMIT_S
        return LinkPassage(out_s=out_s, back_s=profile.one_way_s + settings.more_delay_s)


_WRONG = LinkPassage(wrong_key=True)


class RevokedKeysSettings(LastingBasis):
    """The service answers 401 to these devices until it is over: they speak with a key that is not valid."""

    kind: Literal["revoked_keys"]


@register_fault(RevokedKeysSettings)
class RevokedKeys(LinkFault[RevokedKeysSettings]):
    """Applies :class:`RevokedKeysSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """With a wrong key."""
        del which, size_bytes
        return _WRONG if self.acts(device, time_s) else FREE
