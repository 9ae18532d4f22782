"""Canary secrets: keys and tokens that the whole test run watches for in everything that is written.

Tests give real processes secrets that hold :data:`MARK`, or name one made at random with :func:`watch`. A secret
that turns up anywhere but in a file that is meant to hold it fails the run: in a log, a database, a status file, a
report, in captured output, in a traceback, in what a program prints, or in a process's command line or environment.

How: what a test prints and logs is searched when it ends; every file below pytest's temporary directory, and so each
log and database of each process, is searched when the run (with xdist: each worker) ends; an audit hook sees the
arguments and the environment of each process that is started.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

MARK = "CanarySecret7f3a9c"
"""In every secret of the tests that run real processes."""

SECRET_KEY = f"msk_bench_{MARK}"
DEVICE_TOKEN = f"device-token-{MARK}"

# Secrets that programs make themselves: the simulator's keys, the gateway's device tokens, a sender's private key.
_MADE = re.compile(rb"msk_local_[0-9a-f]{40}|\bdat_[0-9A-Za-z]{30,}|MC4CAQAwBQYDK2VwBCIEI[\w+/]{10}")
_HINTS = (b"msk_local_", b"dat_", b"MC4CAQAwBQYDK2VwBCIEI")

# Files that are there to hold a secret, and why. Everything else is searched.
MEANT_TO_HOLD = {
    "secret_key": "the agent's or the gateway's key file",
    "secret": "a key file of a test",
    "token": "a device's token file",
    "headers": "options of the curl device, docs/protocol.md",
    "token.json": "tokens that renew themselves",
    ".token.json.new": "the same, while it is written",
    "*.key": "a private key",
    "client_secret": "the key file of a confidential client",
}

_CHUNK = 1 << 20
_OVERLAP = 256


def _spellings(secret: str) -> list[bytes]:
    """The secret as it is, and in base64 as it would stand inside something longer."""
    raw = secret.encode()
    found = [raw]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        start = (shift * 8 + 5) // 6
        found.append(encoded[start : start + (len(raw) * 8 - 8) // 6])
    return found


_watched: dict[bytes, str] = dict.fromkeys(_spellings(MARK), "the canary")


def watch(secret: str, name: str) -> str:
    """Watch for this one as well, from now on; it comes back unchanged."""
    _watched.update(dict.fromkeys(_spellings(secret), name))
    return secret


def forget(name: str) -> None:
    """Watch no longer for what has this name."""
    for secret in [secret for secret, known in _watched.items() if known == name]:
        del _watched[secret]


def leaks_in(content: bytes) -> list[str]:
    """What of the watched secrets is in there; never the secret itself."""
    found = {name for secret, name in _watched.items() if secret in content}
    if any(hint in content for hint in _HINTS):
        found |= {f"a secret that begins with {match[0][:9].decode()}" for match in _MADE.finditer(content)}
    return sorted(found)


def leaks_in_file(path: Path) -> list[str]:
    """As :func:`leaks_in`, for a file of any size."""
    found: set[str] = set()
    with contextlib.suppress(OSError), path.open("rb") as file:
        before = b""
        while chunk := file.read(_CHUNK):
            found.update(leaks_in(before + chunk))
            before = chunk[-_OVERLAP:]
    return sorted(found)


def is_meant_to_hold(path: Path) -> bool:
    """Whether a secret may stand in this file."""
    return any(fnmatch(path.name, pattern) for pattern in MEANT_TO_HOLD)


def leaks_below(folder: Path) -> Iterator[str]:
    """One sentence for each file below the folder that holds what it should not; pytest's links are not followed."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode) and not is_meant_to_hold(path):
                    for leak in leaks_in_file(path):
                        yield f"{path}: {leak}"


def leaks_of_process(pid: int) -> Iterator[str]:
    """One sentence for each secret in what everybody may read of a process, and of its children."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            for leak in leaks_in(Path(f"/proc/{pid}/{name}").read_bytes()):
                yield f"the {name} of process {pid}: {leak}"
    children: list[str] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += listing.read_text().split()
    for child in children:
        yield from leaks_of_process(int(child))


class Watch:
    """The plugin: it searches, and ends the run as failed when something was found."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.test = ""
        self._is_over = False

    def note(self, leaks: Iterable[str], where: str = "") -> None:
        """Remember leaks, with the test in which they were found."""
        prefix = f"{self.test}: " if self.test else ""
        self.found += [f"{prefix}{where}{leak}" for leak in leaks]

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See :func:`sys.addaudithook`."""
        if self._is_over or event != "subprocess.Popen":
            return
        _program, words, _directory, environ = arguments
        # What a test pastes into a shell, as a person would, may be a line that was shown with its key.
        if list(words[:2]) != ["sh", "-c"]:
            self.note(leaks_in(b"\0".join(map(os.fsencode, words))), "the arguments of a process: ")
        given = os.environ if environ is None else environ
        text = b"\0".join(os.fsencode(name) + b"=" + os.fsencode(value) for name, value in given.items())
        self.note(leaks_in(text), "the environment of a process: ")

    def search_outputs_of_programs(self) -> None:
        """What ``subprocess.run`` brings back is searched from now on."""
        original = subprocess.Popen.communicate

        def communicate(popen: Any, *arguments: Any, **options: Any) -> Any:
            outputs = original(popen, *arguments, **options)
            for output in outputs:
                if output and not self._is_over:
                    raw = output.encode("utf-8", "replace") if isinstance(output, str) else output
                    # A new device token is shown once, to whoever asked for it on the command line.
                    self.note([leak for leak in leaks_in(raw) if "dat_" not in leak], "what a program printed: ")
            return outputs

        subprocess.Popen.communicate = communicate  # type: ignore[method-assign] - for this test run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        self.test = item.nodeid
        outcome: Any = yield
        report = outcome.get_result()
        texts = [text for _, text in report.sections]
        if report.longrepr is not None:
            texts.append(str(report.longrepr))
        for text in texts:
            self.note(leaks_in(text.encode("utf-8", "replace")), "what it printed, logged or raised: ")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.test = ""
        factory = getattr(session.config, "_tmp_path_factory", None)
        # With xdist the controller runs no tests; its folder holds those of the workers, which search them.
        is_worker = hasattr(session.config, "workerinput")
        is_controller = not is_worker and bool(getattr(session.config.option, "numprocesses", None))
        if factory is not None and factory._basetemp is not None and not is_controller:
            self.note(leaks_below(factory._basetemp))
        self._is_over = True
        self.found = list(dict.fromkeys(self.found))
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["canary"] = self.found
        elif self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.found += getattr(node, "workeroutput", {}).get("canary", [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.found:
            terminalreporter.section("secrets where they do not belong", sep="=", red=True)
            for leak in self.found:
                terminalreporter.write_line(leak)


_installed: list[Watch] = []


def install(config: pytest.Config) -> None:
    """Watch from now on; once for a process, since an audit hook stays for ever."""
    if not _installed:
        _installed.append(Watch())
        sys.addaudithook(_installed[0].audit)
        _installed[0].search_outputs_of_programs()
    config.pluginmanager.register(_installed[0], "canary")


def check_process(pid: int) -> None:
    """Look at a running process now."""
    if _installed:
        _installed[0].note(leaks_of_process(pid))


def check_output(text: str) -> None:
    """Look at what a process wrote."""
    if _installed:
        _installed[0].note(leaks_in(text.encode("utf-8", "replace")), "what a process wrote: ")
