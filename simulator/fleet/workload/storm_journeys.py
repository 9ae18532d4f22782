"""What each label of a storm goes through, and what has to be there in the end. Pure: choices and judgements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from simulator.fleet.record import AuditRecord, DeviceFinding, StreamAudit
from simulator.fleet.signals import DeviceRandom, salt_of

_FINDINGS_KEPT: Final = 100
_RACE: Final = salt_of("storm", "race")
_REMOVE: Final = salt_of("storm", "remove")


@dataclass(frozen=True, slots=True)
class JourneyPlan:
    """What is planned for one label: a function of seed and number alone.

    Attributes:
        number: of the label.
        identifier: of the device.
        raced: two people register it at the same moment.
        removed: its device is removed again, by two requests at once where it was raced for.
    """

    number: int
    identifier: str
    raced: bool
    removed: bool


def plan_course(seed: int, number: int, identifier: str, *, races: float, remove: float) -> JourneyPlan:
    """The course of a label.

    Args:
        seed: of the scenario.
        number: of the label.
        identifier: of the device.
        races: share of the labels that two people want, 0 to 1.
        remove: share of the devices that are removed again, 0 to 1.
    """
    chance = DeviceRandom(seed, identifier).uniform
    return JourneyPlan(number, identifier, chance(_RACE, number) < races, chance(_REMOVE, number) < remove)


@dataclass(slots=True)
class Journey:
    """One label's course as it went.

    Attributes:
        scanned: the scan named the right device.
        winners: the users whose registration was answered as theirs, each once.
        device_id: as the registration answered it.
        removals: how many removals were answered as done.
        unsure: a request got no answer through all tries, so what is there may be either.
        faults: what the service answered that it must not, one sentence each.
    """

    course: JourneyPlan
    scanned: bool = False
    winners: list[str] = field(default_factory=list)
    device_id: str = ""
    removals: int = 0
    unsure: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def is_expected_in_list(self) -> bool:
        """Whether its device must be listed in the end."""
        return bool(self.winners) and not self.removals


@dataclass(frozen=True, slots=True)
class StormTally:
    """A storm in numbers.

    Attributes:
        audit: registrations, as the audit of a stream.
        races, races_decided: labels that two people wanted, and those of them that exactly one got.
        removed: devices that were removed again.
        faults: wrong answers, by sentence.
    """

    audit: AuditRecord
    labels: int
    races: int
    races_decided: int
    removed: int
    faults: Mapping[str, int]


def judge_storm(
    journeys: Sequence[Journey], listed: Mapping[str, Iterable[str]], *, complete: bool = True
) -> StormTally:
    """Hold what the service lists in the end against what it answered on the way.

    Args:
        journeys: those that were begun.
        listed: user -> identifiers of the devices that the service lists for that user, each as often as it is listed.
        complete: every list was read to its end.
    """
    there = Counter((user, name) for user, names in listed.items() for name in names)
    times = Counter(name for (_, name), count in there.items() for _ in range(count))
    findings: list[DeviceFinding] = []
    counts: Counter[str] = Counter()

    def find(journey: Journey, kind: str) -> None:
        counts[kind] += 1
        if len(findings) < _FINDINGS_KEPT:
            findings.append(DeviceFinding(journey.device_id, journey.course.identifier, kind, 1))

    for journey in journeys:
        name = journey.course.identifier
        if len(set(journey.winners)) > 1 or times[name] > 1:
            find(journey, "doubled")
        elif journey.unsure:
            counts["ambiguous"] += 1
        elif journey.is_expected_in_list and not there[journey.winners[0], name]:
            find(journey, "altered" if times[name] else "lost")
        elif not journey.is_expected_in_list and times[name]:
            find(journey, "unknown")
    begun = {journey.course.identifier for journey in journeys}
    counts["unknown"] += sum(1 for name in times if name not in begun)
    faults = Counter(sentence for journey in journeys for sentence in journey.faults)
    stream = StreamAudit(
        sent=len(journeys),
        accepted=sum(1 for journey in journeys if journey.winners),
        stored=sum(times.values()),
        lost=counts["lost"],
        doubled=counts["doubled"],
        reordered=0,
        altered=counts["altered"],
        late=0,
        unknown=counts["unknown"],
        ambiguous=counts["ambiguous"],
    )
    races = [journey for journey in journeys if journey.course.raced]
    return StormTally(
        audit=AuditRecord(None, None, complete, (_sentence(stream),), tuple(findings), registrations=stream),
        labels=len(journeys),
        races=len(races),
        races_decided=sum(len(set(journey.winners)) == 1 for journey in races),
        removed=sum(1 for journey in journeys if journey.removals),
        faults=dict(faults.most_common()),
    )


def _sentence(stream: StreamAudit) -> str:
    return (
        f"{stream.sent:,} labels: {stream.accepted:,} registered, {stream.stored:,} listed in the end; {stream.lost:,} "
        f"lost, {stream.doubled:,} doubled, {stream.altered:,} with the wrong user, {stream.unknown:,} that should not "
        f"be there, {stream.ambiguous:,} without an answer"
    )
