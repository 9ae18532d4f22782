from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.demo.proofs import (
    ExpectedCommand,
    OutboxBalance,
    Proof,
    StoredCommand,
    cut_off,
    exit_code,
    prove_command_list,
    prove_command_states,
    prove_effects,
    prove_labels,
    prove_onboarding,
    prove_outbox_balance,
    prove_readings,
    prove_removal,
)
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.readings import DeviceReadings, ReadingFact

SENT = (
    ExpectedCommand("c1", "real-agent", "d1", "ping", "succeeded"),
    ExpectedCommand("c2", "real-agent", "d1", "unknown", "rejected", "unknown_command", frozenset({0})),
    ExpectedCommand("c3", "virtual-02", "d2", "valve", "failed", "indeterminate"),
    ExpectedCommand("c4", "virtual-02", "d2", "self test", "succeeded", runs=frozenset({1, 2})),
)
STORED = (
    StoredCommand("c1", "d1", "succeeded", "", 1.0, 1.1, 1.2),
    StoredCommand("c2", "d1", "rejected", "unknown_command: there is no handler", 1.0, 1.1, 1.2),
    StoredCommand("c3", "d2", "failed", "indeterminate: the agent died", 1.0, 1.1, 1.2),
    StoredCommand("c4", "d2", "succeeded", "", 1.0, 1.1, 1.2),
)
RUNS = {"c1": 1, "c3": 1, "c4": 2}
BOOKS = OutboxBalance(device="real-agent", accepted=40, delivered=40, waiting=0, set_aside=0, dropped=0, stored=40)


def readings(keys=range(10), stored=range(10), device="virtual-02") -> DeviceReadings:
    def facts(numbers):
        return tuple(ReadingFact(number, {"t": float(number)}) for number in numbers)

    return DeviceReadings(device, facts(keys), facts(stored))


def stored_with(**changes) -> tuple[StoredCommand, ...]:
    return (replace(STORED[0], **changes), *STORED[1:])


def test_a_clean_run_holds_everywhere_and_ends_with_0():
    proofs = [
        prove_labels(["a", "b"], ["b", "a"]),
        prove_onboarding(["a", "b"], ["b", "a"]),
        prove_command_states(SENT, STORED),
        prove_command_list(SENT, STORED),
        prove_effects(SENT, RUNS),
        prove_readings("readings", [readings(), readings(device="virtual-03")]),
        prove_outbox_balance(BOOKS),
        prove_removal("virtual-20", {"list": 404, "send": 404}, still_listed=False),
    ]
    assert [proof for proof in proofs if not proof.held] == []
    assert exit_code(proofs) is ExitCode.GOOD


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (STORED[1:], "does not list it"),
        (stored_with(status="delivered", completed_at=None), "delivered, not succeeded"),
        (stored_with(status="failed", error="timeout: 3 s"), "failed, not succeeded (timeout: 3 s)"),
        (stored_with(device_id="d2"), "another device"),
        (stored_with(completed_at=None), "without a time"),
        ((*STORED[:2], replace(STORED[2], error="timeout: no"), STORED[3]), "not 'indeterminate'"),
    ],
)
def test_a_wrong_end_of_a_command_is_found(stored, says):
    proof = prove_command_states(SENT, stored)
    assert not proof.held
    assert says in proof.details[0]
    assert len(proof.details) == 1
    assert proof.found == "3 as expected, 1 not"


def test_a_command_that_is_gone_is_data_lost_and_a_wrong_state_is_not():
    assert exit_code([prove_command_states(SENT, STORED[1:])]) is ExitCode.DATA_LOST
    assert exit_code([prove_command_states(SENT, stored_with(status="failed"))]) is ExitCode.CHECK_FAILED


def test_a_command_listed_twice_or_sent_by_nobody_is_found():
    twice = prove_command_list(SENT, (*STORED, STORED[0]))
    assert twice.details == ("real-agent, ping: listed 2 times",)
    foreign = prove_command_list(SENT, (*STORED, replace(STORED[0], id="c9")))
    assert foreign.details == ("command c9: listed, but nobody sent it",)
    assert not twice.held
    assert not foreign.held


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (RUNS | {"c1": 2}, "real-agent, ping: ran 2 times, not 1"),
        (RUNS | {"c2": 1}, "real-agent, unknown: ran 1 times, not 0"),
        (RUNS | {"c4": 3}, "virtual-02, self test: ran 3 times, not 1 or 2"),
        ({"c3": 1, "c4": 1}, "real-agent, ping: ran 0 times, not 1"),
        (RUNS | {"c9": 1}, "command c9: ran 1 times, but nobody sent it"),
    ],
)
def test_an_effect_too_many_or_too_few_is_found(runs, says):
    proof = prove_effects(SENT, runs)
    assert not proof.held
    assert proof.details == (says,)
    assert exit_code([proof]) is ExitCode.CHECK_FAILED


def test_a_lost_reading_is_found_and_ends_with_4():
    proof = prove_readings("readings", [readings(), readings(stored=range(1, 10), device="virtual-03")])
    assert not proof.held
    assert proof.lost == 1
    assert proof.details == ("virtual-03: 1 lost (0)",)
    assert exit_code([proof]) is ExitCode.DATA_LOST


def test_a_doubled_or_foreign_reading_is_found_and_ends_with_1():
    doubled = prove_readings("readings", [readings(stored=[*range(10), 3])])
    foreign = prove_readings("readings", [readings(stored=[*range(10), 77])])
    assert doubled.details == ("virtual-02: 1 doubled (3)",)
    assert foreign.details == ("virtual-02: 1 unknown (77)",)
    assert exit_code([doubled, foreign]) is ExitCode.CHECK_FAILED


def test_an_altered_reading_is_found_and_ends_with_4():
    good = readings()
    changed = replace(good, stored=(ReadingFact(0, {"t": 0.5}), *good.stored[1:]))
    proof = prove_readings("readings", [changed])
    assert proof.details == ("virtual-02: 1 altered (0)",)
    assert exit_code([proof]) is ExitCode.DATA_LOST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"stored": 39}, ExitCode.DATA_LOST),
        ({"stored": 41}, ExitCode.CHECK_FAILED),
        ({"delivered": 39, "stored": 39}, ExitCode.DATA_LOST),
        ({"delivered": 39, "stored": 39, "dropped": 1}, ExitCode.DATA_LOST),
        ({"delivered": 39, "stored": 39, "set_aside": 1}, ExitCode.CHECK_FAILED),
    ],
)
def test_books_that_do_not_balance_are_found(change, code):
    proof = prove_outbox_balance(replace(BOOKS, **change))
    assert not proof.held
    assert proof.details
    assert exit_code([proof]) is code


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"refused": 3}, "virtual-03: the service refused 3 readings for good"),
        ({"unanswered": 2}, "virtual-03: 2 readings were sent and got no good answer"),
        ({"accepted": (), "stored": ()}, "virtual-03: the service accepted no reading"),
    ],
)
def test_readings_that_were_not_accepted_prove_nothing_and_lose_nothing(change, says):
    proof = prove_readings("readings", [readings(), replace(readings(device="virtual-03"), **change)])
    assert (proof.held, proof.details, proof.lost) == (False, (says,), 0)
    assert exit_code([proof]) is ExitCode.CHECK_FAILED


def test_an_agent_that_delivered_nothing_proves_nothing():
    proof = prove_outbox_balance(replace(BOOKS, delivered=0, stored=0, waiting=40))
    assert (proof.held, proof.details[0]) == (False, "real-agent: delivered no reading at all")
    assert exit_code([proof]) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize("stored", [40, 42])
def test_readings_that_still_wait_are_neither_lost_nor_proven(stored):
    proof = prove_outbox_balance(replace(BOOKS, accepted=42, waiting=2, stored=stored))
    assert (proof.held, proof.lost) == (False, 0)
    assert proof.details == ("real-agent: 2 readings were still in its outbox when the demo ended",)
    assert exit_code([proof]) is ExitCode.INCONCLUSIVE


def test_a_reading_on_its_way_is_neither_lost_nor_proven_and_hides_no_other():
    waits = replace(readings(stored=range(9)), waiting=frozenset({9}))
    proof = prove_readings("readings", [waits, readings(device="virtual-03")])
    assert (proof.held, proof.lost, proof.expected) == (False, 0, "19 accepted by 2 devices")
    assert proof.details == ("virtual-02: 1 reading was still in its outbox when the demo ended",)
    assert exit_code([proof]) is ExitCode.INCONCLUSIVE
    lost = prove_readings("readings", [waits, readings(stored=range(1, 10), device="virtual-03")])
    assert exit_code([lost]) is ExitCode.DATA_LOST
    doubled = prove_readings("readings", [waits, readings(stored=[*range(10), 3], device="virtual-03")])
    assert exit_code([doubled]) is ExitCode.CHECK_FAILED


def test_a_label_that_does_not_read_or_reads_as_another_is_found():
    assert prove_labels(["a", "b"], ["a"]).details == ("not read: b",)
    assert prove_labels(["a"], ["a", "x"]).details == ("never made: x",)
    assert not prove_labels(["a"], ["a", "a"]).held


def test_a_device_registered_twice_or_not_at_all_is_found():
    assert prove_onboarding(["a", "b"], ["a", "a", "b"]).details == ("a: listed 2 times",)
    assert prove_onboarding(["a", "b"], ["a"]).details == ("b: listed 0 times",)
    assert prove_onboarding(["a"], ["a", "c"]).details == ("c: listed, but never registered",)


def test_a_removed_device_that_still_answers_is_found():
    assert not prove_removal("d", {"list": 200, "send": 404}, still_listed=False).held
    assert not prove_removal("d", {"list": 404}, still_listed=True).held


@pytest.mark.parametrize(
    "proof",
    [
        prove_labels([], []),
        prove_onboarding([], []),
        prove_command_states([], []),
        prove_command_list([], []),
        prove_effects([], {}),
        prove_readings("readings", []),
        prove_outbox_balance(OutboxBalance(0, 0, 0, 0, 0, "d", 0)),
        prove_removal("d", {}, still_listed=False),
    ],
)
def test_a_proof_about_nothing_does_not_hold(proof):
    assert not proof.held


def test_no_proof_at_all_is_no_success():
    assert exit_code([]) is ExitCode.CHECK_FAILED


def test_a_long_list_of_faults_is_cut_and_says_so():
    names = [f"n{number}" for number in range(50)]
    details = prove_labels(names, []).details
    assert len(details) == 21
    assert details[-1] == "and 30 more"


def test_lost_data_outweighs_another_failed_proof():
    failed = Proof("x", held=False, expected="", found="")
    assert exit_code([failed, replace(failed, lost=1)]) is ExitCode.DATA_LOST


@pytest.mark.parametrize(
    ("stored", "caught"),
    [
        ({1, 2, 3, 4, 7}, {5, 6}),
        ({1, 2, 4, 5, 7}, {6}),  # 3 is missing between two that are there: lost, whenever it was made
        ({1, 2, 3, 4, 5, 6, 7}, set()),
        ({7}, {2, 3, 4, 5, 6}),  # 1 was made long before the SIGKILL
    ],
)
def test_a_sigkill_excuses_the_last_readings_before_it_and_no_others(stored, caught):
    made = [(1, 90.0), (2, 96.0), (3, 97.0), (4, 98.0), (5, 99.0), (6, 100.2), (7, 102.5)]
    assert cut_off(made, stored, ended_s=100.0, restarted_s=102.0) == caught
