"""Agent status, read from its files by another process: while it runs and after it crashed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.app.lock import holder_of
from agent.app.status_file import StatusFile, newest_status, process_state, status_path
from agent.config import AgentConfig
from agent.errors import ConfigurationError, StorageError
from agent.store.sqlite import FILE_NAME
from agent.store.status import StoreStatus, read_store_status
from agent.wire.server import PROFILE_SETTING, describe, read_profile

_ANSWERS_WITHIN_S: Final = 5.0
_ASK_EVERY_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The status of the agent, as its files hold it.

    Attributes:
        state: ``running``, ``stopped``, ``died`` (crashed: it left no stop record) or ``never started``.
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
    own = status_path(config.state_dir, environ)
    in_state_dir = config.state_dir / own.name
    return newest_status([own, in_state_dir, Path("/run/device-agent", own.name)], config.device.device_id)


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
        time.sleep(_LOOK_EVERY_S)
    return read(), f"the running agent did not say within {_ANSWERS_WITHIN_S:g} s what its store holds: look at its log"


def read_agent_status(config: AgentConfig, environ: Mapping[str, str]) -> AgentStatus:
    """The status of the agent: a running one is asked what its store holds (SIGUSR1), else its file is read."""
    state_dir = config.state_dir
    holder = holder_of(state_dir)
    last_status = _last_status(config, environ)
    store: StoreStatus | None = None
    fault = ""
    if holder:
        last_status, fault = _ask(holder, lambda: _last_status(config, environ))
        store = None if last_status is None else last_status.store
    elif holder is None:
        try:
            store = read_store_status(state_dir / FILE_NAME)
        except (StorageError, ConfigurationError) as error:
            fault = str(error)
    server = () if store is None else _describe_server(store.settings, config)
    if last_status is not None:
        last_status = replace(last_status, store=None)
    state = process_state(holder, last_status, has_store=store is not None)
    return AgentStatus(state, state_dir, holder, last_status, store, fault, server)


def _describe_server(settings: Mapping[str, str], config: AgentConfig) -> tuple[str, ...]:
    """Phrases on the configured server, as the journal's settings have them; empty where it was another server."""
    found = read_profile(settings.get(PROFILE_SETTING))
    if config.service is None or found is None or found.address != config.service.base_url:
        return ()
    return describe(found, config.service.dialect.dialect())
