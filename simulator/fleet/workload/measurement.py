"""A worker's measurements: the observer of its devices, and a ledger that also marks the stages of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from agent.core.values import Contract, OutcomeStatus
from simulator.fleet.audit.fleet_ledger import FleetLedger
from simulator.fleet.device.http_codec import HELD_POLL
from simulator.fleet.device.model import Observer
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.metrics.stages import CommandTracker, EndState, Stage
from simulator.fleet.outcomes import Attempt, OutcomeClass
from simulator.fleet.record import SlowDevice

_SLOWEST_KEPT = 20
_SENTENCES_KEPT = 50
_SENTENCE_CHARACTERS = 200


_PASSED_ON: Final = (
    "reading_made",
    "reading_sent",
    "readings_resent",
    "readings_accepted",
    "readings_refused",
    "readings_unanswered",
    "order_unanswered",
)


class Measurement(Observer):
    """The observer of a worker (:class:`~simulator.fleet.device.model.Observer`): counts, and keeps the extremes.

    Args:
        recorder: counts.

    Attributes:
        is_excused: whether what a device cannot send is its link's doing, and no fault of the generator's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.is_excused: Callable[[int], bool] = lambda _device: False
        self._worst: dict[int, tuple[float, str]] = {}
        self._bar_s = 0.0
        self.sentences: Counter[str] = Counter()

    def exchanged(
        self,
        operation: str,
        outcome: OutcomeClass,
        device: int,
        *,
        intended_s: float,
        ready_s: float,
        sent_s: float | None,
        now_s: float,
        attempt: Attempt,
    ) -> None:
        """A request ended. See :class:`~simulator.fleet.device.model.Observer`."""
        recorder = self._recorder
        if sent_s is not None:
            recorder.intended += 1
            recorder.sent += 1
        elif not self.is_excused(device):
            recorder.intended += 1
        recorder.record(
            operation, outcome, intended_s=intended_s, sent_s=sent_s, now_s=now_s, ready_s=ready_s, attempt=attempt
        )
        # A poll that is held is long on purpose: no device is slow for that.
        if now_s - intended_s > self._bar_s and operation != HELD_POLL:
            self._keep(device, now_s - intended_s, operation)

    def faulted(self, operation: str, device: int, sentence: str) -> None:
        """Why an exchange was no good one, for a person. See :class:`~simulator.fleet.device.model.Observer`."""
        del device
        text = f"{operation}: {sentence}"[:_SENTENCE_CHARACTERS]
        if text in self.sentences or len(self.sentences) < _SENTENCES_KEPT:
            self.sentences[text] += 1

    def slowest(self, names: Sequence[tuple[str, str]], first_index: int) -> tuple[SlowDevice, ...]:
        """The devices that waited longest for an answer, the slowest first.

        Args:
            names: device id and name of each of the worker's devices.
            first_index: of the first of them, in the fleet.
        """
        ranked = sorted(self._worst.items(), key=lambda entry: -entry[1][0])
        return tuple(
            SlowDevice(*names[device - first_index], waited_s, operation)
            for device, (waited_s, operation) in ranked[:_SLOWEST_KEPT]
        )

    def _keep(self, device: int, waited_s: float, operation: str) -> None:
        worst = self._worst
        if device not in worst or worst[device][0] < waited_s:
            worst[device] = (waited_s, operation)
        if len(worst) > 2 * _SLOWEST_KEPT:
            kept = sorted(worst.items(), key=lambda entry: -entry[1][0])[:_SLOWEST_KEPT]
            self._worst = dict(kept)
            self._bar_s = kept[-1][1][0]


class StagedLedger(FleetLedger):
    """A ledger that also notes where the commands are; see :class:`~simulator.fleet.audit.fleet_ledger.FleetLedger`.

    Args:
        ledger: keeps everything.
        ways: where the commands are.

    Attributes:
        began_s: the run's begin on the monotonic clock: the ledger's times count from it.
    """

    def __init__(self, ledger: FleetLedger, ways: CommandTracker) -> None:
        self._ledger = ledger
        self._commands = ways
        self.began_s = 0.0
        # Nothing is added to these: the ledger itself is called, since each reading calls several of them.
        for name in _PASSED_ON:
            setattr(self, name, getattr(ledger, name))

    def command_ordered(self, device: int, command_id: str, at_s: float, payload: int | None = None) -> None:
        """The service took an operator's command for this device, and gave it this id."""
        self._ledger.command_ordered(device, command_id, at_s, payload)
        self._commands.mark(command_id, Stage.SENT, at_s + self.began_s)

    def command_received(
        self, device: int, command_id: str, at_s: float, created_at: float | None = None, payload: int | None = None
    ) -> None:
        """The device admitted a command to its journal. See :meth:`FleetLedger.command_received`."""
        self._ledger.command_received(device, command_id, at_s, created_at, payload)
        self._commands.mark(command_id, Stage.DELIVERED, at_s + self.began_s)

    def command_started(self, device: int, command_id: str, contract: Contract, attempt: int, at_s: float) -> None:
        """The effect begins. To be called before the work."""
        self._ledger.command_started(device, command_id, contract, attempt, at_s)
        self._commands.mark(command_id, Stage.STARTED, at_s + self.began_s)

    def command_finished(
        self,
        device: int,
        command_id: str,
        status: OutcomeStatus,
        at_s: float,
        error: str | None = None,
        result: int | None = None,
    ) -> None:
        """The device decided how the command ended; also without an effect, as for an unknown one."""
        self._ledger.command_finished(device, command_id, status, at_s, error, result)
        self._commands.mark(command_id, Stage.FINISHED, at_s + self.began_s, _end_state(status, error))

    def command_reported(self, device: int, command_id: str, at_s: float) -> None:
        """The service took the final result. See :class:`~simulator.fleet.audit.fleet_ledger.FleetLedger`."""
        self._ledger.command_reported(device, command_id, at_s)
        self._commands.mark(command_id, Stage.REPORTED, at_s + self.began_s)

    def result_put_aside(self, device: int, command_id: str) -> None:
        """Nothing on the service takes the final result: it stays with the device, and nobody waits for it.

        See :class:`~simulator.fleet.audit.fleet_ledger.FleetLedger`: the way ends here without a report.
        """
        self._ledger.result_put_aside(device, command_id)
        self._commands.end(command_id)


def _end_state(status: OutcomeStatus, error: str | None) -> EndState:
    """The end state for the sender of the command: one that reached its device too late has expired."""
    is_late = status is OutcomeStatus.REJECTED and error is not None and error.partition(":")[0] == "expired"
    return EndState.EXPIRED if is_late else EndState(status)
