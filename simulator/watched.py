"""Threads and tasks whose unexpected end is passed on: the way in which service and fleet start each of theirs.

One that returns, or is canceled by its owner, has ended as planned. One that an error ends is logged with its traceback
and given to ``on_failure``, which starts it again or ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from agent.errors import AgentError

_log = logging.getLogger(__name__)

T = TypeVar("T")

OnFailure = Callable[[str, BaseException], object]
"""Given the name and the error of what ended: called in the thread that ends, or on the loop of the task."""

ENDED: Final = "ended"
"""The member of an exception handler's context that names a thread or task which ended by an error."""


class PartEnded(AgentError):
    """A thread or task of this program was ended by an error; the text names both.

    Args:
        name: of the thread or task.
        error: what ended it.
    """

    def __init__(self, name: str, error: BaseException) -> None:
        self.name = name
        super().__init__(f"{name} ended unexpectedly: {describe(error)}")


def describe(error: BaseException) -> str:
    """Class and text of an error in one line; of a group, those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def make_thread(run: Callable[[], object], name: str, on_failure: OnFailure) -> threading.Thread:
    """A daemon thread, to be started by the caller.

    Args:
        run: all that it does.
        name: of the thread, and what the log and ``on_failure`` call it.
        on_failure: called in this thread, as the last thing that it does, when ``run`` raises anything.
    """

    def watched() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - whatever ends it, its owner has to act
            _report(name, error, on_failure)

    return threading.Thread(target=watched, name=name, daemon=True)


def start_task(coroutine: Coroutine[Any, Any, T], name: str, on_failure: OnFailure | None = None) -> asyncio.Task[T]:
    """A task on the running loop.

    Args:
        coroutine: all that it does.
        name: of the task, and what the log and ``on_failure`` call it.
        on_failure: called on the loop when an error ends it, a cancellation that no owner asked for included; by
            default the loop's exception handler is, as by :func:`into_loop`.
    """
    loop = asyncio.get_running_loop()
    report = on_failure or into_loop(loop)
    task = loop.create_task(coroutine, name=name)

    def look(done: asyncio.Task[T]) -> None:
        if done.cancelled():
            if not done.cancelling():
                _report(name, asyncio.CancelledError("nobody asked for it"), report)
        elif (error := done.exception()) is not None:
            _report(name, error, report)

    task.add_done_callback(look)
    return task


def into_loop(loop: asyncio.AbstractEventLoop) -> OnFailure:
    """Give failures to the loop's exception handler, with :data:`ENDED` in its context; from any thread."""

    def report(name: str, error: BaseException) -> None:
        context = {"message": str(PartEnded(name, error)), "exception": error, ENDED: name}
        with contextlib.suppress(RuntimeError):  # the loop has ended: its owner acts on that
            loop.call_soon_threadsafe(loop.call_exception_handler, context)

    return report


def _report(name: str, error: BaseException, on_failure: OnFailure) -> None:
    # An error of ours says in its own words what is wrong, and its owner shows them.
    if not isinstance(error, AgentError):
        _log.error("%s", PartEnded(name, error), exc_info=error)
    on_failure(name, error)
