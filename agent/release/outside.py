"""The service seen from outside: by the service manager and by its status file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.release.judge import Seen
from agent.release.places import SERVICE, Places
from agent.release.state import now_s

_COMMAND_S: Final = 30.0
_MOST_BYTES: Final = 1024 * 1024
_TEXT: Final = 200
_LINK: Final = "commands"
_ALIVE: Final = "WatchdogTimestampMonotonic"
_WATCHDOG: Final = "WatchdogUSec"
_LOCAL_PARTS: Final = frozenset({"store", "journal", "outbox", "configuration", "mode"})
"""Of the agent's parts those that no network and no server can spoil."""
_READY: Final = "ready"


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
    parts = _texts(status.get("parts"))
    link = parts.get(_LINK, {})
    working, faults = _plugins(status.get("plugins"), parts)
    faults |= {name: _why(parts[name]) for name in _LOCAL_PARTS & parts.keys() if parts[name].get("state") != "ok"}
    detail = _why(link) or "nothing heard"
    return Seen(
        is_ready=state.get("ActiveState") in {"active", "reloading"},
        process_id=process_id,
        version=str(status.get("version", "")),
        is_connected=link.get("state") == "ok",
        detail=detail,
        alive_s=_alive_s(state),
        working=frozenset(working),
        faults=faults,
    )


def _texts(parts: object) -> dict[str, dict[str, object]]:
    """The parts of a status file; what is none is left out."""
    found = parts.items() if isinstance(parts, dict) else ()
    return {str(name): part for name, part in found if isinstance(part, dict)}


def _plugins(states: object, parts: Mapping[str, Mapping[str, object]]) -> tuple[set[str], dict[str, str]]:
    """The handlers and sensors that work, and why the others do not. A sensor works once it has been read."""
    working: set[str] = set()
    faults: dict[str, str] = {}
    for name, state in states.items() if isinstance(states, dict) else ():
        part = parts.get(name, {"state": "not read yet"}) if name.startswith("sensor:") else {"state": "ok"}
        if state == _READY and part.get("state") == "ok":
            working.add(name)
        else:
            faults[name] = _why(part) if state == _READY else str(state)[:_TEXT]
    return working, faults


def _why(part: Mapping[str, object]) -> str:
    return " ".join(f"{part.get('state', '')} {part.get('detail', '')}".split())[:_TEXT]


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


def log_line(text: str) -> None:
    """A line for the journal of the unit, or for the terminal."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is where it goes
