"""The interface of ledgers: what devices and the operator did, recorded for the audit.

One ledger serves all devices of a worker; a device is its index in the fleet. A reading is known by its *sequence
number*: 1, 2, 3, ... for each device, never used again, not even after a restart. It travels as one more number beside
the signals, :data:`SEQUENCE_NAME`, since readings are numbers only; :func:`with_sequence` puts it there. On the wire it
counts from the run's first number (:func:`first_number_of`), so that another run with the same devices has others.
Where it is switched off, readings are identified by the millisecond that they carry, and each of a device has to carry
another one.

Times are seconds since the run's begin, on one monotonic clock for all workers of a machine: the audit compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final
from zlib import crc32

from agent.core.values import Contract, OutcomeStatus

SEQUENCE_NAME: Final = "fleet_sequence"
"""The reserved name of the reading that carries the sequence number."""
NUMBERS_OF_A_RUN: Final = 2**32
"""So many numbers belong to each run. With 2**20 runs all are below 2**53, which a double holds exactly."""
_RUNS: Final = 2**20


class FleetLedger:
    """Where devices and the operator write down what they do. Calls are cheap, never block and never fail.

    The base of all ledgers, and the one of runs without an audit: a method that a ledger does not have writes nothing.
    """

    def reading_made(self, device: int) -> None:
        """A sensor was read, and the reading waits to be sent. Only counted."""

    def reading_sent(
        self, device: int, sequence: int, digest: int, *, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """A reading goes out for the first time. To be called before its bytes go to the socket.

        Args:
            device: index in the fleet.
            sequence: its number.
            digest: of its values without the sequence number, :func:`~simulator.fleet.audit.digest.digest_values`.
            recorded_ms: the time that it carries, epoch milliseconds; None when it carries none.
            made_s: when the sensor was read.
            at_s: now.
        """

    def readings_resent(self, device: int, sequences: Sequence[int], at_s: float, *, ambiguous: bool) -> None:
        """Readings that were sent before go out again.

        Args:
            device: index in the fleet.
            sequences: their numbers.
            at_s: now.
            ambiguous: the service may have them already; False when it refused them each time.
        """

    def readings_accepted(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service answered 2xx for these."""

    def readings_refused(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service refused these for good: they are not sent again."""

    def readings_unanswered(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """No answer came, or one that leaves it open (5xx): the service may have stored them or not."""

    def command_ordered(self, device: int, command_id: str, at_s: float, payload: int | None = None) -> None:
        """The service took an operator's command for this device, and gave it this id.

        Args:
            device: index in the fleet.
            command_id: the service's.
            at_s: now.
            payload: digest of what was sent; None where nobody compares it.
        """

    def order_unanswered(self, device: int, at_s: float) -> None:
        """An operator's command got no answer: it may exist or not, and its id is not known."""

    def command_received(
        self, device: int, command_id: str, at_s: float, created_at: float | None = None, payload: int | None = None
    ) -> None:
        """The device admitted a command to its journal. Not to be called for a repeat that the journal knew.

        Args:
            device: index in the fleet.
            command_id: the service's.
            at_s: now.
            created_at: when the service made it, by its clock, seconds since the epoch; None when it does not say.
            payload: digest of what came.
        """

    def command_started(self, device: int, command_id: str, contract: Contract, attempt: int, at_s: float) -> None:
        """The effect begins. To be called before the work.

        Args:
            device: index in the fleet.
            command_id: the service's.
            contract: the handler's: decides how often the effect may begin.
            attempt: 1 for the first run; more when the power went in the middle.
            at_s: now.
        """

    def command_finished(
        self,
        device: int,
        command_id: str,
        status: OutcomeStatus,
        at_s: float,
        error: str | None = None,
        result: int | None = None,
    ) -> None:
        """The device decided how the command ended; also without an effect, as for an unknown one.

        Args:
            device: index in the fleet.
            command_id: the service's.
            status: how it ended.
            at_s: now.
            error: why it did not succeed, a word and a sentence: ``expired: ...``.
            result: digest of what the handler returned.
        """

    def command_reported(self, device: int, command_id: str, at_s: float) -> None:
        """The service took the final result."""

    def result_put_aside(self, device: int, command_id: str) -> None:
        """Nothing on the service takes the final result: it stays with the device, and nobody waits for it."""


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """The audit so far: what was written down until now. Cheap, and merged by addition.

    Attributes:
        made, sent, accepted, refused: readings; ``sent`` counts each once.
        resent, resent_ambiguous: readings that went out again, and those of them that the service may have had already.
        unanswered: readings that got no answer; those that were sent again and answered since are still in it.
        ordered, received, finished, reported: commands.
        effects: how often an effect began.
        orders_unanswered: operator's commands without an answer.
        missed: records that could not be written down; the audit is not complete then.
    """

    made: int = 0
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    resent: int = 0
    unanswered: int = 0
    ordered: int = 0
    received: int = 0
    effects: int = 0
    finished: int = 0
    reported: int = 0
    orders_unanswered: int = 0
    missed: int = 0
    resent_ambiguous: int = 0

    @property
    def open(self) -> int:
        """Readings that were sent and neither accepted nor refused yet."""
        return self.sent - self.accepted - self.refused

    def __add__(self, other: LedgerCounts) -> LedgerCounts:
        return LedgerCounts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


def first_number_of(run: str) -> int:
    """Where a run's numbers begin on the wire: number 1 of a device travels as this plus 1.

    Args:
        run: its name. Two of a million have the same begin, and matter only on the same devices.
    """
    return crc32(run.encode()) % _RUNS * NUMBERS_OF_A_RUN


def with_sequence(values: Mapping[str, float], sequence: int, first_number: int = 0) -> dict[str, float]:
    """The values as they go over the wire, with the sequence number beside them."""
    return {**values, SEQUENCE_NAME: first_number + sequence}
