"""The service seen from outside: by the service manager, by its status file, and by the doctor of another version."""

from __future__ import annotations

import json
import math
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.release.judge import Seen
from agent.release.places import SERVICE, Places
from agent.release.state import now_s
from agent.release.unpack import python_folder

USER: Final = "device-agent"
DOCTOR_FAILED: Final = "doctor"
"""Stands for a doctor that could not say anything."""

_COMMAND_S: Final = 30.0
_DOCTOR_S: Final = 300.0
_MOST_BYTES: Final = 1024 * 1024
_LINK: Final = "commands"
_ALIVE: Final = "WatchdogTimestampMonotonic"
_WATCHDOG: Final = "WatchdogUSec"
_DOCTOR: Final = """
import sys
sys.path[:0] = sys.argv[1:3]
from agent.cli import main
sys.argv = ["device-agent", "doctor", "--json", "--offline", "--config", sys.argv[3]]
main()
"""


def ask_systemd(places: Places, *words: str) -> str:
    """Run ``systemctl``; what it printed, and nothing when it failed.

    Args:
        places: where it is.
        words: its arguments.
    """
    try:
        done = subprocess.run(
            (str(places.systemctl), *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{places.systemctl} {' '.join(words)}: {error}")
        return ""
    if done.returncode != 0:
        log_line(f"{places.systemctl} {' '.join(words)}: {done.stderr.decode('utf-8', 'replace').strip()[:200]}")
    return done.stdout.decode("utf-8", "replace")


def service_state(places: Places) -> Mapping[str, str]:
    """``ActiveState``, ``MainPID``, watchdog and its last message; empty when the service manager does not answer."""
    text = ask_systemd(places, "show", f"--property=ActiveState,MainPID,{_WATCHDOG},{_ALIVE}", SERVICE)
    return dict(line.partition("=")[::2] for line in text.splitlines())


def look(places: Places) -> Seen:
    """The service as it is now."""
    state = service_state(places)
    number = state.get("MainPID", "0")
    process_id = int(number) if number.isdecimal() else 0
    status = _status(places.runtime / "status.json")
    if status.get("process_id") != process_id:
        status = {}
    parts = status.get("parts")
    part = parts.get(_LINK) if isinstance(parts, dict) else None
    link = part if isinstance(part, dict) else {}
    detail = " ".join(f"{link.get('state', 'nothing heard')} {link.get('detail', '')}".split())[:200]
    return Seen(
        is_ready=state.get("ActiveState") in {"active", "reloading"},
        process_id=process_id,
        version=str(status.get("version", "")),
        is_connected=link.get("state") == "ok",
        detail=detail,
        alive_s=_alive_s(state),
    )


def _alive_s(state: Mapping[str, str]) -> float:
    """When the service last said that it makes progress, seconds of :func:`agent.release.state.now_s`; 0: never.

    Without a watchdog it has nobody to say it to, and is taken to be alive.
    """
    if state.get(_WATCHDOG) in {"0", "infinity"}:
        return math.inf
    text = state.get(_ALIVE, "")
    if not text.isdecimal() or int(text) == 0:
        return 0.0
    return int(text) / 1e6 + now_s() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _status(path: Path) -> dict[str, object]:
    """The agent's status file, at most so many bytes of it, and no link: the agent's user may put anything there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def failed_checks(places: Places, libraries: Path) -> dict[str, str]:
    """The checks that fail when the doctor of this version looks, without the network: name -> what it saw.

    It runs as the agent's user. Of a doctor that could not be run, :data:`DOCTOR_FAILED` failed.

    Args:
        places: of this device.
        libraries: of the version whose doctor looks.
    """
    folders = (str(libraries / python_folder()), str(libraries / "common"))
    command = (sys.executable, "-I", "-c", _DOCTOR, *folders, str(places.agent_configuration))
    user = _agent_user(places)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DOCTOR_S,
            check=False,
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "RUNTIME_DIRECTORY": str(places.runtime)},
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        found = json.loads(done.stdout)
        return {each["id"]: f"{each['seen']} {each['cause']}" for each in found if each["verdict"] == "failed"}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return {DOCTOR_FAILED: f"it could not be asked: {error}"[:200]}


def _agent_user(places: Places) -> str | None:
    """The user of the agent; None where everything belongs to whoever runs this."""
    if places.root != Path("/"):
        return None
    try:
        return pwd.getpwnam(USER).pw_name
    except KeyError:
        return None


def log_line(text: str) -> None:
    """A line for the journal of the unit, or for the terminal."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is where it goes
