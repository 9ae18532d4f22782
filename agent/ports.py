"""The ports: what the agent needs from the outside, as Protocols. Adapters implement them; tests fake them.

Errors: every method may raise the errors of :mod:`agent.errors` that its docstring names, and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from agent.core.timekeeping import BootTime
from agent.core.values import (
    Admission,
    BatchKey,
    CommandPoll,
    JournalEntry,
    JournalLookup,
    Moment,
    OutboxStats,
    Outcome,
    Reading,
    Report,
    ResultStats,
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

    def close(self) -> None:
        """Release the connection."""
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

    def report(self, report: Report) -> float | None:
        """Send the service how a command goes or ended; the service's clock, if its answer has it.

        Raises:
            NoPlaceForResults: this service takes none; nothing was sent.
            ServiceError: it was not taken; :func:`agent.core.unreported.fault_of` says what that means for it.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Journal(Protocol):
    """The durable list of commands. Every method that writes returns only after the commit is on the disk.

    Raises:
        StorageError: nothing was written.
        IllegalMove: the table of :mod:`agent.core.commands` has no such move; nothing was written.
    """

    def known(self, command_ids: Sequence[str]) -> dict[str, JournalEntry]:
        """The entries with these ids."""
        ...

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        """Look at what is known and :meth:`admit` what ``choose`` makes of it, with no other use of it in between.

        The entries and the settings of the admission are one transaction: both are there after a crash, or neither.

        Args:
            command_ids: what to look for.
            choose: must be quick and may not use the journal; called once, in any thread. None admits nothing, and
                then nothing is written.
            settings: names of settings that the decision needs.
        """
        ...

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        """Add new entries and store these settings, all or none; an id that is there already is left as it is.

        Admitting nothing is a write, too: it says that the first contact took place.
        """
        ...

    def start(self, command_id: str, at: Moment) -> None:
        """``received`` -> ``started``, and count the attempt."""
        ...

    def finish(self, command_id: str, outcome: Outcome, at: Moment) -> JournalEntry:
        """-> ``finished``: the outcome and the result to be reported, in one transaction; the entry as it is now."""
        ...

    def reported(self, command_ids: Sequence[str]) -> None:
        """``finished`` -> ``reported``: the service has the result."""
        ...

    def put_aside(self, reasons: Mapping[str, str]) -> int:
        """``finished`` -> ``put_aside``: the service has no place for these results; they stay in the journal.

        Beyond the bounds of :mod:`agent.core.unreported` the oldest give way: ``put_aside`` -> ``given_up``.

        Args:
            reasons: command id -> why, in one sentence.

        Returns:
            How many gave way.
        """
        ...

    def result_stats(self) -> ResultStats:
        """What is held of results that the service has no place for."""
        ...

    def in_state(self, *states: str, limit: int = 1000) -> list[JournalEntry]:
        """Entries in these states, oldest first."""
        ...

    def forget(self, listed_ids: Sequence[str], older_than_wall_s: float) -> int:
        """Delete entries that are over, no longer listed by the service and older; how many.

        What is put aside is not over: its result is still to be had.

        Args:
            listed_ids: what the service lists.
            older_than_wall_s: true time, epoch seconds. An entry of a boot whose time is not known is as old as its
                first survival of this call.
        """
        ...

    def is_empty(self) -> bool:
        """True until the first :meth:`admit`, were it of nothing: this device has never seen a list of commands."""
        ...

    def setting(self, name: str) -> str | None:
        """A value that must survive a restart, such as the interval that ``set_interval`` set."""
        ...

    def put_setting(self, name: str, value: str | None) -> None:
        """Store it, or delete it with None."""
        ...


class Outbox(Protocol):
    """The durable queue of readings, bounded. A reading leaves it only after the other side's 2xx.

    Raises:
        StorageError: nothing was written.
    """

    def put(self, reading: Reading, *, wait: bool = False) -> None:
        """Accept one reading. With ``wait`` it returns after the commit, else within the grouping window."""
        ...

    def next_batch(self, limit: int) -> list[StoredReading]:
        """What to send next: live first, then backlog by priority, oldest first in each."""
        ...

    def again(self, keys: Sequence[int]) -> list[StoredReading]:
        """These once more, in this order: those of them that still wait.

        What was handed out last, here or by :meth:`next_batch`, gives way to nothing at a bound as long as most of the
        outbox is something else: the service may know it as one batch.
        """
        ...

    def settle(self, outcome: SendOutcome) -> None:
        """Delete what was delivered; set aside what was refused, with the reason."""
        ...

    def stats(self) -> OutboxStats:
        """How many readings the outbox holds, and their bytes."""
        ...


class BootTimes(Protocol):
    """What is known of the time of each boot that something waits from."""

    def known(self) -> Mapping[str, BootTime]:
        """Boot id -> its time.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    def learn(self, boot_id: str, time: BootTime, *, rides: bool = False) -> None:
        """Keep this, in place of what was known before. Returns at once; it may be lost, but no reading with it.

        Args:
            boot_id: which boot.
            time: of that boot.
            rides: no commit is made for it alone: it is written with the next one that happens anyway.
        """
        ...


class Notifier(Protocol):
    """The service manager (systemd's ``sd_notify``), or nobody."""

    def ready(self) -> None:
        """The agent does its job from now on."""
        ...

    def status(self, text: str) -> None:
        """One line for a person."""
        ...

    def alive(self) -> None:
        """Send the watchdog's keep-alive (``WATCHDOG=1``)."""
        ...

    def stopping(self) -> None:
        """Report that the stop has begun (``STOPPING=1``)."""
        ...

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done."""
        ...

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often :meth:`alive` must come; None without a watchdog."""
        ...
