"""A run that was, in a few lines: ledgers are written, a service is made up, and the audit is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.errors import NotFound, Refused
from agent.wire.extensions import COMMAND_STATUS, LIST_PARAMETERS, RECORDED_AT
from agent.wire.times import to_rfc3339
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME, with_sequence
from simulator.fleet.audit.folder import AuditedDevice, ledger_path, write_devices
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.audit.run_audit import AuditSettings, audit_run
from simulator.fleet.record import AuditRecord

BEGAN_MS = 1_767_225_600_000


@dataclass
class MadeUpService:
    """What a service would give back. Lists may be changed before the audit.

    Attributes:
        rows: device id -> stored readings.
        listed: device id -> command records.
        ignores_device_id: every list holds the readings of all devices.
        refuses: query parameters that it answers with 400.
        page: items of a page.
        only_one_page: the first page is all that it gives.
        needs_device_id: readings without a device in the query are refused with 400.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    listed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ignores_device_id: bool = False
    refuses: frozenset[str] = frozenset()
    page: int = 2
    only_one_page: bool = False
    needs_device_id: bool = False
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def pages(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[list[Any]]:
        self.asked.append((path, query))
        if self.refuses & set(query):
            raise Refused(400, "validation_error", "no such parameter")
        if self.needs_device_id and path == "/sensor-data" and "device_id" not in query:
            raise Refused(400, "validation_error", "device_id is missing")
        if path == "/sensor-data":
            known = query.get("device_id") if not self.ignores_device_id else None
            if known is not None and known not in self.rows:
                raise NotFound(404, "device_not_found", "")
            rows = [row for device, its in self.rows.items() if known in {None, device} for row in its]
        else:
            rows = self.listed.get(path.split("/")[2], [])
        for begin in range(0, max(1, len(rows)), self.page):
            await asyncio.sleep(0)
            yield json.loads(json.dumps(rows[begin : begin + self.page]))
            if self.only_one_page:
                return


@dataclass
class Story:
    """Devices with a ledger, in front of a made-up service."""

    folder: Path
    ledger: FileLedger
    service: MadeUpService
    sequence_name: str | None = SEQUENCE_NAME
    first_number: int = 0

    def send(self, device: int, sequence: int, at_s: float, *, stored: bool = True, answered: bool = True) -> None:
        """One reading, one second after it was made; the answer comes 10 ms later."""
        values = {"temperature": 20 + sequence / 8}
        recorded_ms = BEGAN_MS + round(at_s * 1000) - 1000
        self.ledger.reading_made(device)
        self.ledger.reading_sent(
            device, sequence, digest_values(values), recorded_ms=recorded_ms, made_s=at_s - 1, at_s=at_s
        )
        if stored:
            self.store(device, sequence, at_s + 0.005, values, recorded_ms)
        if answered:
            self.ledger.readings_accepted(device, [sequence], at_s + 0.01)

    def store(self, device: int, sequence: int, at_s: float, values: dict[str, float], recorded_ms: int) -> None:
        """The service stores a reading."""
        row = {
            "id": f"r-{device}-{sequence}",
            "device_id": f"d-{device}",
            "sensor_data": with_sequence(values, sequence, self.first_number) if self.sequence_name else values,
            "recorded_at": to_rfc3339(recorded_ms / 1000),
            "received_at": to_rfc3339(BEGAN_MS / 1000 + at_s),
        }
        self.rows(device).append(row)

    def rows(self, device: int) -> list[dict[str, Any]]:
        """The service's rows of a device, to be changed."""
        return self.service.rows.setdefault(f"d-{device}", [])

    def listed(self, device: int) -> list[dict[str, Any]]:
        """The service's commands of a device, to be changed."""
        return self.service.listed.setdefault(f"d-{device}", [])

    def audit(self, **settings: Any) -> AuditRecord:
        """Close the ledgers and audit."""
        self.ledger.close()
        return asyncio.run(
            audit_run(self.folder, self.service.pages, AuditSettings(**settings), lambda _done, _total: None)
        )


@contextmanager
def story(folder: Path, devices: int = 4, *, offers: tuple[str, ...] = (), plain: bool = False, **header: Any):
    """A run with so many devices; of a plain service, or of one whose lists take parameters and tell of commands."""
    offers = offers if plain else (*offers, LIST_PARAMETERS, COMMAND_STATUS, RECORDED_AT)
    made = LedgerHeader(worker=0, first_device=0, devices=devices, began_ms=BEGAN_MS, offers=offers, **header)
    write_devices(folder, (AuditedDevice(n, f"d-{n}", f"sim-{n}") for n in range(devices)))
    service = MadeUpService({f"d-{n}": [] for n in range(devices)})
    ledger = FileLedger(ledger_path(folder, 0), made)
    try:
        yield Story(folder, ledger, service, made.sequence_name, made.first_number)
    finally:
        ledger.close()
