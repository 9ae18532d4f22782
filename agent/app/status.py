"""The status of an agent: the file in which a running one keeps it, and what other processes learn from that.

The file lies in ``$RUNTIME_DIRECTORY`` where the service manager gives one (a RAM disk: no flash is written), else in
the state directory. It is replaced only when the state of some part changes, or when somebody asks by SIGUSR1 what the
store holds: no other process can read the store of a running agent.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from agent.app.lock import holder_of
from agent.config import AgentConfig
from agent.errors import ConfigurationError, StorageError
from agent.files import read_plain_file, replace_file
from agent.health import Part
from agent.store.sqlite import FILE_NAME as STORE
from agent.store.status import StoreStatus, read_store_status
from agent.wire.secret import mask_json
from agent.wire.server import PROFILE_SETTING, describe, read_profile

FILE_NAME: Final = "status.json"
_MAX_BYTES: Final = 1024 * 1024
_ANSWERS_WITHIN_S: Final = 5.0
_ASK_EVERY_S: Final = 0.5
_CHECK_EVERY_S: Final = 0.02


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
    replace_file(path, json.dumps(mask_json(asdict(status))), 0o600)


@cache
def _adapter() -> TypeAdapter[StatusFile]:
    return TypeAdapter(StatusFile)  # made where a file is read; the running agent only writes


def read_status(path: Path) -> StatusFile | None:
    """The status that the last process wrote, without what this version does not know; None when it cannot be read."""
    try:
        return _adapter().validate_json(read_plain_file(path, _MAX_BYTES))
    except (OSError, ValueError):
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


# --- seen from another process ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The status of the agent, while it runs and after it died.

    Attributes:
        state: see :func:`process_state`.
        process_id: of the running agent.
        last_status: the last status that a process of the agent wrote.
        store: what journal and outbox hold; None when there is no store or it cannot be read.
        store_fault: why it cannot be read; empty when it can.
        server: what the agent found out about its server, one phrase each.
    """

    state: str
    state_dir: Path
    process_id: int | None
    last_status: StatusFile | None
    store: StoreStatus | None
    store_fault: str = ""
    server: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether the agent runs and all its parts are in order."""
        parts = self.last_status.parts.values() if self.last_status else ()
        return self.state == "running" and not self.store_fault and all(part.state == "ok" for part in parts)


def read_running(config: AgentConfig, environ: Mapping[str, str]) -> StatusFile | None:
    """The status of the agent that runs; None when none runs, or its file may not be read."""
    return _last_status(config, environ) if holder_of(config.state_dir) is not None else None


def _last_status(config: AgentConfig, environ: Mapping[str, str]) -> StatusFile | None:
    paths = [status_path(config.state_dir, environ), config.state_dir / FILE_NAME, Path("/run/device-agent", FILE_NAME)]
    return newest_status(paths, config.device.device_id)


def read_agent_status(config: AgentConfig, environ: Mapping[str, str]) -> AgentStatus:
    """The status of the agent: a running one is asked what its store holds (SIGUSR1), else its file is read."""
    holder = holder_of(config.state_dir)
    last_status = _last_status(config, environ)
    store: StoreStatus | None = None
    fault = ""
    if holder:
        last_status, fault = _ask(holder, lambda: _last_status(config, environ))
        store = None if last_status is None else last_status.store
    elif holder is None:
        try:
            store = read_store_status(config.state_dir / STORE)
        except (StorageError, ConfigurationError) as error:
            fault = str(error)
    profile = None if store is None else read_profile(store.settings.get(PROFILE_SETTING))
    server: tuple[str, ...] = ()
    if config.service is not None and profile is not None and profile.address == config.service.base_url:
        server = describe(profile, config.service.dialect.dialect())
    if last_status is not None:
        last_status = replace(last_status, store=None)
    state = process_state(holder, last_status, has_store=store is not None)
    return AgentStatus(state, config.state_dir, holder, last_status, store, fault, server)


def _ask(process_id: int, read: Callable[[], StatusFile | None]) -> tuple[StatusFile | None, str]:
    """The status that the running agent writes now, and why it did not; empty when it did.

    It is asked again and again: a status that the agent writes for another reason replaces one with an answer.
    """
    before = read()
    begun_s = ask_s = time.monotonic()
    while (now_s := time.monotonic()) < begun_s + _ANSWERS_WITHIN_S:
        if now_s >= ask_s:
            try:
                os.kill(process_id, signal.SIGUSR1)
            except OSError as error:
                why = f"the running agent cannot be asked what its store holds: {error.strerror}: run this as its user"
                return before, why
            ask_s = now_s + _ASK_EVERY_S
        found = read()
        if found is not None and found.store is not None and found != before:
            return found, ""
        time.sleep(_CHECK_EVERY_S)  # the answer is a file that the agent writes
    return read(), f"the running agent did not say within {_ANSWERS_WITHIN_S:g} s what its store holds: look at its log"
