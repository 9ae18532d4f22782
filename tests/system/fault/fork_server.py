"""A process that has imported everything and forks: an agent or a service starts in milliseconds instead of a second.

``python fork_server.py SOCKET PARENT_PID [MODULE:FUNCTION ...]``. A forked child is a process like any other: it has
its own files, sockets, threads and memory, its log, its environment, and runs the very entry point that the installed
program runs. What it does not do is to load the interpreter and the modules, which is no work of ours.

One request a packet, as JSON; the answer likewise. ``start`` forks and answers the process id, ``poll`` answers how a
child ended or null. Children are reaped by ``poll`` alone, so a process id that somebody holds cannot become another
process's meanwhile. When the socket closes, or its parent dies, everything ends.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PACKET_BYTES = 65536
_PROGRAMS = {
    "device-agent": "agent.cli:main",
    "device-gateway": "gateway.cli:main",
    "fleet-simulator": "simulator.cli:main",
}
_PACKAGES = ("agent", "gateway", "simulator.service", "simulator.cli")
# Modules that want to be the main one.
_LEFT_OUT = ("__main__",)


def main() -> None:
    """Serve until the socket closes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    _die_with_parent(int(sys.argv[2]))
    _import_everything()
    for change in sys.argv[3:]:
        _named(change)()
    gc.collect()
    gc.freeze()
    connection.send(b'{"ready": true}')
    children: set[int] = set()
    while packet := connection.recv(_PACKET_BYTES):
        request = json.loads(packet)
        if request["do"] == "start":
            pid = os.fork()
            if pid == 0:
                _become(connection, request)
            children.add(pid)
            answer: dict[str, Any] = {"pid": pid}
        else:
            answer = {"exit_code": _poll(request["pid"], children)}
        connection.send(json.dumps(answer).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _poll(pid: int, children: set[int]) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _become(connection: socket.socket, request: dict[str, Any]) -> NoReturn:
    """The child: what a fresh process has by itself, then the program."""
    exit_code = 1
    try:
        parent = os.getppid()
        connection.close()
        os.setsid()
        _die_with_parent(parent)
        _use_files(request)
        os.environ.clear()
        os.environ.update(request["environ"])
        random.seed()
        program, *arguments = request["argv"]
        sys.argv = [program, *arguments]
        # What a program that replaces itself by its own new image goes by.
        sys.orig_argv = [sys.executable, *sys.argv]
        exit_code = _run(_named(_PROGRAMS[program.rpartition("/")[2]]))
    except BaseException:  # noqa: BLE001 - nothing of the server may run on in the child
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _run(program: Any) -> int:
    try:
        program()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def _use_files(request: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    output = os.open(request["output"], os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600) if request["output"] else log
    for source, target in ((nothing, 0), (output, 1), (log, 2)):
        os.dup2(source, target)
    for each in {nothing, log, output}:
        os.close(each)


def _import_everything() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
            if not any(part in module.name for part in _LEFT_OUT):
                importlib.import_module(module.name)
    import httpx
    from pydantic import BaseModel

    from agent.plugins import installed_entry_points  # reads the metadata of every installed package

    for group in ("agent.handlers", "agent.sensors"):
        for point in installed_entry_points(group):
            point.load()
    # What httpx and pydantic put off until the first use.
    httpx.Client(trust_env=False, verify=False).close()  # noqa: S501 - it never connects
    for model in _subclasses(BaseModel):
        if model.__module__.startswith(("agent.", "gateway.", "fault_")):
            model.model_rebuild()


def _subclasses(base: type[Any]) -> list[type[Any]]:
    return [each for child in base.__subclasses__() for each in (child, *_subclasses(child))]


def _named(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew
        os._exit(1)


if __name__ == "__main__":
    main()
