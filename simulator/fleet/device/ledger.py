"""The ledger of a virtual device: what it did, written down outside of what is being proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simulator.fleet.audit.readings import ReadingAccount, ReadingFact

_FAULTS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Effect:
    """One run of a handler.

    Attributes:
        attempt: 1 for the first run of this command.
        at_s: when it began, epoch seconds.
    """

    command_id: str
    handler: str
    attempt: int
    at_s: float


@dataclass(slots=True)
class DeviceLedger:
    """Everything one device sent, and what came back. It outlives the device's restarts.

    A reading is written down under the millisecond that it carries, once it is first sent.

    Attributes:
        device_id: the service's id.
        name: for a person.
        effects: handlers' runs, each written down before the work begins.
        requests, failures: how many requests were made, and how many got no good answer.
        faults: the last sentences about failures, newest last, at most ten.
    """

    device_id: str
    name: str
    effects: list[Effect] = field(default_factory=list)
    requests: int = 0
    failures: int = 0
    faults: list[str] = field(default_factory=list)
    _facts: dict[int, ReadingFact] = field(default_factory=dict)
    _times: set[int] = field(default_factory=set)
    _accepted: set[int] = field(default_factory=set)
    _refused: set[int] = field(default_factory=set)

    def take(self, key: int, fact: ReadingFact) -> int:
        """Write down a reading that is about to be sent for the first time.

        Args:
            key: the outbox's.
            fact: the reading under its millisecond.

        Returns:
            The millisecond that it gets: the next free one, when another reading of this device has it already.
        """
        recorded_ms = fact.key
        while recorded_ms in self._times:
            recorded_ms += 1
        self._times.add(recorded_ms)
        self._facts[key] = ReadingFact(recorded_ms, fact.values)
        return recorded_ms

    def recorded_ms(self, key: int) -> int | None:
        """The millisecond of a reading that was sent before; None when it never was."""
        fact = self._facts.get(key)
        return None if fact is None else fact.key

    def settle(self, delivered: Iterable[int], refused: Iterable[int]) -> None:
        """The service answered: these outbox keys it has stored, these it refused for good."""
        self._accepted.update(delivered)
        self._refused.update(refused)

    def fault(self, sentence: str) -> None:
        """Write down a failure."""
        self.failures += 1
        self.faults.append(sentence)
        del self.faults[:-_FAULTS_KEPT]

    @property
    def accepted(self) -> int:
        """How many readings the service answered with 2xx."""
        return len(self._accepted)

    def readings(self) -> Mapping[int, Mapping[str, float]]:
        """Every reading that was ever sent: millisecond -> values."""
        return {fact.key: fact.values for fact in self._facts.values()}

    def runs(self) -> Counter[str]:
        """Command id -> how often a handler began its effect."""
        return Counter(effect.command_id for effect in self.effects)

    def account(self, stored: tuple[ReadingFact, ...]) -> ReadingAccount:
        """Both sides of this device's readings, for the audit."""
        unsure = self._facts.keys() - self._accepted - self._refused
        return ReadingAccount(
            device=self.name,
            accepted=tuple(self._facts[key] for key in sorted(self._accepted)),
            stored=stored,
            unsure=frozenset(self._facts[key].key for key in unsure),
        )
