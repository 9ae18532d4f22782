"""An audit that lacks a ledger, or a part of one, never passes and accuses nobody of what is missing."""

from __future__ import annotations

import pytest

from agent.core.values import Contract, OutcomeStatus
from agent.wire.times import to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.folder import AuditedDevice, ledger_path, write_devices
from simulator.fleet.audit.ledger_format import LedgerHeader, read_frames
from simulator.fleet.audit.run_audit import exit_code_of_audit
from tests.unit.simulator.fleet.fleet_audit import BEGAN_MS, Story, story


def two_workers(told, *, commands_only):
    """The run of a second worker beside the one that is told of: its devices are 4 to 7."""
    write_devices(told.folder, (AuditedDevice(n, f"d-{n}", f"sim-{n}") for n in range(8)))
    told.service.rows.update({f"d-{n}": [] for n in range(4, 8)})
    header = LedgerHeader(
        worker=1,
        first_device=4,
        devices=4,
        began_ms=BEGAN_MS,
        offers=("list-parameters", "command-status", "recorded-at"),
    )
    other = Story(told.folder, FileLedger(ledger_path(told.folder, 1), header), told.service)
    for device in range(8):
        worker = told if device < 4 else other
        if commands_only:
            order(worker, device, f"c{device}")
        else:
            worker.send(device, 1, 10.0 + device)
    other.ledger.close()


def order(told, device, name):
    ledger = told.ledger
    ledger.command_ordered(device, name, 1.0)
    ledger.command_received(device, name, 2.0)
    ledger.command_started(device, name, Contract.ONCE, 1, 3.0)
    ledger.command_finished(device, name, OutcomeStatus.SUCCEEDED, 4.0)
    ledger.command_reported(device, name, 5.0)
    record = {"id": name, "device_id": f"d-{device}", "command_payload": {}, "status": "succeeded"}
    told.listed(device).append({**record, "created_at": to_rfc3339(BEGAN_MS / 1000 + 1)})


@pytest.mark.parametrize("commands_only", [False, True])
def test_a_missing_ledger_is_inconclusive_with_the_reason(tmp_path, commands_only):
    with story(tmp_path) as told:
        two_workers(told, commands_only=commands_only)
        ledger_path(tmp_path, 1).unlink()
        audit = told.audit()
    assert audit.unjudged == ("4 of 8 devices have no ledger (sim-4, sim-5, sim-6): one of the folder is missing",)
    assert audit.findings == ()
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("commands_only", [False, True])
def test_the_ledgers_of_all_workers_together_pass(tmp_path, commands_only):
    with story(tmp_path) as told:
        two_workers(told, commands_only=commands_only)
        audit = told.audit()
    assert audit.unjudged == ()
    assert exit_code_of_audit(audit) is ExitCode.GOOD


def test_a_list_of_devices_that_lacks_some_is_inconclusive(tmp_path):
    with story(tmp_path) as told:
        told.send(0, 1, 10.0)
        write_devices(tmp_path, (AuditedDevice(n, f"d-{n}", f"sim-{n}") for n in range(3)))
        audit = told.audit()
    assert audit.unjudged == ("1 devices that the ledgers have are missing in devices.csv: they cannot be read back",)
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("commands_only", [False, True])
def test_a_ledger_of_which_a_second_was_cut_out_is_inconclusive(tmp_path, commands_only):
    with story(tmp_path) as told:
        for second in range(3):
            if commands_only:
                order(told, 0, f"c{second}")
            else:
                told.send(0, second + 1, 10.0 + second)
            told.ledger.flush()
        told.ledger.close()
        path = ledger_path(tmp_path, 0)
        text = path.read_bytes()
        body = next(frame.body for frame in read_frames(path) if frame.kind in {b"R", b"C"})
        at, head = text.index(body), 9
        path.write_bytes(text[: at - head] + text[at + len(body) :])
        audit = told.audit()
    names = ("ordered", "received", "effects", "finished", "reported") if commands_only else ("sent", "accepted")
    lacks = ", ".join(f"1 {name} missing" for name in names)
    assert audit.unjudged == (f"the ledger of worker 0 does not hold what the counts at its end say: {lacks}",)
    assert audit.findings == ()
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE
