"""The status of a running agent, and the file that holds it for ``device-agent status``.

The file lies in ``$RUNTIME_DIRECTORY`` where the service manager gives one (a RAM disk: no flash is written), else in
the state directory, and is replaced only when the state of some part changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from agent.files import read_plain_file
from agent.runtime.health import Part
from agent.store.status import StoreStatus
from agent.wire.secret import mask_json

FILE_NAME: Final = "status.json"
_MAX_BYTES: Final = 1024 * 1024
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class StatusFile:
    """The last status that one process wrote.

    Attributes:
        state: ``running`` or ``stopped``; a file that says running while the lock is free is of a dead process.
        written_wall_s: when, epoch seconds as the device believes.
        reason: why it stopped.
        packages: the packages whose plug-ins it has loaded, with their versions then.
        store: what the store held then; only where somebody had asked for it (SIGUSR1).
        plugins: its handlers and sensors, such as ``sensor:board`` -> ``ready``, or status and reason.
    """

    state: str
    process_id: int
    version: str
    device_id: str
    started_wall_s: float
    written_wall_s: float
    boot_id: str
    parts: Mapping[str, Part] = field(default_factory=dict)
    reason: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    store: StoreStatus | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)


def status_path(state_dir: Path, environ: Mapping[str, str]) -> Path:
    """Where the file is."""
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":", 1)[0]
    return Path(runtime or state_dir, FILE_NAME)


def write_status(path: Path, status: StatusFile) -> None:
    """Replace the file; it is whole at every instant.

    Raises:
        OSError: it could not be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    # Not synced: after a power cut the agent writes it anew, and the truth is in the store.
    with open(temporary, "w", encoding="utf-8", opener=_open_own) as file:
        os.fchmod(file.fileno(), _MODE)
        json.dump(mask_json(asdict(status)), file)
    temporary.replace(path)


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _MODE)


def read_status(path: Path) -> StatusFile | None:
    """The status that the last process wrote, without what this version does not know; None when it cannot be read."""
    try:
        members: dict[str, Any] = json.loads(read_plain_file(path, _MAX_BYTES))
        members = {each.name: members[each.name] for each in fields(StatusFile) if each.name in members}
        members["parts"] = {
            name: Part(part["state"], part["since_wall_s"], part.get("detail", ""))
            for name, part in members["parts"].items()
        }
        if members.get("store") is not None:
            members["store"] = TypeAdapter(StoreStatus).validate_python(members["store"])
        return StatusFile(**members)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def newest_status(paths: Iterable[Path], device_id: str) -> StatusFile | None:
    """The newest status file of this device among ``paths``; under systemd it lies on a RAM disk."""
    found = [status for path in dict.fromkeys(paths) if (status := read_status(path)) and status.device_id == device_id]
    return max(found, key=lambda status: status.written_wall_s, default=None)


def process_state(holder: int | None, last_status: StatusFile | None, *, has_store: bool) -> str:
    """``running``, ``stopped``, ``died`` (crashed: it left no stop record) or ``never started``.

    Args:
        holder: the process that holds the lock of the state directory.
        last_status: the last status that a process wrote.
        has_store: there is a store that can be read.
    """
    if holder is not None:
        return "running"
    if last_status is None:
        return "stopped" if has_store else "never started"
    return "died" if last_status.state == "running" else "stopped"
