"""The ledgers of a small fleet: what each device did, in memory.

For a demo and for tests, where every reading is looked at. A run of any size keeps its ledger on a disk
(:mod:`simulator.fleet.audit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.fleet.audit.ledger import CommandEvent, Ledger, ReadingEvent
from simulator.fleet.device.model import Exchange, Observer
from simulator.fleet.outcomes import OutcomeClass

_FAULTS_KEPT = 10


@dataclass(slots=True)
class DeviceLedger:
    """Everything one device sent, and what came back. It outlives the device's restarts.

    A reading is written down under the millisecond that it carries, once it is first sent.

    Attributes:
        device_id: the service's id.
        name: for a person.
        requests, failures: how many requests were made, and how many got no good answer.
        faults: the last sentences about failures, newest last, at most ten.
        effects: how often a handler began the effect of a command, by its id.
        facts: key and digest of readings that went out at least once, by their number. The key is the millisecond that
            a reading carries; its number where it carries none.
        accepted_numbers, refused_numbers: of those that were answered for good.
    """

    device_id: str
    name: str
    requests: int = 0
    failures: int = 0
    faults: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    facts: dict[int, tuple[int, int]] = field(default_factory=dict)
    accepted_numbers: set[int] = field(default_factory=set)
    refused_numbers: set[int] = field(default_factory=set)

    @property
    def accepted(self) -> int:
        """How many readings the service answered with 2xx."""
        return len(self.accepted_numbers)

    @property
    def sent(self) -> int:
        """How many readings went out at least once."""
        return len(self.facts)


class MemoryLedger(Ledger, Observer):
    """The ledger and the observer of a small fleet.

    Args:
        ledgers: of the devices, by their index.
    """

    def __init__(self, ledgers: Sequence[DeviceLedger]) -> None:
        self._ledgers = ledgers

    # --- exchanges ----------------------------------------------------------------------------------------------------

    def exchanged(self, exchange: Exchange) -> None:
        """See :meth:`Observer.exchanged`."""
        ledger = self._ledgers[exchange.device]
        ledger.requests += 1
        ledger.failures += exchange.outcome is not OutcomeClass.OK

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """Why an exchange was no good one, for a person. See :class:`~simulator.fleet.device.model.Observer`."""
        faults = self._ledgers[device].faults
        faults.append(f"{operation}: {sentence}")
        del faults[:-_FAULTS_KEPT]

    # --- readings and effects -----------------------------------------------------------------------------------------

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """See :meth:`Ledger.reading_sent`."""
        # On a server without recorded_at the number is all that a reading is known by.
        key = sequence if recorded_ms is None else recorded_ms
        self._ledgers[device].facts[sequence] = key, digest

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        """See :meth:`Ledger.readings`."""
        ledger = self._ledgers[device]
        if event == "accepted":
            ledger.accepted_numbers.update(sequences)
        elif event == "refused":
            ledger.refused_numbers.update(sequences)

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **facts: Any) -> None:
        """See :meth:`Ledger.command`."""
        if event == "started":
            self._ledgers[device].effects[command_id] += 1
