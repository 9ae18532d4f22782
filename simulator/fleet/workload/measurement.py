"""A worker's measurements: the observer of its devices, and a ledger that also marks the stages of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agent.core.values import OutcomeStatus
from simulator.fleet.audit.ledger import CommandEvent, Ledger
from simulator.fleet.device.http_messages import HELD_POLL
from simulator.fleet.device.model import Exchange, Observer
from simulator.fleet.metrics.ages import CommandTracker, EndState, Stage
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.record import SlowDevice

_SLOWEST_KEPT = 20
_SENTENCES_KEPT = 50
_SENTENCE_CHARACTERS = 200


_STAGES: Final[Mapping[str, Stage]] = {
    "ordered": Stage.SENT,
    "received": Stage.DELIVERED,
    "started": Stage.STARTED,
    "finished": Stage.FINISHED,
    "reported": Stage.REPORTED,
}


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

    def exchanged(self, exchange: Exchange) -> None:
        """See :meth:`Observer.exchanged`."""
        operation, outcome, device, intended_s, ready_s, sent_s, now_s, attempt = exchange
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


class TrackedLedger(Ledger):
    """A ledger that also notes where the commands are.

    Args:
        ledger: keeps everything.
        commands: where the commands are.
        began_s: the run's begin on the monotonic clock: the ledger's times count from it.
    """

    def __init__(self, ledger: Ledger, commands: CommandTracker, began_s: float = 0.0) -> None:
        self._ledger = ledger
        self._commands = commands
        self._began_s = began_s
        # Nothing is added to these: the ledger itself is called, since each reading calls them.
        self.reading_sent = ledger.reading_sent  # type: ignore[method-assign]
        self.readings = ledger.readings  # type: ignore[method-assign]

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **facts: Any) -> None:
        """See :meth:`Ledger.command`."""
        self._ledger.command(event, device, command_id, at_s, **facts)
        stage = _STAGES.get(event)
        if stage is not None:
            state = _end_state(facts["detail"], facts["error"]) if stage is Stage.FINISHED else None
            self._commands.mark(command_id, stage, at_s + self._began_s, state)
        elif event == "undeliverable":
            self._commands.end(command_id)


def _end_state(status: str, error: str | None) -> EndState:
    """The end state for the sender of the command: one that reached its device too late has expired."""
    is_late = status == OutcomeStatus.REJECTED and error is not None and error.partition(":")[0] == "expired"
    return EndState.EXPIRED if is_late else EndState(status)
