"""The folder of a run: journal, audit trail, and the reports beside them."""

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
from simulator.onboarding import audit_trail
from simulator.onboarding import journal as journals
from simulator.onboarding.audit_trail import AuditFile, AuditTrail, NoAuditTrail
from simulator.onboarding.journal import Journal, leftovers, read_journal
from simulator.report_parts.checks import CheckRun
from simulator.report_parts.checks_page import checks_page
from simulator.report_parts.junit import junit_xml


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is being written down.

    Attributes:
        run: its id.
        journal: in memory only when the run has no folder.
        trail: records every request.
    """

    run: str
    journal: Journal
    trail: AuditTrail


@contextlib.contextmanager
def open_run(out: Path | None, header: dict[str, Any], *, resumable: bool) -> Iterator[OpenRun]:
    """The journal and the trail of a run for the length of the block.

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
        yield OpenRun(run, Journal(None, {"run": run, **header}), NoAuditTrail())
        return
    _clear(out, resumable=resumable)
    with Journal(out / journals.NAME, {"run": run, **header}) as journal:
        run = str(journal.header["run"])
        with AuditFile(out / audit_trail.NAME, run) as trail:
            yield OpenRun(run, journal, trail)


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
    for name in (journals.NAME, audit_trail.NAME):
        (out / name).unlink(missing_ok=True)


def write_reports(out: Path, checks: CheckRun, document: dict[str, Any], **more: str) -> list[Path]:
    """Write ``report.html``, ``junit.xml``, ``report.json`` and further files, whole or not at all.

    Args:
        out: the folder.
        checks: for the page and the JUnit file.
        document: the report as JSON.
        more: stem of a JSON file to its text.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    files = {
        "report.html": checks_page(checks),
        "junit.xml": junit_xml(checks),
        "report.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        **{f"{stem}.json": text for stem, text in more.items()},
    }
    return [write_whole(out / name, text) for name, text in files.items()]


def write_whole(path: Path, text: str) -> Path:
    """Write a file under another name and rename it.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return whole_files.write_whole(path, text)
    except OSError as problem:
        raise ConfigurationError([whole_files.cannot_write(path, problem, "another --out")], "--out") from None
