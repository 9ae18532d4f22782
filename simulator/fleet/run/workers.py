"""The ports between a run and its workers: how they are started, sent messages and listened to, wherever they are.

The coordinator sees :class:`Workers`, a worker sees :class:`Link`, and neither sees what is between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from simulator.fleet.run.messages import FromWorker, ToWorker


class Link(Protocol):
    """A worker's end of the line to the coordinator. One thread sends, another one receives."""

    def send(self, message: FromWorker) -> None:
        """Send a message.

        Raises:
            OSError: the coordinator is gone.
        """
        ...

    def receive(self) -> ToWorker:
        """The next message; waits for it.

        Raises:
            EOFError, OSError: the coordinator is gone.
        """
        ...


Work = Callable[[int, Any, Link], int | None]
"""What a worker does from its begin to its end, given its number, its job and its link: the exit code of its process.

It is importable by name, since a worker process begins from nothing.
"""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker that is not there any more.

    Attributes:
        reason: for a person.
    """

    worker: int
    reason: str


class Workers(Protocol):
    """The workers of one run, numbered from 0. Used by one thread, inside its ``with`` block, which ends them all."""

    def __enter__(self) -> Self:
        """Nothing is started yet."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker that has not ended, at once. No process of them is left, nor what was made for them."""
        ...

    def start(self, jobs: Sequence[Any]) -> None:
        """Start one worker for each job; to be called once.

        Args:
            jobs: pickled on their way.

        Raises:
            ConfigurationError: they cannot be started as the run needs them; the text has the fix.
        """
        ...

    @property
    def living(self) -> tuple[int, ...]:
        """The workers that are neither lost nor done."""
        ...

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message. One to a worker that has just died is lost, and :meth:`receive` finds that out."""
        ...

    def receive(self, timeout_s: float) -> Iterator[FromWorker | WorkerLost]:
        """The workers' messages, those of one worker in the order in which it sent them, and which workers are lost.

        After :class:`~simulator.fleet.run.messages.Finished`, or when it is lost, a worker is not living any more, and
        nothing more comes of it.

        Args:
            timeout_s: return after this time at the latest.
        """
        ...

    def collect(self, on_progress: Callable[[int, int], object]) -> tuple[str, ...]:
        """Bring what the workers have written to where their jobs say, when none of them is living any more.

        Args:
            on_progress: called with how many files have come, of how many, where some have to.

        Returns:
            What could not be had and why, one sentence each.
        """
        ...
