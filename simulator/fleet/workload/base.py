"""What a worker plays: devices under load, onboarding, or history. One interface for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from simulator.fleet.audit.ledger import LedgerTarget
from simulator.fleet.record import AuditRecord, CommandEnds, Span
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.target.target import KeyPairFile


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceJob:
    """One worker's devices and what it needs for them, pickled.

    Attributes:
        scenario: the whole one.
        keys: those of the worker's devices; they take turns at commands and at history.
        devices: the range of this worker, in the fleet.
        device_ids, names: of those devices.
        model_numbers: the model of each device of the range.
        folder: of the scenario's file: relative paths in it start there.
        offers: the service's extensions.
        ledger: where this worker's ledger goes; None keeps none.
        connections: requests under way at once, where devices share connections.
    """

    scenario: Scenario
    keys: tuple[KeyPairFile, ...]
    devices: range
    device_ids: tuple[str, ...]
    names: tuple[str, ...]
    product_id: str
    model_numbers: tuple[int, ...]
    folder: Path
    offers: frozenset[str]
    ledger: LedgerTarget | None = None
    connections: int = 16


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What a play adds to the run's record.

    Attributes:
        faults: what was broken on purpose, with the instants at which it was.
        failures: what did not come out as the scenario says, one sentence each.
        missed: what could not be written down; the audit is not complete then.
        audit: of a play that reads back by itself; None where the coordinator does.
        commands: how commands ended, one entry for each of the scenario's and one for those that it did not send.
        extras: what a kind of its own found, by name.
        held: what a kind of its own proved, for the verdict of a run in which all is well; empty for nothing.
    """

    faults: tuple[Span, ...] = ()
    failures: tuple[str, ...] = ()
    missed: int = 0
    audit: AuditRecord | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[CommandEnds, ...] = ()
    held: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What still waited when the time for draining was over.

    Attributes:
        names: of devices, a few.
        count: how many there are.
    """

    names: tuple[str, ...] = ()
    count: int = 0


class Workload(Protocol):
    """One worker's part of a run. All of it happens on the worker's loop; times are on its monotonic clock."""

    @property
    def devices(self) -> int:
        """How many devices this worker plays."""
        ...

    def begin(self, at_s: float) -> None:
        """The run begins at this instant, which may be a moment ahead."""
        ...

    def enter_phase(self, index: int, at_s: float) -> None:
        """This phase of the scenario begins."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """What is the case now, such as ``online``; asked once a second."""
        ...

    async def drain(self, from_s: float, until_s: float) -> Leftover:
        """Take on nothing new, and return when nothing waits any more or the time is over.

        Args:
            from_s: when the phases were over: what fell due before is not new.
            until_s: when the time is over.
        """
        ...

    async def close(self) -> WorkloadSummary:
        """Close every connection and file; the last word."""
        ...
