"""Whole runs on virtual time: what the service is sent is what the scenario says, and the record says what happened."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from pydantic import TypeAdapter

from agent.errors import ConfigurationError
from agent.wire.encoding import parse_time
from simulator.fleet.faults import AnyFault, AnyLinkFault
from simulator.fleet.record import VerdictStatus
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, frozen, limited, merged, write_files
from tests.support.virtual_fleet.service import CUT, CUT_LATE, NEVER, NOBODY, UNREACHABLE, Sent
from tests.support.virtual_fleet.virtual_time import EPOCH_S

CORE = ("core-poll", "core-hold", "core-mqtt")
KINDS, LINK_KINDS = (
    TypeAdapter(each).json_schema()["discriminator"]["mapping"].keys() for each in (AnyFault, AnyLinkFault)
)
DEVICES = 6
FAULT_S, FAULT_END_S = 3.0, 8.0
FAULTS = {
    "broken_json": {"often": 1},
    "clock_jump": {"jump_s": 99},
    "clock_skew": {"offset_s": 50},
    "duplicates": {"often": 1},
    "late_batches": {"hold_s": 3},
    "reboot_loop": {"up_s": 1, "down_s": 1},
    "disconnect_storm": {"waves": 2, "away_s": 0.4},
    "power_cut": {"waves": 2, "away_s": 0.4},
    "link_profile": {"profile": "satellite"},
    "rolling_restart": {"away_s": 1},
}
"""Settings with which each kind changes something in a run this short; the others need none."""


@pytest.fixture
def looker(tmp_path):
    return Looker(tmp_path)


@pytest.mark.parametrize("context", CORE)
def test_every_device_reads_at_its_pace_and_the_audit_finds_every_reading(looker, context):
    run = looker(CONTEXTS[context]).run
    assert Counter(device for _, device, _ in run.readings) == dict.fromkeys(range(DEVICES), 12 / 3)
    assert run.record.verdict.exit_code == 0
    assert run.record.audit.readings.sent == run.record.audit.readings.stored == len(run.readings)


@pytest.mark.parametrize("context", CORE)
def test_commands_are_sent_at_their_rate_and_every_result_comes(looker, context):
    commands = [{"payload": {"command": "ping"}, "rate_per_s": 0.5, "ttl_s": 60}]
    run = looker(merged(CONTEXTS[context], {"commands": commands})).run
    times = [order.at_s for order in run.orders]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx([2.0] * 5, abs=0.002)
    assert [result["status"] for result in run.service.results] == ["succeeded"] * 6
    assert {order.json()["ttl_seconds"] for order in run.orders} == {60}
    assert run.record.audit.commands.stored == 6


def test_results_of_another_kind_than_expected_fail_the_run_and_hold_up_nothing(looker):
    commands = [
        {"payload": {"command": "ping"}, "rate_per_s": 0.5, "expect": "failed"},
        {"payload": {"command": "sing"}, "rate_per_s": 0.5, "expect": "rejected"},
    ]
    record = looker(merged(CONTEXTS["core-poll"], {"commands": commands})).run.record
    assert record.verdict.exit_code == 1
    assert record.verdict.sentences[0].startswith("of 6 commands 'ping' that should have ended as failed: 6 succeeded")
    ping, sing, *_ = record.commands
    assert (dict(ping.ends), dict(sing.ends)) == ({"succeeded": 6}, {"rejected": 6})


def test_a_reading_that_the_service_loses_is_found(looker):
    def forgetful(sent: Sent):
        return (201, {"id": "none"}) if sent.operation == "POST /sensor-data" and 5 < sent.at_s < 7 else None

    run = looker(merged(CONTEXTS["core-poll"], {"target": {"dialect": {"extensions": []}}}), forgetful).run
    assert run.record.audit.readings.lost > 0
    assert run.record.verdict.word is VerdictStatus.LOST


def test_a_frozen_service_is_seen_and_a_busy_one_is_waited_for(looker):
    stuck = looker(CONTEXTS["core-poll"], frozen).run
    assert stuck.record.verdict.word is not VerdictStatus.PASSED
    assert stuck.count("http.sensor_data", "ok") < stuck.count("http.sensor_data")
    busy = looker(CONTEXTS["core-poll"], limited).run
    assert busy.count("http.sensor_data", "limited") == DEVICES, "nobody asks again before Retry-After is over"


def test_devices_share_the_keys_of_a_pool(looker):
    write_files(looker.folder)
    keys = [{"api_key": f"mk_{name}", "secret_key_file": name} for name in ("one", "two")]
    run = looker(merged(CONTEXTS["core-poll"], {"target": {"keys": keys}})).run
    used = {(each.device, each.headers["x-api-key"]) for each in run.batches}
    assert used == {(device, "mk_one" if device < DEVICES / 2 else "mk_two") for device in range(DEVICES)}


def test_arrivals_keep_their_rate(looker):
    assert len(looker(CONTEXTS["requests"]).run.batches) == 24


def test_phases_switch_devices_on_step_by_step_and_take_their_power(looker):
    phases = [
        {"name": "up", "kind": "ramp", "duration_s": 6},
        {"name": "power", "kind": "hold", "duration_s": 6},
    ]
    faults = [{"kind": "power_cut", "at_s": 6.5, "duration_s": 3, "away_s": 3}]
    online = looker({**CONTEXTS["core-poll"], "phases": phases, "faults": faults}).run.online
    assert online[:6] == sorted(online[:6])
    assert online[0] < DEVICES == online[5]
    assert min(online[6:10]) < DEVICES == online[11]


def test_devices_that_are_off_and_without_a_link_are_not_online_and_count_once(looker):
    phases = [{"name": "up", "kind": "ramp", "duration_s": 12}]
    faults = [{"kind": "blackout", "at_s": 2, "duration_s": 4}]
    online = looker({**CONTEXTS["core-poll"], "phases": phases, "faults": faults}).run.online
    assert online[2:5] == [0, 0, 0]
    assert online[6:12] == sorted(online[6:12])
    assert 0 < online[6] < DEVICES == online[11]


def test_polls_under_way_are_no_readings_that_wait(looker):
    load = {"arrivals": [{"operation": "poll"}], "target": {"timeout_s": 60}}
    seconds = looker(merged(CONTEXTS["requests"], load), frozen).run.seconds
    assert {second.gauges.get("waiting_readings", 0.0) for second in seconds} == {0.0}


def test_a_seed_plays_the_same_twice_and_another_one_something_else(looker, tmp_path):
    again = Looker(tmp_path / "again")
    again.folder.mkdir()
    first = looker(CONTEXTS["core-poll"]).wire
    assert again(CONTEXTS["core-poll"]).wire == first
    assert looker({**CONTEXTS["core-poll"], "seed": 7}).wire != first


def test_history_has_every_reading_at_its_true_time(looker):
    run = looker(CONTEXTS["history"]).run
    assert Counter(reading["device_id"] for _, _, reading in run.readings) == dict.fromkeys(
        run.service.devices, 600 / 60
    )
    assert all("2025-12-31T23:5" in reading["recorded_at"] for _, _, reading in run.readings)


def test_history_that_got_no_good_answer_goes_again_and_is_told_apart_by_what_came_before(looker):
    answers = iter([(429, {"error": "rate_limited"}), (503, {"error": "unwell"}), (429, {"error": "rate_limited"})])

    def unsteady(sent: Sent):
        return next(answers, None) if sent.operation == "POST /sensor-data" else None

    document = merged(CONTEXTS["history"], {"target": {"connections": 1}})
    run = looker(document, unsteady).run
    readings = run.record.audit.readings
    assert (readings.sent, readings.accepted, readings.stored, readings.lost, readings.doubled) == (60, 60, 60, 0, 0)
    assert len({sent.headers["idempotency-key"] for sent in run.batches[:4]}) == 1
    posts = run.record.operations["http.sensor_data"]
    told = {str(name): (tally.count - tally.first_attempts, tally.resends_ambiguous) for name, tally in posts.items()}
    assert told == {"ok": (1, 1), "limited": (1, 1), "server_error": (1, 0)}


@pytest.mark.parametrize(
    ("answer", "outcome", "resent"),
    [
        ((200, {"accepted": 3, "errors": []}), "unexpected", 10),
        ((200, {"accepted": "all", "errors": ["some"]}), "unexpected", 10),
        (UNREACHABLE, "transport", 0),
    ],
    ids=["wrong count", "unreadable", "never left"],
)
def test_history_whose_answer_tells_nothing_goes_again_and_what_never_left_is_no_resend(
    looker, answer, outcome, resent
):
    answers = iter([answer])

    def unsteady(sent: Sent):
        return next(answers, None) if sent.operation == "POST /sensor-data" else None

    run = looker(merged(CONTEXTS["history"], {"target": {"connections": 1}}), unsteady).run
    assert run.count("http.sensor_data", outcome) == 1
    assert run.record.extras["backfill"]["resent"] == resent
    with closing(sqlite3.connect(looker.folder / "scenario-0" / "run" / "run.sqlite")) as database:
        (unanswered,) = database.execute("SELECT count(*) FROM answers WHERE kind = 'unanswered'").fetchone()
    assert unanswered == resent
    assert run.record.audit.readings.accepted == run.record.audit.readings.stored == 60


def test_an_onboarding_storm_registers_every_label_once_and_decides_each_race(looker):
    run = looker(merged(CONTEXTS["labels"], {"onboarding": {"races": 0.5}})).run
    assert run.record.verdict.exit_code == 0
    audit, storm = run.record.audit.registrations, run.record.extras["onboarding"]
    assert (audit.sent, audit.accepted, audit.stored) == (12, 12, 12)
    assert storm["races"] == storm["races_decided"] > 2
    assert run.count("http.register", "ok") == run.count("http.register") == 12 + storm["races"]
    assert len({device["device_identifier"] for device in run.service.devices.values()}) == len(run.service.devices)


def test_a_label_that_is_taken_after_a_sending_without_an_answer_is_in_doubt_and_nobodys_fault(looker):
    lost = iter([(503, {"error": "unwell"}), (409, {"error": "taken"})])  # the first was carried out all the same

    def forgetful(sent: Sent):
        return next(lost, None) if sent.operation == "POST /onboarding/device" else None

    run = looker(merged(CONTEXTS["labels"], {"onboarding": {"races": 0, "rate_per_s": 1}}), forgetful).run
    audit = run.record.audit.registrations
    assert (audit.accepted, audit.ambiguous, audit.lost) == (audit.sent - 1, 1, 0)
    assert run.record.verdict.exit_code == 0, run.record.verdict


def test_a_label_whose_registration_never_left_is_in_no_doubt_and_fails_the_run(looker):
    first: list[str] = []

    def unreachable(sent: Sent):
        if sent.operation != "POST /onboarding/device":
            return None
        first.append(sent.json()["device_identifier"])
        return UNREACHABLE if first[-1] == first[0] else None

    document = merged(CONTEXTS["labels"], {"onboarding": {"races": 0, "rate_per_s": 1}, "drain_s": 60})
    record = looker(document, unreachable).run.record
    audit = record.audit.registrations
    assert (audit.sent - audit.accepted, audit.ambiguous) == (1, 0)
    assert record.verdict.exit_code == 1
    assert record.verdict.sentences[0].startswith("http.register: ")


def test_what_follows_a_barrier_waits_for_it(looker):
    phases = [
        {"name": "first", "kind": "hold", "duration_s": 4, "until": "connections > 1000000", "until_within_s": 4},
        {"name": "last", "kind": "hold", "duration_s": 9},
    ]
    fault = {"kind": "blackout", "at_s": 6, "duration_s": 4}
    run = looker({**CONTEXTS["core-poll"], "phases": phases, "faults": [fault]}).run
    (found,) = run.record.faults
    assert (found.begin_s, found.end_s) == pytest.approx((6 + 4, 10 + 4), abs=0.2)


@pytest.mark.parametrize(
    ("context", "kind"),
    [*itertools.product(["core-poll", "core-mqtt"], KINDS), *itertools.product(["requests"], LINK_KINDS)],
)
def test_a_fault_is_played_in_its_time_alone_on_its_share_and_costs_no_reading(looker, context, kind):
    fault = {"kind": kind, "at_s": FAULT_S, "duration_s": FAULT_END_S - FAULT_S, "share": 0.5, **FAULTS.get(kind, {})}
    calm, struck = looker(CONTEXTS[context]), looker({**CONTEXTS[context], "faults": [fault]})
    (found,) = struck.run.record.faults
    assert (found.kind, found.begin_s, found.end_s) == (kind, FAULT_S, FAULT_END_S)
    assert 0 < found.devices < DEVICES
    assert len(found.truth["devices"]) == found.devices
    assert all(name.startswith("sim-00000") for name in found.truth["devices"])
    assert (calm.wire, calm.run.online) != (struck.wire, struck.run.online)
    before = [[each for each in look.wire if each[0] < FAULT_S - 0.1] for look in (calm, struck)]
    assert before[0] == before[1]
    assert struck.run.record.audit.readings.lost == 0


@pytest.mark.parametrize("context", ["core-poll", "core-mqtt"])
def test_a_device_is_away_until_the_last_of_its_faults_is_over(looker, context):
    faults = [{"kind": "blackout", "at_s": at_s, "duration_s": 4} for at_s in (2, 4)]
    run = looker({**CONTEXTS[context], "faults": faults}).run
    assert [at_s for at_s, *_ in run.readings if 2 < at_s < 8] == []
    assert run.record.audit.readings.lost == 0


def test_revoked_keys_are_another_secret_and_nothing_else(looker):
    fault = {"kind": "revoked_keys", "at_s": FAULT_S, "duration_s": 5}
    run = looker({**CONTEXTS["core-poll"], "faults": [fault]}).run
    sent = {(each.headers["x-api-key"], each.headers["x-secret-key"], FAULT_S <= each.at_s < 8) for each in run.batches}
    assert sent == {("mk_only", "msk_" + "0" * 32, False), ("mk_only", "msk_not_the_one", True)}


def test_copies_go_out_at_once_with_the_key_of_the_first(looker):
    fault = {"kind": "duplicates", "at_s": 0, "duration_s": 12, "often": 1, "copies": 2}
    run = looker({**CONTEXTS["core-poll"], "faults": [fault]}).run
    first = [each for each in run.batches if each.body == run.batches[0].body]
    assert [each.at_s - first[0].at_s for each in first] == pytest.approx([0, 0, 0], abs=0.01)
    assert len({each.headers["idempotency-key"] for each in first}) == 1


@pytest.mark.parametrize("context", ["core-poll", "core-mqtt"])
def test_what_is_spoiled_is_refused_and_set_aside_and_the_others_arrive(looker, context):
    fault = {"kind": "broken_json", "at_s": FAULT_S, "duration_s": 5, "often": 1}
    readings = looker({**CONTEXTS[context], "faults": [fault]}).run.record.audit.readings
    assert 0 < readings.accepted == readings.stored < readings.sent


@pytest.mark.parametrize(
    ("trouble", "operation", "outcome"),
    [
        (NEVER, "mqtt.receipt", "timeout"),
        (NOBODY, "mqtt.sensor_data", "ok"),
        (CUT, "mqtt.sensor_data", "transport"),
        (CUT_LATE, "mqtt.sensor_data", "transport"),
    ],
    ids=["no receipt", "no gateway", "cut before", "cut after"],
)
def test_whatever_becomes_of_a_message_its_readings_go_again_until_they_are_confirmed(
    looker, trouble, operation, outcome
):
    def answers(sent: Sent):
        return trouble if sent.operation == "sensor-data" and FAULT_S < sent.at_s < FAULT_END_S else None

    answers.__name__ = str(trouble)
    run = looker(merged(CONTEXTS["core-mqtt"], {"drain_s": 90}), answers).run
    readings = run.record.audit.readings
    assert readings.sent == readings.accepted == readings.stored == DEVICES * 12 / 3
    assert run.count(operation, outcome) >= DEVICES
    bodies = Counter(each.body for each in run.batches)
    assert max(bodies.values()) > 1, "the same readings went again in the same message"
    if trouble == CUT:
        assert DEVICES < run.count("mqtt.connect") < 8 * DEVICES
    if trouble == NOBODY:
        assert any("no gateway listens" in sentence for sentence in run.record.extras["errors"])


def test_a_wrong_clock_dates_what_was_read_until_the_service_tells_the_time(looker):
    fault = {"kind": "clock_jump", "at_s": 0, "jump_s": 3600}
    run = looker({**CONTEXTS["core-poll"], "faults": [fault]}).run
    ahead = [parse_time(reading["recorded_at"]) - EPOCH_S - at_s for at_s, _, reading in run.readings]
    assert max(ahead) - min(ahead) == pytest.approx(3600, abs=5)


def test_a_bad_link_loses_some_requests_and_no_other(looker):
    fault = {"kind": "link_profile", "profile": "bad_wifi", "at_s": 0, "duration_s": 12}
    load = {"arrivals": [{"rate_per_s": 100}], "target": {"timeout_s": 2}, "faults": [fault]}
    run = looker(merged(CONTEXTS["requests"], load)).run
    assert 0 < run.count("http.sensor_data", "timeout") < 60
    assert run.count("http.sensor_data", "ok") + run.count("http.sensor_data", "timeout") == 1200


def test_a_blackout_that_a_barrier_moved_is_no_target_that_went_away(looker):
    phases = [
        {"name": "first", "kind": "hold", "duration_s": 4, "until": "connections > 1000000", "until_within_s": 20},
        {"name": "last", "kind": "hold", "duration_s": 40},
    ]
    fault = {"kind": "blackout", "at_s": 10, "duration_s": 20}
    silent = merged(CONTEXTS["core-poll"], {"target": {"timeout_s": 1}})
    run = looker({**silent, "phases": phases, "faults": [fault]}).run
    assert run.record.verdict.word is VerdictStatus.FAILED, "for the barrier alone"
    gone = looker({**silent, "phases": phases}, frozen).run.record
    assert (gone.verdict.word, gone.verdict.exit_code) == (VerdictStatus.UNREACHABLE, 5)
    assert gone.verdict.sentences[0] == "the target went away: nothing was answered from second 7 on"
    assert gone.duration_s < 30


@pytest.mark.parametrize("context", ["history", "labels"])
def test_a_kind_of_run_that_plays_no_fault_refuses_it(looker, context):
    with pytest.raises(ConfigurationError, match="faults: is no key here"):
        looker({**CONTEXTS[context], "faults": [{"kind": "blackout", "at_s": 1, "duration_s": 2}]})
