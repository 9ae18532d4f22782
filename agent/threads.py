"""Threads whose end is noticed: each one that is to live as long as its process is a :class:`WatchedThread`.

Whatever ends one of them by an exception is logged with its traceback and reported; the program then ends with exit
code 1, and the service manager starts it again. Half a program looks healthy and is not.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

_log = logging.getLogger(__name__)

OnCrash = Callable[[str], None]
"""Called with a thread's name, in that thread, when an exception has ended it."""


def only_logged(_name: str) -> None:
    """For a thread in a program that has no supervisor, such as a test or a command."""


@contextlib.contextmanager
def reporting_crash(name: str, on_crash: OnCrash) -> Iterator[None]:
    """Log and report whatever is raised inside, ``SystemExit`` included; nothing leaves it."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - logged with its traceback, and it ends the process
        _log.exception("thread=%s state=crashed: the process ends, so that it is started anew", name)
        on_crash(name)


class WatchedThread(threading.Thread):
    """A daemon thread that reports an exception which ends it.

    Args:
        target: what it does; it returns only when it was stopped.
        name: of the thread.
        on_crash: such as :meth:`agent.runtime.supervisor.Supervisor.crashed`.
    """

    def __init__(self, target: Callable[[], object], *, name: str, on_crash: OnCrash = only_logged) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._on_crash = on_crash

    def run(self) -> None:
        """Run the thread's function, and report its end."""
        with reporting_crash(self.name, self._on_crash):
            super().run()

    def has_ended(self, within_s: float) -> bool:
        """Wait for its end; True when it has ended in time, or was never started."""
        if self.ident is None:
            return True
        self.join(max(0.0, within_s))
        return not self.is_alive()
