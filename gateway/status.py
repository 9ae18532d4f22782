"""Gateway status, read from its files by another process: while it runs and after it crashed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.adapters.store.failures import explain
from agent.app.lock import holder_of
from agent.app.status_file import StatusFile, newest_status, process_state, status_path
from agent.errors import ConfigurationError, StorageError
from gateway.config import GatewayConfig
from gateway.store.command_rows import CommandRows
from gateway.store.reading_rows import ReadingRows
from gateway.store.schema import FILE_NAME, SCHEMA
from gateway.store.totals import Counters, Usage
from gateway.store.values import StoreBounds, StoreStats

WHO: Final = "gateway"
"""Whom the status file is of."""

_RUNTIME: Final = Path("/run/device-gateway/status.json")
_REASONS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """What can be known without asking the gateway.

    Attributes:
        state: ``running``, ``stopped``, ``died`` (crashed: it left no stop record) or ``never started``.
        process_id: of the running gateway.
        last_status: the last status that a process wrote.
        store: what the store holds; None when there is none or it cannot be read.
        reasons: why the service refused what is set aside, the newest first.
        incidents: what happened to the store's file.
        store_fault: why it cannot be read; empty when it can.
    """

    state: str
    state_dir: Path
    process_id: int | None
    last_status: StatusFile | None
    store: StoreStats | None
    reasons: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    store_fault: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether it runs and every part of it is well."""
        parts = self.last_status.parts.values() if self.last_status else ()
        return self.state == "running" and not self.store_fault and all(part.state == "ok" for part in parts)


def read_gateway_status(config: GatewayConfig, environ: Mapping[str, str]) -> GatewayStatus:
    """Read files alone: nothing is written, and the running program is not disturbed."""
    state_dir = config.state_dir
    holder = holder_of(state_dir)
    last_status = newest_status([status_path(state_dir, environ), status_path(state_dir, {}), _RUNTIME], WHO)
    found: tuple[StoreStats | None, tuple[str, ...], tuple[str, ...]] = (None, (), ())
    fault = ""
    try:
        found = _read_store(state_dir / FILE_NAME)
    except (StorageError, ConfigurationError) as error:
        fault = str(error)
    state = process_state(holder, last_status, has_store=found[0] is not None)
    return GatewayStatus(state, state_dir, holder, last_status, *found, fault)


def _read_store(path: Path) -> tuple[StoreStats | None, tuple[str, ...], tuple[str, ...]]:
    if not path.exists():
        return None, (), ()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)) as connection:
            if SCHEMA.read_version(connection, path) is None:
                return None, (), ()
            counters, usage = Counters(connection), Usage(connection, StoreBounds())
            readings = ReadingRows(connection, counters, usage)
            stats = StoreStats(
                usage.readings,
                usage.size_bytes,
                readings.oldest_wall_s(),
                usage.results,
                CommandRows(connection, counters, usage).by_state(),
                readings.count_set_aside(),
                counters.all(),
            )
            reasons = connection.execute(
                "SELECT kind || ' of ' || device_id || ': ' || reason FROM set_aside ORDER BY seq DESC LIMIT ?",
                (_REASONS_SHOWN,),
            )
            incidents = connection.execute("SELECT text FROM incident ORDER BY id DESC LIMIT ?", (_REASONS_SHOWN,))
            return stats, tuple(row[0] for row in reasons), tuple(row[0] for row in incidents)
    except sqlite3.Error as error:
        raise explain(error, path) from error
