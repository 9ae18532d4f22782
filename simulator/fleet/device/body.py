"""The parts of one living device that its channels share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent.core.values import Moment
from simulator.fleet.device.chance import Chance
from simulator.fleet.device.known_time import KnownTime
from simulator.fleet.device.vocabulary import Surroundings
from simulator.fleet.signals.base import Individual

if TYPE_CHECKING:
    from simulator.fleet.device.exchange import Speaker
    from simulator.fleet.device.fast_path import KnownAnswers
    from simulator.fleet.device.lanes import Lanes
    from simulator.fleet.device.model import DeviceModel, Fleetwide
    from simulator.fleet.device.store import Disk


VERSION: Final = "firmware"
"""The setting on the disk that holds the version after an update."""


class Body:
    """One life of one device, without its channels.

    Attributes:
        index: in the fleet.
        speaker: who it is for the service.
        model: what it is.
        fleet: what it has in common with all others.
        disk: what it remembers.
        chance: its random numbers; they go on over restarts.
        individual: identifies its signals.
        time: what it knows of the service's clock.
        known_answers: bodies that need not be parsed.
        lanes: its handlers at work; None while there never was a command.
        began_s: when this life began, on the monotonic clock.
    """

    __slots__ = (
        "began_s",
        "chance",
        "disk",
        "fleet",
        "index",
        "individual",
        "known_answers",
        "lanes",
        "model",
        "speaker",
        "time",
    )

    def __init__(
        self,
        index: int,
        speaker: Speaker,
        model: DeviceModel,
        fleet: Fleetwide,
        disk: Disk,
        *,
        chance: Chance,
        known_answers: KnownAnswers,
        now: Moment,
    ) -> None:
        self.index = index
        self.speaker = speaker
        self.model = model
        self.fleet = fleet
        self.disk = disk
        self.chance = chance
        self.known_answers = known_answers
        self.time = KnownTime()
        self.individual = Individual.at(fleet.seed, index)
        self.lanes: Lanes | None = None
        self.began_s = now.monotonic_s

    def run_s(self, now: Moment) -> float:
        """Seconds since the run's begin, as the audit's ledger counts them."""
        return now.monotonic_s - self.fleet.began_s

    def values(self, now: Moment) -> dict[str, float]:
        """The values of its sensors now, by reading name."""
        around = self.fleet.environment
        if around is not None:
            return around.values(self.individual, self.model, now)
        return self.model.signals.read(self.individual, now.wall_s)

    def around(self, now: Moment) -> Surroundings:
        """What a handler may see."""
        return Surroundings(
            device_id=self.speaker.device_id,
            now=now,
            values=self.values(now),
            interval_s=self.model.interval_s,
            version=self._version(now),
            firmware=self.model.nature.firmware if self.model.nature is not None else None,
        )

    def _version(self, now: Moment) -> str:
        """Of its firmware: what an update left on the disk, else what it left the factory with."""
        nature, around = self.model.nature, self.fleet.environment
        factory = nature.firmware.factory_version(self.individual) if nature and nature.firmware else ""
        version = self.disk.journal.settings.get(VERSION, factory)
        return version if around is None else around.version(self.individual, version, now)
