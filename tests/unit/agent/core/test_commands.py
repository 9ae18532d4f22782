from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.commands import (
    FINAL_STATUSES,
    MOVES,
    OPEN_STATUSES,
    CommandEvent,
    CommandRules,
    FirstContact,
    HandlerRule,
    IllegalMove,
    Triage,
    Verdict,
    advance,
    finish_entry,
    recover,
    refuse_at_start,
    report_entry,
    start_entry,
    triage,
)
from agent.core.values import CommandState, Contract, JournalEntry, OutcomeStatus
from agent.errors import AgentError
from agent.wire.commands import FINAL_STATES as WIRE_FINAL_STATES
from agent.wire.commands import OPEN_STATES as WIRE_OPEN_STATES
from tests.factories import make_command, make_entry, make_moment, make_outcome, make_rules

NOW = make_moment()
STARTED = make_moment(500.0)


def decide(*commands, rules=None, known=None, now_s=None, **flags) -> Triage:
    return triage(commands, known or {}, rules or make_rules(), received=NOW, service_now_s=now_s, **flags)


def verdicts(result: Triage) -> dict[str, str]:
    return {decision.command_id: str(decision.verdict) for decision in result.decisions}


def error_of(result: Triage) -> str:
    (decision,) = result.of(Verdict.REFUSE)
    assert decision.entry is not None
    assert decision.entry.outcome is not None
    assert decision.entry.state == CommandState.FINISHED
    assert decision.lane is None
    return decision.entry.outcome.error or ""


# --- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [None, *CommandState])
@pytest.mark.parametrize("event", list(CommandEvent))
def test_a_move_is_legal_exactly_when_the_table_has_it(state, event):
    if event in MOVES[state]:
        assert advance(state, event) == MOVES[state][event]
        return
    with pytest.raises(IllegalMove, match="report this as a bug"):
        advance(state, event)


def test_every_state_is_in_the_table_and_can_be_reached():
    assert set(MOVES) == {None, *CommandState}
    assert {after for moves in MOVES.values() for after in moves.values()} == set(CommandState)


def test_what_is_over_has_no_moves():
    assert MOVES[CommandState.REPORTED] == MOVES[CommandState.SKIPPED] == {}


@given(st.lists(st.sampled_from(list(CommandEvent)), max_size=12))
def test_no_sequence_of_events_leads_from_finished_back_to_running(events):
    entry = make_entry()
    finished = False
    steps = {
        CommandEvent.START: lambda e: start_entry(e, NOW),
        CommandEvent.FINISH: lambda e: finish_entry(e, make_outcome(), NOW),
        CommandEvent.REPORT: report_entry,
    }
    for event in events:
        try:
            entry = steps[event](entry) if event in steps else entry
        except IllegalMove:
            continue
        assert not (finished and entry.state in {CommandState.RECEIVED, CommandState.STARTED})
        finished = finished or entry.state == CommandState.FINISHED


def test_the_statuses_are_those_of_the_wire():
    assert {str(state) for state in WIRE_OPEN_STATES} == OPEN_STATUSES
    assert {str(state) for state in WIRE_FINAL_STATES} <= FINAL_STATUSES


# --- triage: new and known ----------------------------------------------------------------------------------------


def test_a_new_command_is_admitted_to_the_lane_of_its_handler():
    rules = CommandRules({"open_door": HandlerRule(Contract.ONCE, "doors")})
    command = make_command("a", {"command": "open_door"})
    (decision,) = decide(command, rules=rules).decisions
    assert (decision.verdict, decision.lane) == (Verdict.ADMIT, "doors")
    assert decision.entry == JournalEntry(command, CommandState.RECEIVED, "open_door", NOW)


@pytest.mark.parametrize("state", list(CommandState))
def test_a_command_that_the_journal_knows_is_a_duplicate_in_whatever_state(state):
    result = decide(make_command("a"), known={"a": make_entry("a", state)})
    assert verdicts(result) == {"a": "duplicate"}
    assert result.entries == ()


def test_the_same_id_twice_in_one_list_is_admitted_once():
    result = decide(make_command("a"), make_command("a", {"command": "other"}))
    assert [decision.verdict for decision in result.decisions] == [Verdict.ADMIT, Verdict.DUPLICATE]
    assert len(result.entries) == 1


@pytest.mark.parametrize("status", sorted(FINAL_STATUSES))
@pytest.mark.parametrize("policy", list(FirstContact))
def test_a_record_in_a_final_state_is_never_run_and_needs_no_row(status, policy):
    rules = make_rules(first_contact=policy)
    for first_contact in (True, False):
        result = decide(make_command("a", status=status.upper()), rules=rules, first_contact=first_contact)
        assert verdicts(result) == {"a": "closed"}
        assert result.entries == ()


def test_a_status_word_that_nobody_knows_counts_as_none():
    assert verdicts(decide(make_command("a", status="pending"))) == {"a": "admit"}


# --- triage: first contact ----------------------------------------------------------------------------------------


def test_history_is_skipped_at_first_contact_with_a_plain_server_and_remembered_without_payload():
    result = decide(make_command("a"), make_command("b"), first_contact=True)
    assert verdicts(result) == {"a": "skip", "b": "skip"}
    assert [entry.state for entry in result.entries] == [CommandState.SKIPPED] * 2
    assert [entry.command.payload for entry in result.entries] == [{}, {}]


@pytest.mark.parametrize("status", sorted(OPEN_STATUSES - {"in_progress"}))
def test_what_the_service_calls_open_is_work_also_at_first_contact(status):
    assert verdicts(decide(make_command("a", status=status), first_contact=True)) == {"a": "admit"}


def test_the_policy_all_runs_the_history():
    rules = make_rules(first_contact="all")
    assert verdicts(decide(make_command("a"), rules=rules, first_contact=True)) == {"a": "admit"}


def test_the_policy_latest_runs_the_newest_of_each_handler():
    rules = make_rules("ping", "beep", first_contact="latest")
    commands = [
        make_command("p1"),
        make_command("b1", {"command": "beep"}),
        make_command("p2"),
        make_command("p3", status="failed"),
    ]
    result = decide(*commands, rules=rules, first_contact=True)
    assert verdicts(result) == {"p1": "skip", "b1": "admit", "p2": "admit", "p3": "closed"}


def test_an_empty_first_list_still_has_to_be_written_down():
    result = decide(first_contact=True)
    assert result.first_contact
    assert result.entries == ()


def test_after_the_first_contact_a_new_command_of_a_plain_server_is_work():
    result = decide(make_command("a"))
    assert not result.first_contact
    assert verdicts(result) == {"a": "admit"}


# --- triage: a life that the journal does not remember --------------------------------------------------------------


@pytest.mark.parametrize(
    ("contract", "verdict"), [("idempotent", "admit"), ("once", "refuse"), ("restarts_device", "refuse")]
)
def test_an_unknown_command_that_is_in_progress_already_runs_only_when_twice_is_once(contract, verdict):
    rules = make_rules(contract=Contract(contract))
    for first_contact in (True, False):
        result = decide(make_command("a", status="in_progress"), rules=rules, first_contact=first_contact)
        assert verdicts(result) == {"a": verdict}
    if verdict == "refuse":
        assert error_of(result).startswith("indeterminate: ")


def test_after_the_journal_was_lost_open_commands_run_only_when_twice_is_once():
    command = make_command("a", status="delivered")
    once = decide(command, history_lost=True)
    assert error_of(once).startswith("indeterminate: ")
    assert once.first_contact
    again = decide(command, rules=make_rules(contract=Contract.IDEMPOTENT), history_lost=True)
    assert verdicts(again) == {"a": "admit"}


def test_after_the_journal_was_lost_a_plain_servers_list_is_history_again():
    assert verdicts(decide(make_command("a"), history_lost=True)) == {"a": "skip"}


def test_after_the_journal_was_lost_even_the_policy_all_runs_no_once_handler():
    rules = make_rules(first_contact="all")
    assert error_of(decide(make_command("a"), rules=rules, history_lost=True)).startswith("indeterminate: ")


# --- triage: refusals ---------------------------------------------------------------------------------------------


def test_an_unknown_command_is_rejected_with_its_name():
    result = decide(make_command(payload={"command": "fly"}))
    assert error_of(result) == "unknown_command: this device has no handler 'fly'"
    assert result.entries[0].outcome.status == OutcomeStatus.REJECTED


@pytest.mark.parametrize("payload", [{}, {"command": 7}, {"command": ""}, {"command": None}, {"Command": "ping"}])
def test_a_payload_that_names_no_handler_is_rejected(payload):
    assert error_of(decide(make_command(payload=payload))).startswith("missing_command_name: ")


def test_the_handler_key_can_be_another():
    rules = make_rules(handler_key="action")
    assert verdicts(decide(make_command("a", {"action": "ping"}), rules=rules)) == {"a": "admit"}
    assert "'action'" in error_of(decide(make_command("a", {"command": "ping"}), rules=rules))


def test_what_the_judge_says_becomes_the_reason():
    rules = make_rules(judge=lambda payload: f"invalid_payload: {payload['command']} needs n")
    result = decide(make_command(), rules=rules)
    assert error_of(result) == "invalid_payload: ping needs n"
    assert result.entries[0].outcome.status == OutcomeStatus.REJECTED


def test_a_payload_beyond_the_limit_is_refused_before_anybody_looks_into_it_and_is_not_kept():
    def judge(_payload):
        raise AssertionError("looked into it")

    rules = make_rules(judge=judge, max_payload_bytes=100)
    result = decide(make_command(size_bytes=101), rules=rules)
    assert error_of(result).startswith("payload_too_large: a command_payload of 101 bytes")
    assert result.entries[0].command.payload == {}


def test_an_expired_command_is_rejected_on_the_services_clock():
    command = make_command(expires_at=1000.0)
    assert error_of(decide(command, now_s=1000.0)).startswith("expired: ")
    assert verdicts(decide(command, now_s=999.9)) == {command.id: "admit"}


def test_nothing_counts_as_expired_while_nobody_knows_the_time():
    assert verdicts(decide(make_command("a", expires_at=1.0), now_s=None)) == {"a": "admit"}


def test_a_command_that_expired_in_its_lane_is_refused_at_the_start():
    entry = make_entry(command=make_command(expires_at=1000.0))
    assert refuse_at_start(entry, 999.0) is None
    assert refuse_at_start(entry, None) is None
    assert refuse_at_start(entry, 1007.0).error == "expired: it expired 7 s before this device could run it"


def test_ten_thousand_old_commands_are_triaged_well_under_a_second():
    commands = [make_command(f"c{n}", {"command": "ping", "n": n}) for n in range(10_000)]
    begun = time.process_time()
    first = decide(*commands, first_contact=True)
    again = decide(*commands, known={entry.command.id: entry for entry in first.entries})
    assert time.process_time() - begun < 1.0
    assert len(first.of(Verdict.SKIP)) == len(again.of(Verdict.DUPLICATE)) == 10_000


# --- after a crash ------------------------------------------------------------------------------------------------


def started(attempts: int = 1, at=None) -> JournalEntry:
    return make_entry(state=CommandState.STARTED, attempts=attempts, started=at or make_moment(400.0))


def test_a_once_handler_that_a_crash_interrupted_is_indeterminate():
    recovery = recover(started(), Contract.ONCE, STARTED)
    assert recovery.outcome is not None
    assert recovery.outcome.status == OutcomeStatus.FAILED
    assert (recovery.outcome.error or "").startswith("indeterminate: ")


def test_an_idempotent_handler_runs_again_until_it_was_tried_too_often():
    assert recover(started(2), Contract.IDEMPOTENT, STARTED).outcome is None
    outcome = recover(started(3), Contract.IDEMPOTENT, STARTED).outcome
    assert outcome is not None
    assert (outcome.error or "").startswith("too_many_attempts: ")


@pytest.mark.parametrize(
    "at",
    [make_moment(400.0), make_moment(9000.0, boot_id="boot-0")],
    ids=["started by an earlier process", "started in an earlier boot"],
)
def test_a_handler_that_restarts_the_device_goes_on_once_the_restart_has_happened(at):
    recovery = recover(started(at=at), Contract.RESTARTS_DEVICE, STARTED)
    assert (recovery.outcome, recovery.restarted) == (None, True)


def test_a_handler_that_restarts_the_device_and_did_not_is_indeterminate():
    recovery = recover(started(at=make_moment(501.0)), Contract.RESTARTS_DEVICE, STARTED)
    assert recovery.outcome is not None


def test_a_command_whose_handler_is_gone_is_concluded():
    outcome = recover(started(), None, STARTED).outcome
    assert outcome is not None
    assert "'ping' is gone" in (outcome.error or "")


def test_an_illegal_move_is_one_of_our_errors():
    assert issubclass(IllegalMove, AgentError)
