"""Ends threads and tasks by an error from inside; programs that do it to their own, for processes of their own.

A part is what runs beside others: a thread by its name, a task by its name, or by its coroutine's where nobody gave it
one. What a program ends stands in the environment (:data:`END`), and what it has is written to a file (:data:`LIST`).
"next:NAME" is a task that lives for moments: the first one of this name is ended where it first waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulator.fleet.run.workers import Link

END: Final = "SUDDEN_END"
NEXT: Final = "next:"
LIST: Final = "SUDDEN_LIST"
AFTER_S: Final = 1.0
AGAIN_S: Final = 0.05
DEFAULT_POOL: Final = "the loop's pool"


class Sudden(Exception):
    """What no part expects."""


class SuddenExit(BaseException):
    """As :class:`Sudden`; gets past whoever expects any exception."""


class LoopExit(SystemExit):
    """As :class:`Sudden`; ends an event loop, which keeps any other error to the callback that it met."""


def name_of(part: threading.Thread | asyncio.Task[Any]) -> str:
    """What the tables of the tests call it; numbers of its kind are left out."""
    name = part.name if isinstance(part, threading.Thread) else part.get_name()
    if re.fullmatch(r"Task-\d+", name) and isinstance(part, asyncio.Task):
        return getattr(part.get_coro(), "__qualname__", name)
    if re.match(r"Thread-\d+ ", name):
        return name.partition(" ")[2]
    name = re.sub(r"[-_]\d+(-[0-9a-f]{6})?$", "", name)  # of a label: its number, and its run
    return DEFAULT_POOL if name in {"asyncio", "uvloop"} else name


def parts() -> dict[str, threading.Thread | asyncio.Task[Any]]:
    """All threads of this process and all tasks of the running loop, by name."""
    return {name_of(part): part for part in (*threading.enumerate(), *asyncio.all_tasks())}


def end(part: threading.Thread | asyncio.Task[Any], error: type[BaseException] = Sudden) -> None:
    """Raise an error in it: in a task where it waits, in a thread as soon as it runs again."""
    if isinstance(part, asyncio.Task):
        waited_for = part._fut_waiter  # type: ignore[attr-defined]  # there is no other way in
        if waited_for is not None and not waited_for.done():
            waited_for.set_exception(error())
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(part.ident or 0), ctypes.py_object(error))


def end_loop(thread: threading.Thread, error: type[BaseException] = LoopExit) -> None:
    """Raise an error in a callback of asyncio's loop that runs in this thread.

    :func:`end` may meet a thread in the middle of a ``with`` of a lock, which then stays locked: one of
    ``concurrent.futures`` is the whole process's, and nothing in it can hand work to a pool any more.
    """

    def leave() -> None:
        raise error

    frame = sys._current_frames()[thread.ident or 0]
    while not isinstance(loop := frame.f_locals.get("self"), asyncio.BaseEventLoop):
        assert frame.f_back is not None, f"no loop of asyncio runs in {thread.name}"
        frame = frame.f_back
    loop.call_soon_threadsafe(leave)


def end_writer(thread: threading.Thread, error: type[BaseException] = LoopExit) -> None:
    """Raise an error in the next work of the service's writer that runs in this thread."""
    from simulator.service.errors import Unavailable
    from simulator.service.storage.writer import Writer

    def leave(_connection: object) -> None:
        raise error

    frame = sys._current_frames()[thread.ident or 0]
    while not isinstance(writer := frame.f_locals.get("self"), Writer):
        assert frame.f_back is not None, f"no writer runs in {thread.name}"
        frame = frame.f_back
    with contextlib.suppress(Unavailable):  # what every caller gets once the thread has ended
        writer.call(leave)


def _list_and_end(wanted: str) -> None:
    found = parts()
    if path := os.environ.get(LIST):
        Path(path).write_text("\n".join(sorted(found)))
    if wanted and not wanted.startswith(NEXT):
        _end_until_done(found[wanted])


def end_next(wanted: str) -> None:
    """End the next task of this name on the running loop."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()

    def look(task: asyncio.Task[Any]) -> None:
        if name_of(task) == wanted and loop.get_task_factory() is make:
            loop.set_task_factory(before)
            _end_until_done(task)

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        loop.call_soon(look, task)  # it has its name by then, and has come to its first wait
        return task

    loop.set_task_factory(make)


def _end_until_done(part: threading.Thread | asyncio.Task[Any]) -> None:
    """A task survives where it expects any exception, so it is met somewhere else next time."""
    if isinstance(part, asyncio.Task):
        if part.done():
            return
        asyncio.get_running_loop().call_later(AGAIN_S, _end_until_done, part)
    end(part)


class _Ending:
    """A fleet's job whose worker has its parts listed and one of them ended, a second after its begin."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def make(self, recorder: Any) -> Any:
        play = self._job.make(recorder)
        begin = play.begin

        def begin_and_end(at_s: float) -> None:
            wanted = os.environ.get(END, "")
            if wanted.startswith(NEXT):
                end_next(wanted.removeprefix(NEXT))
            begin(at_s)
            asyncio.get_running_loop().call_later(at_s - time.monotonic() + AFTER_S, _list_and_end, wanted)

        play.begin = begin_and_end
        return play


def work(number: int, job: Any, link: Link) -> int:
    """A fleet's worker; see :class:`_Ending`."""
    from simulator.fleet.run.worker import work as real_work

    return real_work(number, _Ending(job), link)


def serve() -> None:
    """``fleet-simulator service``; each ``SIGUSR1`` has its parts listed and one of them ended."""
    import signal

    from simulator.service import cli

    greet = cli._greet

    def greet_and_listen(service: Any, *given: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, _end_of_service, service)
        greet(service, *given)

    cli._greet = greet_and_listen
    cli.service_command()


def _end_of_service(service: Any) -> None:
    for wanted in os.environ.get(END, "").split(","):
        _end_in_service(service, wanted)


def _end_in_service(service: Any, wanted: str) -> None:
    if wanted == "service-writer":  # it waits for work, and an error from inside comes with that
        service.writer.submit(_raise)
    elif wanted in {"service-look-up", "service-reader", DEFAULT_POOL}:
        pool = {"service-look-up": service._looking_up, "service-reader": service._readers}.get(wanted)
        asyncio.get_running_loop().run_in_executor(pool, _raise).add_done_callback(lambda done: done.exception())
    else:
        _list_and_end(wanted)


def _raise(*_: object) -> None:
    raise SuddenExit
