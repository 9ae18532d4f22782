"""The audit of a run against a plain service: what cannot be judged is said, and nobody is accused or acquitted."""

from __future__ import annotations

import json

import pytest

from agent.core.values import Contract, OutcomeStatus
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.run_audit import exit_code_of_audit
from tests.unit.simulator.fleet.fleet_audit import BEGAN_MS, story


def clean(told, devices=4, readings=5):
    for sequence in range(1, readings + 1):
        for device in range(devices):
            told.send(device, sequence, sequence * 10.0 + device)


def refuse(told, device, sequence):
    told.ledger.reading_made(device)
    told.ledger.reading_sent(
        device, sequence, digest_values({"t": 1.0}), recorded_ms=None, made_s=1.0, at_s=float(sequence)
    )
    told.ledger.readings_refused(device, [sequence], sequence + 0.5)


def test_a_plain_service_is_asked_for_everything_without_a_parameter(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        audit = told.audit()
    assert told.service.asked == [("/sensor-data", {})]
    assert exit_code_of_audit(audit) is ExitCode.GOOD
    assert "their times cannot be compared" in audit.sentences[-1]


def test_a_plain_service_that_wants_a_device_is_asked_for_each(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        told.service.needs_device_id = True
        audit = told.audit()
    assert [query for _, query in told.service.asked] == [{}, *({"device_id": f"d-{n}"} for n in range(4))]
    assert exit_code_of_audit(audit) is ExitCode.GOOD


@pytest.mark.parametrize(
    "shape",
    [
        lambda row: {"device_id": row["device_id"], **row["sensor_data"]},
        lambda row: {"id": 7, "deviceId": row["device_id"], "ts": 1_767_225_600, **row["sensor_data"]},
        lambda row: {"device": {"id": row["device_id"]}, "payload": row["sensor_data"], "created_at": "today"},
        lambda row: {"device_id": row["device_id"], "sensor_data": json.dumps(row["sensor_data"])},
    ],
)
def test_rows_of_other_shapes_are_the_same_readings(tmp_path, shape):
    with story(tmp_path, plain=True) as told:
        clean(told)
        for device in range(4):
            told.rows(device)[:] = [shape(row) for row in told.rows(device)]
        audit = told.audit()
    assert audit.findings == ()
    assert audit.readings.stored == 20
    assert exit_code_of_audit(audit) is ExitCode.GOOD


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (lambda row: {"device_id": row["device_id"], "blob": "AAAA"}, "hold no readings in a shape that is known"),
        (lambda row: dict(row["sensor_data"]), "name no device"),
    ],
)
def test_rows_that_cannot_be_read_are_no_loss_and_no_good_end(tmp_path, shape, reason):
    with story(tmp_path, plain=True) as told:
        clean(told)
        for device in range(4):
            told.rows(device)[:] = [shape(row) for row in told.rows(device)]
        audit = told.audit()
    assert audit.readings.lost == 0
    assert reason in audit.unjudged[0]
    assert reason in audit.sentences[0]
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


def test_a_loss_on_a_plain_service_is_a_loss(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        del told.rows(2)[1]
        audit = told.audit()
    assert [(each.device_id, each.kind, each.count) for each in audit.findings] == [("d-2", "lost", 1)]
    assert exit_code_of_audit(audit) is ExitCode.DATA_LOST


def test_one_page_of_a_usual_size_may_be_all_that_a_service_gives(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        told.service.page, told.service.only_one_page = 10, True
        audit = told.audit()
    assert audit.readings.lost == 0
    assert "gave 10 in one page" in audit.unjudged[0]
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("plain", [True, False])
def test_readings_that_were_all_refused_never_end_well(tmp_path, plain):
    with story(tmp_path, plain=plain) as told:
        for sequence in range(1, 4):
            refuse(told, 0, sequence)
        audit = told.audit(refusals_planned=True)
    assert audit.failures == ("none of the 3 readings that were sent was accepted",)
    assert exit_code_of_audit(audit) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize(("planned", "code"), [(False, ExitCode.CHECK_FAILED), (True, ExitCode.GOOD)])
def test_some_refused_readings_are_a_finding_unless_a_fault_makes_them(tmp_path, planned, code):
    with story(tmp_path) as told:
        clean(told)
        refuse(told, 0, 6)
        audit = told.audit(refusals_planned=planned)
    assert audit.readings.refused == 1
    assert exit_code_of_audit(audit) is code


def command(told, device, ordered, received=None):
    ledger = told.ledger
    if ordered is None:
        ledger.order_unanswered(device, 1.0)
    else:
        ledger.command_ordered(device, ordered, 1.0)
    if received is not None:
        ledger.command_received(device, received, 2.0)
        ledger.command_started(device, received, Contract.ONCE, 1, 3.0)
        ledger.command_finished(device, received, OutcomeStatus.SUCCEEDED, 4.0)


def test_commands_are_judged_without_a_look_at_lists_that_may_take_them_away(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        command(told, 0, "c1", "c1")
        command(told, 1, None, "c2")  # the answer to the order named no id
        command(told, 2, "order-3", "c3")  # the answer named another id than the list
        audit = told.audit()
    assert [path for path, _ in told.service.asked] == ["/sensor-data"]
    assert audit.findings == ()
    assert exit_code_of_audit(audit) is ExitCode.GOOD


@pytest.mark.parametrize("ordered", ["c1", None])
def test_a_command_that_never_came_on_a_plain_service_is_neither_lost_nor_well(tmp_path, ordered):
    with story(tmp_path, plain=True) as told:
        clean(told)
        command(told, 0, ordered)
        audit = told.audit()
    assert audit.commands is None or audit.commands.lost == 0
    assert "1 commands never came to their devices" in audit.unjudged[0]
    assert exit_code_of_audit(audit) is ExitCode.INCONCLUSIVE


def test_lists_are_read_where_the_scenario_says_that_they_hold_everything(tmp_path):
    with story(tmp_path, plain=True, command_lists="everything") as told:
        clean(told)
        command(told, 0, "c1")
        audit = told.audit()
    assert ("/devices/d-0/commands", {}) in told.service.asked
    assert audit.commands.lost == 1
    assert exit_code_of_audit(audit) is ExitCode.DATA_LOST


def test_a_command_that_came_twice_as_often_as_ordered_is_unknown_on_any_service(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        command(told, 0, "c1", "c1")
        told.ledger.command_received(0, "c2", 5.0)
        audit = told.audit()
    assert [(each.kind, each.keys) for each in audit.findings] == [("unknown", ("c2",))]


@pytest.mark.parametrize(
    ("own_s", "older_s", "unknown"), [(1.0, -30.0, False), (1.0, 3.0, True), (-599.0, -597.0, True)]
)
def test_a_command_of_an_earlier_run_is_known_by_the_time_it_came_with(tmp_path, own_s, older_s, unknown):
    with story(tmp_path, plain=True) as told:
        clean(told)
        told.ledger.command_ordered(0, "c1", 1.0)
        told.ledger.command_received(0, "c1", 2.0, BEGAN_MS / 1000 + own_s)
        told.ledger.command_received(0, "c2", 5.0, BEGAN_MS / 1000 + older_s)
        audit = told.audit()
    assert [(each.kind, each.keys) for each in audit.findings] == ([("unknown", ("c2",))] if unknown else [])


def test_times_without_parts_of_a_second_make_no_command_of_this_run_one_of_another(tmp_path):
    with story(tmp_path, plain=True) as told:
        clean(told)
        told.ledger.order_unanswered(0, 0.1)  # the answer names no id
        told.ledger.command_received(0, "c1", 0.5, BEGAN_MS / 1000 - 0.9)
        audit = told.audit()
    assert audit.commands.sent == 1
    assert audit.unjudged == ()


def test_the_time_of_a_reading_is_found_among_its_values(tmp_path):
    with story(tmp_path, plain=True, time_name="taken_at") as told:
        clean(told)
        for device in range(4):
            for row in told.rows(device):
                row["sensor_data"]["taken_at"] = 1_767_225_600.0
        audit = told.audit()
    assert {each.kind for each in audit.findings} == {"altered"}  # each carried another time
