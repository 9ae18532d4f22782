"""The audit as a consumer: a run of which everything is known is read back, as it was and with faults planted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from agent.wire.extensions import RECORDED_AT
from agent.wire.secret import Secret
from agent.wire.times import to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.fleet_ledger import with_sequence
from simulator.fleet.audit.folder import AuditedDevice, ledger_path, write_devices
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.audit.run_audit import AuditSettings, audit_run, exit_code_of_audit
from simulator.fleet.record import AuditRecord
from simulator.fleet.target.client import Keyring, open_client
from simulator.keys import Keys
from tests.servers.accounts import LocalAccount
from tests.servers.expectations import Expectations, check_elsewhere
from tests.servers.fronts import Fronts

READINGS = 12
LOST, DOUBLED, ALTERED = 2, 1, 1


def play_audit(account: LocalAccount, fronts: Fronts, folder: Path, wanted: Expectations) -> list[str]:
    """Audit a run in which nothing was lost, then with planted faults; what was wrong, empty when nothing was."""
    ids = [account.device() for _ in range(2)]
    _run(account, folder, ids, wanted)
    problems = []
    audit = _audit(account, folder, wanted)
    if exit_code_of_audit(audit) is not ExitCode.GOOD and wanted.reads_whole_lists:
        problems.append(f"nothing was lost, and it says: {audit.sentences}")
    rows = account.stored(ids[0])
    for row in rows[:LOST]:
        account.lose(row.row)
    account.double(rows[LOST].row)
    account.alter(rows[LOST + 1].row, {**rows[LOST + 1].values, "temperature": 99.5})
    audit = _audit(account, folder, wanted)
    code = exit_code_of_audit(audit)
    found = audit.readings and (audit.readings.lost, audit.readings.doubled, audit.readings.altered)
    if code is ExitCode.DATA_LOST and found != (LOST, DOUBLED, ALTERED):
        problems.append(f"planted {(LOST, DOUBLED, ALTERED)}, found {found}: {audit.sentences}")
    if code is not ExitCode.DATA_LOST and wanted.reads_whole_lists:
        problems.append(f"faults were planted, and it ends with {code.name}: {audit.sentences}")
    if code is ExitCode.GOOD:
        problems.append("it passes, with readings lost")
    return problems + check_elsewhere(fronts, account.secret_key)


def _run(account: LocalAccount, folder: Path, ids: list[str], wanted: Expectations) -> None:
    """What a run leaves behind: ledgers, and readings on the server."""
    (folder / "audit").mkdir(exist_ok=True)
    write_devices(folder, (AuditedDevice(n, device_id, f"sim-{n}") for n, device_id in enumerate(ids)))
    began_s = time.time()
    offers = tuple(sorted(wanted.offers))
    header = LedgerHeader(worker=0, first_device=0, devices=len(ids), began_ms=round(began_s * 1000), offers=offers)
    ledger = FileLedger(ledger_path(folder, 0), header)
    for device, device_id in enumerate(ids):
        for sequence in range(1, READINGS + 1):
            at_s = time.time() - began_s
            values = {"temperature": 20 + sequence / 8}
            body = {"device_id": device_id, "sensor_data": with_sequence(values, sequence)}
            recorded_ms = round((began_s + at_s) * 1000) if RECORDED_AT in wanted.offers else None
            if recorded_ms is not None:
                body["recorded_at"] = to_rfc3339(recorded_ms / 1000)
            ledger.reading_made(device)
            ledger.reading_sent(
                device, sequence, digest_values(values), recorded_ms=recorded_ms, made_s=at_s, at_s=at_s
            )
            answer = account.http.post("/sensor-data", json=body)
            assert answer.is_success, answer.text
            ledger.readings_accepted(device, [sequence], time.time() - began_s)
    ledger.close()


def _audit(account: LocalAccount, folder: Path, wanted: Expectations) -> AuditRecord:
    keyring = Keyring((Keys(account.api_key, Secret(account.secret_key)),))

    async def read() -> AuditRecord:
        async with open_client(account.front.url, keyring, offers=wanted.offers) as desk:
            return await audit_run(folder, desk.pages, AuditSettings(), lambda _done, _whole: None)

    return asyncio.run(read())
