"""Every kind of finding about commands, each told of the device that it happened to, and none on a clean run."""

from __future__ import annotations

import pytest

from agent.core.values import Contract, OutcomeStatus
from agent.wire.times import to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.run_audit import exit_code_of_audit
from simulator.fleet.record import DeviceFinding, StreamAudit
from tests.unit.simulator.fleet.fleet_audit import BEGAN_MS, story

SUCCEEDED = OutcomeStatus.SUCCEEDED
OFFERS = ("command-results", "idempotency-key")


def listed(told, device, name, at_s, status="succeeded"):
    record = {"id": name, "device_id": f"d-{device}", "command_payload": {}, "status": status}
    told.listed(device).append({**record, "created_at": to_rfc3339(BEGAN_MS / 1000 + at_s)})
    return told.listed(device)[-1]


def run(told, device, name, at_s, *, status=SUCCEEDED, contract=Contract.ONCE, state=None, off_s=0.0):
    """A command from the order to the report, a second for each step."""
    ledger = told.ledger
    ledger.command_ordered(device, name, at_s)
    ledger.command_received(device, name, at_s + 1)
    if status is SUCCEEDED:
        ledger.command_started(device, name, contract, 1, at_s + 2)
    ledger.command_finished(device, name, status, at_s + 3)
    ledger.command_reported(device, name, at_s + 4)
    return listed(told, device, name, at_s + off_s, state or str(status))


def clean(told, off_s=0.0):
    for device in range(4):
        run(told, device, f"a{device}", 1.0, off_s=off_s)
        run(told, device, f"b{device}", 2.0, status=OutcomeStatus.FAILED, off_s=off_s)
        run(told, device, f"c{device}", 3.0, status=OutcomeStatus.REJECTED, off_s=off_s)


def findings(audit):
    return [(each.device_id, each.kind, each.keys) for each in audit.findings]


def test_a_clean_run_has_no_findings(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        audit = told.audit()
    assert audit.commands == StreamAudit(12, 12, 12, 0, 0, 0, 0, 0, 0)
    assert audit.findings == ()
    assert audit.complete
    assert audit.sentences[-1] == "commands: 12 sent, 12 accepted, 12 listed, 4 effects"


@pytest.mark.parametrize("range_readings", [1, 10**6])
def test_everything_that_can_be_wrong_is_told_by_device(tmp_path, range_readings):
    with story(tmp_path, devices=8, offers=OFFERS) as told:
        clean(told)
        del told.listed(0)[0]
        told.listed(1)[1]["status"] = "succeeded"
        told.ledger.command_started(2, "a2", Contract.ONCE, 1, 9.0)
        listed(told, 3, "stranger", 5.0)
        run(told, 4, "open", 1.0, state="in_progress")
        told.ledger.command_ordered(5, "first", 1.0)
        told.ledger.command_ordered(5, "second", 2.0)
        for name, at_s in (("second", 3.0), ("first", 4.0)):
            told.ledger.command_received(5, name, at_s)
        listed(told, 5, "first", 1.0, "delivered")
        listed(told, 5, "second", 2.0, "delivered")
        told.ledger.command_ordered(6, "no effect", 1.0)
        told.ledger.command_finished(6, "no effect", SUCCEEDED, 2.0)
        listed(told, 6, "no effect", 1.0)
        run(told, 7, "twice", 1.0)
        listed(told, 7, "twice", 1.0)
        audit = told.audit(range_readings=range_readings)
    assert findings(audit) == [
        ("d-0", "lost", ("a0",)),
        ("d-4", "lost", ("open",)),
        ("d-6", "lost", ("no effect",)),
        ("d-2", "doubled", ("a2",)),
        ("d-7", "doubled", ("twice",)),
        ("d-1", "altered", ("b1",)),
        ("d-3", "unknown", ("stranger",)),
        ("d-5", "reordered", ("second",)),
    ]
    assert audit.findings[0] == DeviceFinding("d-0", "sim-0", "lost", 1, ("a0",))
    assert exit_code_of_audit(audit) is ExitCode.DATA_LOST


@pytest.mark.parametrize(
    ("contract", "attempts", "doubled"),
    [
        (Contract.ONCE, [1], 0),
        (Contract.ONCE, [1, 2], 1),
        (Contract.IDEMPOTENT, [1, 2, 3], 0),
        (Contract.IDEMPOTENT, [1, 1], 1),
        (Contract.RESTARTS_DEVICE, [1, 2, 2], 1),
    ],
)
def test_the_handlers_contract_decides_how_often_an_effect_may_begin(tmp_path, contract, attempts, doubled):
    with story(tmp_path, offers=OFFERS) as told:
        run(told, 0, "a", 1.0, contract=contract)
        for attempt in attempts[1:]:
            told.ledger.command_started(0, "a", contract, attempt, 9.0)
        audit = told.audit()
    assert audit.commands.doubled == doubled
    assert audit.commands.resent == len(attempts) - 1


def test_an_order_without_an_answer_may_exist_or_not(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        told.ledger.order_unanswered(0, 5.0)
        told.ledger.order_unanswered(1, 5.0)
        told.ledger.command_received(1, "came all the same", 6.0)
        listed(told, 1, "came all the same", 5.0, "delivered")
        audit = told.audit()
    assert audit.findings == ()
    assert (audit.commands.sent, audit.commands.ambiguous) == (14, 2)


def test_a_command_that_expired_or_still_waits_is_not_lost(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        for name, state in (("e", "expired"), ("q", "queued"), ("t", "canceled")):
            told.ledger.command_ordered(0, name, 5.0)
            listed(told, 0, name, 5.0, state)
        audit = told.audit()
    assert audit.findings == ()
    assert "3 commands never came to their device" in audit.sentences[-1]


def test_commands_of_other_runs_are_left_alone(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        listed(told, 0, "old", -100.0)
        listed(told, 0, "of the next run", 100.0)
        audit = told.audit()
    assert audit.findings == ()
    assert audit.commands.stored == 12
    assert audit.sentences[-1] == "2 commands of other runs with the same devices were left out"


def test_a_plain_service_that_never_tells_a_state_alters_and_loses_nothing(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        for device in range(4):
            for number, record in enumerate(told.listed(device)):
                record["status"] = (None, "queued", "done")[number]
        assert told.audit().findings == ()


def test_a_result_long_after_the_order_is_late(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        audit = told.audit(late_after_s=2.9)
    assert audit.commands.late == 12
    assert exit_code_of_audit(audit) is ExitCode.GOOD


def test_records_that_cannot_be_read_are_inconclusive(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        told.listed(0).append({"id": "x"})
        audit = told.audit()
    assert audit.unjudged == ("1 rows in lists of commands cannot be read as commands",)
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


OFF_S = [0.0, -600.0, 600.0]
"""How far the service's clock is off, in seconds."""


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_command_of_an_earlier_run_that_still_comes_to_its_device_is_left_out_and_counted(tmp_path, off_s):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told, off_s)
        receive(told, 0, "ordered by the run before", 0.5)
        listed(told, 0, "ordered by the run before", off_s - 30.0)
        audit = told.audit()
    assert audit.findings == ()
    assert exit_code_of_audit(audit) is ExitCode.GOOD
    assert audit.sentences[-1] == "1 commands of other runs with the same devices were left out"
    assert (audit.commands.sent, audit.commands.stored) == (12, 12)


@pytest.mark.parametrize("off_s", OFF_S)
def test_a_command_that_nobody_ordered_is_found_however_wrong_the_clock_of_the_service_is(tmp_path, off_s):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told, off_s)
        receive(told, 0, "stranger", 4.0)
        listed(told, 0, "stranger", off_s + 3.0)
        audit = told.audit()
    assert findings(audit) == [("d-0", "unknown", ("stranger",))]


def test_what_an_earlier_run_ordered_may_not_take_effect_twice_either(tmp_path):
    with story(tmp_path, offers=OFFERS) as told:
        clean(told)
        receive(told, 0, "ordered by the run before", 0.5)
        told.ledger.command_started(0, "ordered by the run before", Contract.ONCE, 2, 9.0)
        listed(told, 0, "ordered by the run before", -30.0)
        audit = told.audit()
    assert findings(audit) == [("d-0", "doubled", ("ordered by the run before",))]


def receive(told, device, name, at_s):
    told.ledger.command_received(device, name, at_s)
    told.ledger.command_started(device, name, Contract.ONCE, 1, at_s + 1)
    told.ledger.command_finished(device, name, SUCCEEDED, at_s + 2)
    told.ledger.command_reported(device, name, at_s + 3)
