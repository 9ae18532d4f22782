"""Ends a thread or a task of a fleet's worker by an error from inside.

A part is what runs beside others: a thread by its name, a task by its name, or by its coroutine's where nobody gave it
one. Which one ends stands in the environment (:data:`END`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Final

END: Final = "SUDDEN_END"
AFTER_S: Final = 1.0
AGAIN_S: Final = 0.05


class Sudden(Exception):
    """What no part expects."""


class SuddenExit(BaseException):
    """As :class:`Sudden`; gets past whoever expects any exception."""


def name_of(part: threading.Thread | asyncio.Task[Any]) -> str:
    """What the tables of the tests call it; numbers of its kind are left out."""
    name = part.name if isinstance(part, threading.Thread) else part.get_name()
    if re.fullmatch(r"Task-\d+", name) and isinstance(part, asyncio.Task):
        return getattr(part.get_coro(), "__qualname__", name)
    if re.match(r"Thread-\d+ ", name):
        return name.partition(" ")[2]
    return re.sub(r"[-_]\d+(-[0-9a-f]{6})?$", "", name)  # of a label: its number, and its run


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


def _end_now(wanted: str) -> None:
    _end_until_done(parts()[wanted])


def _end_until_done(part: threading.Thread | asyncio.Task[Any]) -> None:
    """A task survives where it expects any exception, so it is met somewhere else next time."""
    if isinstance(part, asyncio.Task):
        if part.done():
            return
        asyncio.get_running_loop().call_later(AGAIN_S, _end_until_done, part)
    end(part)


class _Ending:
    """A fleet's job whose worker has one of its parts ended, a second after its begin."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def make(self, recorder: Any) -> Any:
        play = self._job.make(recorder)
        begin = play.begin

        def begin_and_end(at_s: float) -> None:
            begin(at_s)
            asyncio.get_running_loop().call_later(at_s - time.monotonic() + AFTER_S, _end_now, os.environ[END])

        play.begin = begin_and_end
        return play


def work(job: Any, pipe: Connection) -> int:
    """A fleet's worker; see :class:`_Ending`."""
    from simulator.fleet.run.worker import work as real_work

    return real_work(_Ending(job), pipe)
