"""The ports: what the agent needs from the outside, as Protocols. Adapters implement them; tests fake them.

Errors: every method may raise the errors of :mod:`agent.errors` that its docstring names, and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.core.values import (
    BatchKey,
    CommandPoll,
    Moment,
    Report,
    SendOutcome,
    StoredReading,
)


class Clock(Protocol):
    """The clock of the machine, and waiting by it."""

    def now(self) -> Moment:
        """This instant on both clocks, with the id of this boot."""
        ...


class CommandSource(Protocol):
    """Where commands come from."""

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device.

        Args:
            wait_s: how long the service may hold the answer, seconds; 0 asks for an answer at once. A source that
                cannot hold ignores it.

        Raises:
            ServiceError: any class of it; the caller backs off by its ``advice``.
        """
        ...

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The journal has committed these: the transport may forget them."""
        ...

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back; none where the service cannot be asked.

        Raises:
            ServiceError: any class of it; it may be asked again.
        """
        ...

    def interrupt(self) -> None:
        """Make a held :meth:`poll` return soon. Called from another thread."""
        ...


class Uplink(Protocol):
    """Where readings and results go. :meth:`send` and :meth:`report` are called from two threads at the same time."""

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        """Hand over readings; what comes back as delivered is stored on the other side.

        Args:
            readings: in this order.
            batch: the key for all of them, where the other side knows a batch as a whole.

        Raises:
            ServiceError: nothing is known to be delivered; try the same readings again later.
        """
        ...

    def report(self, report: Report) -> None:
        """Send the service how a command goes or ended.

        Raises:
            NoPlaceForResults: this service takes none; nothing was sent.
            ServiceError: it was not taken; :func:`agent.core.commands.fault_of` says what that means for it.
        """
        ...
