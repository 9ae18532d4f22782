"""A way into a running process, for tests alone: its threads and tasks, and an exception raised in one of them.

:func:`install` is a change for :class:`tests.fault.processes.ForkServer`; its children then answer at the socket that
the variable ``THREAD_HOOK`` names. One request a packet, as JSON; the answer likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

HOOK: Final = "test-hook"
"""The name of the thread in here."""
TASK: Final = "task "
"""Begins the name of a task; its coroutine's name follows."""
VARIABLE: Final = "THREAD_HOOK"
LOOPS: Final = frozenset({"gateway-http"})
"""Threads of an event loop: what a callback raises ends the loop when it is a ``SystemExit``, and is logged else."""

_PACKET_BYTES: Final = 65536
_LOOK_S: Final = 0.02
_WITHIN_S: Final = 60.0


class EndedByTest(Exception):
    """Raised inside of the thread or task that a test ends."""

    made = threading.Event()

    def __init__(self) -> None:
        super().__init__("a test ended this thread")
        self.made.set()


class LoopEndedByTest(SystemExit):
    """Raised inside of an event loop's thread."""

    def __init__(self) -> None:
        super().__init__("a test ended this loop: EndedByTest")
        EndedByTest.made.set()


def install() -> None:
    """Have ``device-agent`` and ``device-gateway`` answer at the socket while they run."""
    import agent.cli
    import gateway.cli

    agent.cli.main = _answering(agent.cli.main)
    gateway.cli.main = _answering(gateway.cli.main)


def _answering(program: Callable[[], None]) -> Callable[[], None]:
    def main() -> None:
        if VARIABLE in os.environ:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind("\0" + os.environ.pop(VARIABLE))
            listener.listen()
            signal.signal(signal.SIGUSR2, _raise)
            threading.Thread(target=_serve, args=(listener,), name=HOOK, daemon=True).start()
        program()

    return main


def ask(address: str, **request: Any) -> Any:
    """From the test: one request to the process whose variable is ``address``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(2 * _WITHIN_S)
        connection.connect("\0" + address)
        connection.send(json.dumps(request).encode())
        return json.loads(connection.recv(_PACKET_BYTES))


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            request = json.loads(connection.recv(_PACKET_BYTES))
            answer: Any = _list() if request["do"] == "list" else _end(request["name"])
            with contextlib.suppress(OSError):  # the process may have ended, and the test with it
                connection.send(json.dumps(answer).encode())


def _list() -> list[str]:
    """The names of all threads that run Python, and of all tasks that are not done."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    names = [threads.get(ident, f"unknown to threading: {ident}") for ident in sys._current_frames()]
    return names + [name for name, _ in _tasks()]


def _tasks() -> list[tuple[str, asyncio.Task[Any]]]:
    found = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    return [(TASK + getattr(each.get_coro(), "__qualname__", "?"), each) for each in found]


def _end(name: str) -> bool:
    """Raise in it; True when the exception was raised there."""
    EndedByTest.made.clear()
    if name.startswith(TASK):
        task = next(task for each, task in _tasks() if each == name)
        task.get_loop().call_soon_threadsafe(_break, task)
        return EndedByTest.made.wait(_WITHIN_S)
    if name in LOOPS:
        _tasks()[0][1].get_loop().call_soon_threadsafe(_raise_in_loop)
        return EndedByTest.made.wait(_WITHIN_S)
    thread = next(each for each in threading.enumerate() if each.name == name)
    if thread is threading.main_thread():
        os.kill(os.getpid(), signal.SIGUSR2)
        return EndedByTest.made.wait(_WITHIN_S)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(EndedByTest))
    for _ in range(round(_WITHIN_S / _LOOK_S)):
        _wake(thread)
        if EndedByTest.made.wait(_LOOK_S):
            return True
    return False


def _raise(_number: int, _frame: object) -> None:
    raise EndedByTest


def _raise_in_loop() -> None:
    raise LoopEndedByTest


def _break(task: asyncio.Task[Any]) -> None:
    waits_for: asyncio.Future[Any] | None = task._fut_waiter  # type: ignore[attr-defined]  # what it awaits now
    if waits_for is None or waits_for.done():  # it is about to go on: at its next wait
        task.get_loop().call_soon(_break, task)
    else:
        waits_for.set_exception(EndedByTest())


def _wake(thread: threading.Thread) -> None:
    """An exception from another thread is raised at the next step of Python: end the wait that the thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        waiter = frame.f_locals.get("waiter")
        if frame.f_code is threading.Condition.wait.__code__ and waiter is not None:
            with contextlib.suppress(RuntimeError):  # it was woken already
                waiter.release()
            return
        put: Callable[[None], None] | None = getattr(getattr(frame.f_locals.get("self"), "_runs", None), "put", None)
        if put is not None:
            put(None)
            return
        frame = frame.f_back
