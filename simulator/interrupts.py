"""Signals that end a command: all of them go the way of Ctrl-C, and none of them interrupts the tidying up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold off Ctrl-C and SIGTERM while the children are ended: a second Ctrl-C must not leave one behind.

    Only the main thread is interrupted by signals, so in another one there is nothing to hold off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminations_as_interrupts() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGHUP end this process as Ctrl-C does: through every ``finally``."""

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    held = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
