"""What holds for every test: loopback only, a clean environment, nothing left running.

A test that needs a system program calls :func:`require_program`::

    from tests.conftest import require_program

    def test_a_printed_label_reads_with_zbar(tmp_path):
        zbarimg = require_program("zbarimg", "zbar-tools")
"""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.support import canary
from tests.support.mosquitto import Mosquitto, find_mosquitto, mosquitto

ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Time is never what a property test checks, and a busy machine is no failure: no deadline, no "too slow".
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples on every run: a red build is always this change's doing, and repeats on any machine.
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, print_blob=True)
# Before a release: HYPOTHESIS_PROFILE=long make test
settings.register_profile("long", parent=settings.get_profile("dev"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if ON_CI else "dev"))


# --- programs of the system -------------------------------------------------------------------------------------


def require_program(name: str, package: str | None = None) -> str:
    """The path of a system program that this test needs.

    A machine without it skips the test and says what to install; on CI it fails, since a skip there would be a hole.

    Args:
        name: the program, as typed in a shell.
        package: the Debian package that brings it; the program's own name by default.
    """
    path = shutil.which(name)
    if not path:
        reason = f"the program {name!r} is missing: apt-get install {package or name}"
        do_without(reason, "add it to PACKAGES in .ci/run")
    return path


def do_without(reason: str, fix: str) -> NoReturn:
    """This machine lacks what the test needs: skip it, or fail on CI, where a skip would be a hole.

    Args:
        reason: what is missing.
        fix: how to bring it to CI.
    """
    if ON_CI:
        pytest.fail(f"{reason} ({fix})", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of tests that are coroutines (``pytest.mark.anyio``)."""
    return "asyncio"


@pytest.fixture(name="require_program")
def _require_program() -> Callable[..., str]:
    """:func:`require_program` for tests that rather take it as a fixture."""
    return require_program


@pytest.fixture(autouse=True, scope="session")
def _shortcuts() -> Iterator[None]:
    """Where tests have a service in this process; to import one takes most of a second, and some runs have none."""
    if "simulator.service.db" not in sys.modules:
        yield
        return
    from tests.support import shortcuts

    with shortcuts.taken():
        yield


# --- the broker -------------------------------------------------------------------------------------------------


@pytest.fixture
def start_mosquitto(tmp_path: Path) -> Iterator[Callable[..., Mosquitto]]:
    """Start brokers with :func:`tests.support.mosquitto.mosquitto`; all of them end with the test."""
    program = find_mosquitto() or require_program("mosquitto")
    with contextlib.ExitStack() as stack:

        def start(*settings: str, **options: Any) -> Mosquitto:
            folder = tmp_path / f"broker-{len(started)}"
            started.append(stack.enter_context(mosquitto(program, folder, settings, **options)))
            return started[-1]

        started: list[Mosquitto] = []
        yield start


# --- a clean environment ----------------------------------------------------------------------------------------

_OUR_PREFIXES = ("DEVICE_AGENT_", "FLEET_SIMULATOR_", "DEVICE_GATEWAY_")
_SERVICE_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY")


def pytest_configure(config: pytest.Config) -> None:
    """Forget what the developer's shell has set, and guard the network, before anything of ours is imported."""
    # A run that a shell has put into the background ignores Ctrl-C, and so would every program that it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of processes would compile the same modules again, each of them for a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(_OUR_PREFIXES) or name in _SERVICE_MANAGER:
            del os.environ[name]
    if not _guard:
        _guard.append(_NetworkGuard())
        sys.addaudithook(_guard[0])
    canary.install(config)
    # Thousands of tests are made, none of them garbage: looked through again and again, they took three fifths of
    # the time that it takes to collect them.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there now stays: the collector of garbage need not look at thousands of tests again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _logging_as_found() -> Iterator[None]:
    """A program that a test runs in this process sets up logging for itself alone."""
    root = logging.getLogger()
    handlers, level, disabled, raising = list(root.handlers), root.level, root.manager.disable, logging.raiseExceptions
    yield
    for handler in [h for h in root.handlers if h not in handlers]:
        root.removeHandler(handler)
    for handler in [h for h in handlers if h not in root.handlers]:
        root.addHandler(handler)
    root.setLevel(level)
    logging.disable(disabled)
    logging.raiseExceptions = raising


# --- the network ends at loopback -------------------------------------------------------------------------------


class ForbiddenConnectionError(RuntimeError):
    """A test reached for something beyond this machine."""


class _NetworkGuard:
    """An audit hook: it sees every connection of Python's sockets, whichever library opens it.

    Hooks cannot be removed, so there is one for the whole run. It refuses and takes note; the note fails the test
    even when the code under test swallows the refusal.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not event.startswith("socket."):
            return
        if event in {"socket.connect", "socket.sendto"}:
            address = arguments[1]
            if isinstance(address, tuple) and not _is_loopback(address[0]):
                self._refuse(f"{event} to {address[0]}:{address[1]}")
        elif event == "socket.getaddrinfo" and not _needs_no_resolver(arguments[0]):
            self._refuse(f"name resolution of {arguments[0]!r}")

    def _refuse(self, what: str) -> None:
        self.refused.append(what)
        raise ForbiddenConnectionError(f"{what}: tests talk to loopback only")


def _is_loopback(host: Any) -> bool:
    if host in {"localhost", b"localhost", ""}:
        return True
    try:
        return ipaddress.ip_address(str(host).split("%", 1)[0]).is_loopback
    except ValueError:
        return False


def _needs_no_resolver(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(str(host).split("%", 1)[0])
    except ValueError:
        return False
    return True


_guard: list[_NetworkGuard] = []


@pytest.fixture(autouse=True)
def _loopback_only() -> Iterator[None]:
    """Fail the test that reached beyond this machine."""
    refused = _guard[0].refused
    yield
    if refused:
        what = ", ".join(refused)
        refused.clear()
        pytest.fail(f"the test left this machine: {what}", pytrace=False)


# --- nothing is left running ------------------------------------------------------------------------------------

# A thread that is about to end ends in this time, however busy the machine is.
_JOIN_GRACE_S = 30.0
_OWN_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Fail the test that leaves a thread or a child process behind; fixtures of a wider scope keep theirs."""
    threads_before = set(threading.enumerate())
    children_before = _child_ids()
    yield
    threads = [t for t in threading.enumerate() if t not in threads_before and not t.daemon]
    for thread in threads:
        thread.join(_JOIN_GRACE_S)
    left = [f"thread {thread.name!r}" for thread in threads if thread.is_alive()]
    left += [_end_child(pid) for pid in sorted(_child_ids() - children_before) if not _is_python_own(pid)]
    if left:
        pytest.fail(f"the test left running: {', '.join(left)}", pytrace=False)


def _child_ids() -> set[int]:
    """The ids of this process's children, zombies included; empty where there is no /proc."""
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in children.read_text().split())
        except OSError:  # that thread has just ended; its children are listed under another one
            continue
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _is_python_own(pid: int) -> bool:
    return any(name in _command_line(pid) for name in _OWN_CHILDREN)


def _end_child(pid: int) -> str:
    """Kill and reap a child that a test left, and say what it was."""
    what = f"process {pid} ({_command_line(pid) or 'ended, but nobody waited for it'})"
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
    return what
