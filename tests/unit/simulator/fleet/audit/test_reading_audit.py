"""Every kind of finding about readings, each told of the device that it happened to, and none on a clean run."""

from __future__ import annotations

import asyncio
import os

import pytest

from agent.errors import ConfigurationError, TransportError
from agent.wire.extensions import LIST_PARAMETERS, RECORDED_AT
from agent.wire.times import to_rfc3339
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.fleet_ledger import first_number_of
from simulator.fleet.audit.folder import ledger_path
from simulator.fleet.audit.run_audit import AuditSettings, audit_run, exit_code_of_audit
from simulator.fleet.record import DeviceFinding, StreamAudit
from tests.unit.simulator.fleet.fleet_audit import BEGAN_MS, story


def clean(told, devices=4, readings=5):
    for sequence in range(1, readings + 1):
        for device in range(devices):
            told.send(device, sequence, sequence * 10.0 + device)


def test_a_clean_run_has_no_findings(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        audit = told.audit()
    assert audit.readings == StreamAudit(20, 20, 20, 0, 0, 0, 0, 0, 0)
    assert audit.complete
    assert audit.findings == ()
    assert audit.commands is None
    assert audit.sentences == ("readings: 20 sent, 20 accepted, 20 given back",)
    assert exit_code_of_audit(audit) is ExitCode.GOOD


@pytest.mark.parametrize("range_readings", [1, 30, 10**6])
def test_everything_that_can_be_wrong_is_told_by_device_however_small_the_ranges_are(tmp_path, range_readings):
    with story(tmp_path, devices=8) as told:
        clean(told, devices=7)
        del told.rows(0)[1]
        told.rows(1).append(dict(told.rows(1)[2]))
        told.rows(2)[3]["sensor_data"]["temperature"] += 0.125
        told.rows(3)[0]["received_at"], told.rows(3)[1]["received_at"] = (
            told.rows(3)[1]["received_at"],
            told.rows(3)[0]["received_at"],
        )
        told.store(4, 99, 70.0, {"temperature": 1.0}, BEGAN_MS + 70_000)
        told.rows(5)[4]["recorded_at"] = to_rfc3339(BEGAN_MS / 1000 + 3)
        del told.rows(6)[0]["sensor_data"]["fleet_sequence"]
        audit = told.audit(range_readings=range_readings)
    assert audit.readings == StreamAudit(35, 35, 36, lost=2, doubled=1, reordered=1, altered=2, late=0, unknown=2)
    assert audit.findings == (
        DeviceFinding("d-0", "sim-0", "lost", 1, ("2",)),
        DeviceFinding("d-6", "sim-6", "lost", 1, ("1",)),
        DeviceFinding("d-1", "sim-1", "doubled", 1, ("3",)),
        DeviceFinding("d-2", "sim-2", "altered", 1, ("4",)),
        DeviceFinding("d-5", "sim-5", "altered", 1, ("5",)),
        DeviceFinding("d-4", "sim-4", "unknown", 1, ("99",)),
        DeviceFinding("d-6", "sim-6", "unknown", 1, (f"recorded {BEGAN_MS + 15_000}",)),
        DeviceFinding("d-3", "sim-3", "reordered", 1, ("1",)),
    )
    assert exit_code_of_audit(audit) is ExitCode.DATA_LOST
    assert "2 lost, 1 doubled, 2 altered, 2 unknown, 1 reordered" in audit.sentences[0]


def test_no_answer_is_neither_lost_nor_unknown(tmp_path):
    with story(tmp_path) as told:
        told.send(0, 1, 1.0, stored=False, answered=False)
        told.send(0, 2, 2.0, stored=True, answered=False)
        told.ledger.readings_unanswered(0, [1, 2], 5.0)
        told.send(1, 1, 3.0, stored=False, answered=False)  # still in flight at the end
        audit = told.audit()
    assert audit.readings == StreamAudit(3, 0, 1, 0, 0, 0, 0, 0, 0, ambiguous=3)
    assert audit.findings == ()
    assert audit.failures == ("none of the 3 readings that were sent was accepted",)
    assert exit_code_of_audit(audit) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize(("offers", "doubled", "excused"), [((), 0, 1), (("idempotency-key",), 1, 0)])
def test_a_reading_stored_twice_since_it_was_sent_twice_is_the_fault_of_a_service_that_keeps_keys(
    tmp_path, offers, doubled, excused
):
    with story(tmp_path, offers=offers) as told:
        told.send(0, 1, 1.0, answered=False)
        told.ledger.readings_unanswered(0, [1], 2.0)
        told.ledger.readings_resent(0, [1], 3.0, ambiguous=True)
        told.rows(0).append(dict(told.rows(0)[0]))
        told.ledger.readings_accepted(0, [1], 3.1)
        audit = told.audit()
    told_of_it = {"resent": 1, "resent_ambiguous": 1, "doubled_by_resend": excused}
    assert audit.readings == StreamAudit(1, 1, 2, 0, doubled, 0, 0, 0, 0, **told_of_it)


def test_a_resend_after_a_refusal_excuses_no_double(tmp_path):
    """The service said that it did not take the first one, so it has no reason to have it twice."""
    with story(tmp_path) as told:
        for device in (0, 1):
            told.send(device, 1, 1.0, answered=False)
            told.ledger.readings_resent(device, [1], 3.0, ambiguous=False)
            told.ledger.readings_accepted(device, [1], 3.1)
        told.rows(1).append(dict(told.rows(1)[0]))
        audit = told.audit()
    assert audit.readings == StreamAudit(2, 2, 3, 0, 1, 0, 0, 0, 0, resent=2)
    assert [(each.device_id, each.kind) for each in audit.findings] == [("d-1", "doubled")]


def test_more_copies_than_sendings_are_a_double_without_keys_too(tmp_path):
    with story(tmp_path) as told:
        told.send(0, 1, 1.0)
        told.ledger.readings_resent(0, [1], 3.0, ambiguous=True)
        told.rows(0).extend([dict(told.rows(0)[0]), dict(told.rows(0)[0])])
        assert told.audit().readings.doubled == 1


def test_a_refused_reading_that_is_stored_is_unknown_unless_an_earlier_sending_went_unanswered(tmp_path):
    with story(tmp_path) as told:
        told.send(0, 1, 1.0, answered=False)
        told.ledger.readings_refused(0, [1], 2.0)
        told.send(1, 1, 1.0, answered=False)
        told.ledger.readings_unanswered(1, [1], 2.0)
        told.ledger.readings_refused(1, [1], 3.0)
        told.send(2, 1, 1.0, stored=False, answered=False)
        told.ledger.readings_refused(2, [1], 2.0)
        audit = told.audit()
    assert audit.readings == StreamAudit(3, 0, 2, 0, 0, 0, 0, 0, 1, refused=3)
    assert [(each.device_id, each.kind) for each in audit.findings] == [("d-0", "unknown")]


def test_the_order_of_sending_is_the_devices_business(tmp_path):
    """Live first, then the backlog; and what was in flight together has no order."""
    with story(tmp_path) as told:
        for at_s, sequence in enumerate((5, 4, 3, 2, 1), start=10):
            told.send(0, sequence, float(at_s))
        told.send(1, 1, 20.0, answered=False)
        told.send(1, 2, 20.001)
        told.ledger.readings_accepted(1, [1], 20.02)
        rows = told.rows(1)
        rows[0]["received_at"], rows[1]["received_at"] = rows[1]["received_at"], rows[0]["received_at"]
        audit = told.audit()
    assert audit.readings.reordered == 0


def test_a_reading_accepted_long_after_it_was_made_is_late_and_no_loss(tmp_path):
    with story(tmp_path) as told:
        told.send(2, 1, 30.0)
        audit = told.audit(late_after_s=1.0)
    assert audit.readings == StreamAudit(1, 1, 1, 0, 0, 0, 0, 1, 0)
    assert exit_code_of_audit(audit) is ExitCode.GOOD
    assert told.audit(late_after_s=1.1).readings.late == 0


def test_without_sequence_numbers_readings_are_told_apart_by_their_time(tmp_path):
    with story(tmp_path, sequence_name=None) as told:
        clean(told)
        del told.rows(0)[1]
        told.rows(1)[0]["sensor_data"]["temperature"] = 0
        told.rows(2).append(dict(told.rows(2)[2]))
        told.store(3, 6, 99.0, {"temperature": 1.0}, BEGAN_MS + 500)
        told.rows(3)[-1]["recorded_at"] = None
        audit = told.audit()
    assert [(each.device_id, each.kind, each.keys) for each in audit.findings] == [
        ("d-0", "lost", ("2",)),
        ("d-2", "doubled", ("3",)),
        ("d-1", "altered", ("1",)),
        ("d-3", "unknown", ("recorded -9223372036854775808",)),
    ]


@pytest.mark.parametrize(
    ("offers", "altered"), [((LIST_PARAMETERS,), 0), ((LIST_PARAMETERS, RECORDED_AT), 20)], ids=["silent", "announces"]
)
def test_a_service_alters_nothing_by_its_own_times_unless_it_announces_recorded_at(tmp_path, offers, altered):
    with story(tmp_path, plain=True, offers=offers) as told:
        clean(told)
        for device in range(4):
            for row in told.rows(device):
                row["recorded_at"] = row["received_at"]
        audit = told.audit()
    assert audit.readings == StreamAudit(20, 20, 20, 0, 0, 0, altered, 0, 0)
    said = any("20 readings came back with the service's time" in sentence for sentence in audit.sentences)
    assert said is (altered == 0)


def test_a_service_that_keeps_whole_seconds_and_other_names_alters_nothing(tmp_path):
    with story(tmp_path) as told:
        for device in range(4):
            told.send(device, 1, 10.3)
            row = told.rows(device)[0]
            row["timestamp"] = BEGAN_MS // 1000 + 9
            row["created_at"] = row.pop("received_at")
            row["sensor_data"]["fleet_sequence"] = 1.0
            del row["recorded_at"], row["device_id"], row["id"]
        audit = told.audit()
    assert audit.readings == StreamAudit(4, 4, 4, 0, 0, 0, 0, 0, 0)


def test_readings_of_other_runs_with_the_same_devices_are_left_alone_whenever_they_were(tmp_path):
    first = first_number_of("this run")
    with story(tmp_path, first_number=first) as told:
        clean(told)
        for other in (0, first_number_of("the run before"), first_number_of("the run after"), first - 1, first + 2**32):
            told.first_number = other
            told.store(0, 1, 10.0, {"temperature": 1.0}, BEGAN_MS + 10_000)
        del told.rows(1)[0]
        audit = told.audit()
    assert [(each.device_id, each.kind, each.keys) for each in audit.findings] == [("d-1", "lost", ("1",))]
    assert audit.readings.stored == 19
    assert "5 readings of other runs with the same devices were left out" in audit.sentences


def test_the_largest_number_of_the_last_run_is_one_that_a_double_holds():
    assert float(2**20 * 2**32 - 1) == 2**20 * 2**32 - 1
    assert 0 <= first_number_of("any") <= (2**20 - 1) * 2**32


def test_readings_of_another_time_are_left_alone(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        told.store(0, 3, -7200.0, {"temperature": 1.0}, BEGAN_MS - 7_200_000)
        told.store(0, 3, 90_000.0, {"temperature": 1.0}, BEGAN_MS + 90_000_000)
        assert told.audit().findings == ()


@pytest.mark.parametrize(
    ("refuses", "queries"),
    [(set(), 1), ({"order"}, 2), ({"limit"}, 3), ({"order", "limit", "from"}, 3)],
)
def test_a_plain_service_is_asked_for_what_it_takes(tmp_path, refuses, queries):
    with story(tmp_path) as told:
        clean(told)
        told.service.refuses = frozenset(refuses)
        assert told.audit().findings == ()
    refused = [query for _, query in told.service.asked if refuses & set(query)]
    assert len(refused) == queries - 1


def test_a_service_that_ignores_the_device_is_read_once_as_a_whole(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        del told.rows(3)[4]
        told.service.ignores_device_id = True
        audit = told.audit()
    assert [(each.device_id, each.kind) for each in audit.findings] == [("d-3", "lost")]
    assert audit.readings.stored == 19
    assert len(told.service.asked) == 2


def test_a_row_of_another_device_is_not_taken_for_the_devices_own(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        told.rows(2).append(dict(told.rows(3)[0]))
        assert told.audit().findings == ()


def test_a_device_that_the_service_does_not_know_any_more_has_lost_everything(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        del told.service.rows["d-1"]
        audit = told.audit()
    assert audit.readings.lost == 5
    assert audit.complete
    assert any("does not know 1 devices any more (sim-1)" in sentence for sentence in audit.sentences)


def test_what_could_not_be_read_back_is_not_called_lost(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        del told.rows(0)[0]

        async def pages(path, query):
            if query.get("device_id") == "d-2":
                raise TransportError("the service does not answer")
            async for items in told.service.pages(path, query):
                yield items

        told.ledger.close()
        audit = asyncio.run(audit_run(tmp_path, pages, AuditSettings(), lambda _done, _total: None))
    assert not audit.complete
    assert ("d-2", "lost") not in {(each.device_id, each.kind) for each in audit.findings}
    assert "the service does not answer" in audit.sentences[0]


def test_a_worker_that_was_killed_leaves_readings_that_no_ledger_has_and_they_are_not_unknown(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        told.ledger.flush()
        told.send(0, 6, 80.0)
        del told.rows(1)[0]
        told.ledger.close()
        path = ledger_path(tmp_path, 0)
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 150)
        audit = told.audit()
    assert audit.readings.unknown == 0
    assert audit.readings.lost == 1
    assert not audit.complete
    assert any("has no end: it was killed" in sentence for sentence in audit.sentences)
    assert exit_code_of_audit(audit) is ExitCode.DATA_LOST


def test_an_audit_that_is_not_complete_is_inconclusive(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        told.ledger.close()
        path = ledger_path(tmp_path, 0)
        os.truncate(path, path.stat().st_size - 1)
        assert exit_code_of_audit(told.audit()) is ExitCode.INCONCLUSIVE


def test_the_worst_devices_are_listed_first_and_the_list_is_bounded(tmp_path):
    with story(tmp_path) as told:
        clean(told)
        told.rows(1).clear()
        del told.rows(2)[0]
        told.rows(3).append(dict(told.rows(3)[0]))
        audit = told.audit(findings_max=2)
    assert [(each.device_id, each.count) for each in audit.findings] == [("d-1", 5), ("d-2", 1)]
    assert audit.findings[0].keys == ("1", "2", "3", "4", "5")
    assert audit.readings.doubled == 1


def test_a_folder_without_ledgers_is_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match="no ledgers"):
        asyncio.run(audit_run(tmp_path, None, AuditSettings(), lambda _done, _total: None))


def test_a_file_that_is_no_ledger_is_refused_in_one_line(tmp_path):
    path = ledger_path(tmp_path, 0)
    path.parent.mkdir()
    path.write_bytes(b"hello")
    with pytest.raises(ConfigurationError, match="no ledger of a run"):
        asyncio.run(audit_run(tmp_path, None, AuditSettings(), lambda _done, _total: None))


def test_readings_that_carry_another_time_than_theirs_are_misdated_and_the_audit_says_how_far_off(tmp_path):
    with story(tmp_path, dated_when_made=True) as told:
        clean(told, readings=20)
        for sequence, off_s in ((21, -21.0), (22, 7.5), (23, 3.5)):
            values = {"temperature": 5.0}
            recorded_ms = BEGAN_MS + round((sequence * 10 + off_s) * 1000)
            made = {"made_s": sequence * 10.0, "at_s": sequence * 10.0}
            told.ledger.reading_sent(2, sequence, digest_values(values), recorded_ms=recorded_ms, **made)
            told.store(2, sequence, sequence * 10.0, values, recorded_ms)
            told.ledger.readings_accepted(2, [sequence], sequence * 10.0)
        audit = told.audit()
    assert (audit.readings.misdated, audit.readings.altered) == (2, 0)
    assert audit.findings == (DeviceFinding("d-2", "sim-2", "misdated", 2, ("21", "22")),)
    [said] = audit.failures
    assert said == (
        "2 of 83 readings carry a time that is more than 4 s away from when they were made: up to 21.0 s too early, "
        "7.5 s too late"
    )
    assert said in audit.sentences
    assert exit_code_of_audit(audit) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize("apart_s", [0.0, 3600.0, -3600.0])
def test_a_service_whose_clock_is_another_than_this_machines_misdates_nothing(tmp_path, apart_s):
    """Devices go by the service's clock: so does the judgement of the times that they send."""
    with story(tmp_path, dated_when_made=True) as told:
        for sequence in range(1, 41):
            at_s, values = sequence * 10.0, {"temperature": 1.0}
            recorded_ms = BEGAN_MS + round((at_s + apart_s) * 1000)
            told.ledger.reading_sent(
                0, sequence, digest_values(values), recorded_ms=recorded_ms, made_s=at_s, at_s=at_s + 30
            )
            told.store(0, sequence, at_s + apart_s + 30.0, values, recorded_ms)
            told.ledger.readings_accepted(0, [sequence], at_s + 31)
        audit = told.audit()
    assert (audit.readings.misdated, audit.failures) == (0, ())


def test_times_are_not_judged_where_the_scenario_makes_clocks_wrong(tmp_path):
    with story(tmp_path, dated_when_made=False) as told:
        clean(told)
        values = {"temperature": 5.0}
        told.ledger.reading_sent(0, 6, digest_values(values), recorded_ms=BEGAN_MS - 10**9, made_s=60.0, at_s=60.0)
        told.store(0, 6, 60.0, values, BEGAN_MS - 10**9)
        told.ledger.readings_accepted(0, [6], 60.0)
        audit = told.audit()
    assert (audit.readings.misdated, audit.failures) == (0, ())
