"""The folder of a run: its journal, and the report beside it."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError
from simulator import whole_files
from simulator.onboarding import journal as journals
from simulator.onboarding.journal import Journal, leftovers, read_journal


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is being written down.

    Attributes:
        run: its id.
        journal: in memory only when the run has no folder.
    """

    run: str
    journal: Journal


@contextlib.contextmanager
def open_run(out: Path | None, header: dict[str, Any], *, resumable: bool) -> Iterator[OpenRun]:
    """The journal of a run for the length of the block.

    Args:
        out: the folder; None keeps the journal in memory.
        header: what the run is; the id is added.
        resumable: go on with a journal that is there, unless it was cleaned up; otherwise a run is begun anew, if
            nothing is left of the one before.

    Raises:
        ConfigurationError: the folder cannot be written, or holds another run.
    """
    run = secrets.token_hex(4)
    if out is None:
        yield OpenRun(run, Journal(None, {"run": run, **header}))
        return
    _clear(out, resumable=resumable)
    with Journal(out / journals.NAME, {"run": run, **header}) as journal:
        yield OpenRun(str(journal.header["run"]), journal)


def _clear(out: Path, *, resumable: bool) -> None:
    """Make room for a run that begins anew, since the one that is there is over or cannot be resumed."""
    path = out / journals.NAME
    if not path.exists():
        return
    entries = read_journal(path)[1] if path.stat().st_size else []
    if resumable and not any(entry["event"] == journals.CLEANED for entry in entries):
        return
    left = leftovers(entries).count
    if left:
        fix = f"'fleet-simulator onboard cleanup {out}' takes them back, or give another --out"
        raise ConfigurationError([f"{out} holds a run that left {left} thing(s) at its service: {fix}"], "--out")
    path.unlink(missing_ok=True)


def write_report(out: Path, document: dict[str, Any]) -> Path:
    """Write ``report.json``, whole or not at all.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    path = out / "report.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return whole_files.write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as problem:
        raise ConfigurationError([whole_files.cannot_write(path, problem, "another --out")], "--out") from None
