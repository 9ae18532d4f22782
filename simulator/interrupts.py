"""Signals that end a command: all of them go the way of Ctrl-C, and none of them interrupts the tidying up.

One that is ignored stays ignored, such as SIGHUP under ``nohup``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

_TERMINATIONS: Final = (signal.SIGHUP, signal.SIGTERM)
_ALL: Final = (*_TERMINATIONS, signal.SIGINT)

Handler = Callable[[int, Any], object] | signal.Handlers


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold off Ctrl-C, SIGTERM and SIGHUP while the children are ended: a second Ctrl-C must not leave one behind.

    Only the main thread is interrupted by signals, so in another one there is nothing to hold off.
    """
    with _handled(_ALL, signal.SIG_IGN):
        yield


@contextlib.contextmanager
def interrupts_afterwards() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP interrupt at the block's end, so that nothing in it is half done.

    A second one interrupts at once: the block may wait for something that never comes.
    """
    has_come = False

    def postpone(number: int, frame: object) -> None:
        nonlocal has_come
        del number, frame
        if has_come:
            raise KeyboardInterrupt
        has_come = True

    try:
        with _handled(_ALL, postpone):
            yield
    finally:
        if has_come:
            raise KeyboardInterrupt


@contextlib.contextmanager
def terminations_as_interrupts() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGHUP end this process as Ctrl-C does: through every ``finally``."""

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt

    with _handled(_TERMINATIONS, interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
    held = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in held.items():
            signal.signal(number, before)
