from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.admission import CommandRules, Decisions, Verdict, decide_commands
from agent.core.commands import (
    FINAL_STATUSES,
    OPEN_STATUSES,
    HandlerRule,
    Recovery,
    recover,
    refuse_at_start,
)
from agent.core.values import CommandState, Contract, JournalEntry, OutcomeStatus
from tests.support.factories import make_command, make_entry, make_moment, make_rules

NOW = make_moment()


def decide(*commands, rules=None, known=None, now_s=None, **flags) -> Decisions:
    return decide_commands(commands, known or {}, rules or make_rules(), received=NOW, service_now_s=now_s, **flags)


def verdicts(result: Decisions) -> dict[str, str]:
    return {decision.command_id: str(decision.verdict) for decision in result.decisions}


def error_of(result: Decisions) -> str:
    (decision,) = result.of(Verdict.REFUSE)
    assert decision.entry is not None
    assert decision.entry.outcome is not None
    assert decision.entry.state == CommandState.FINISHED
    return decision.entry.outcome.error or ""


# --- new and known ----------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("runs_history", [False, True])
def test_a_record_in_a_final_state_is_never_run_and_needs_no_row(status, runs_history):
    rules = make_rules(runs_history=runs_history)
    for first_contact in (True, False):
        result = decide(make_command("a", status=status.upper()), rules=rules, first_contact=first_contact)
        assert verdicts(result) == {"a": "closed"}
        assert result.entries == ()


# --- first contact ----------------------------------------------------------------------------------------


def test_history_is_skipped_at_first_contact_with_a_plain_server_and_remembered_without_payload():
    result = decide(make_command("a"), make_command("b"), first_contact=True)
    assert verdicts(result) == {"a": "skip", "b": "skip"}
    assert [entry.state for entry in result.entries] == [CommandState.SKIPPED] * 2
    assert [entry.command.payload for entry in result.entries] == [{}, {}]


@pytest.mark.parametrize("status", sorted(OPEN_STATUSES - {"in_progress"}))
def test_what_the_service_calls_open_is_work_also_at_first_contact(status):
    assert verdicts(decide(make_command("a", status=status), first_contact=True)) == {"a": "admit"}


def test_the_policy_all_runs_the_history():
    rules = make_rules(runs_history=True)
    assert verdicts(decide(make_command("a"), rules=rules, first_contact=True)) == {"a": "admit"}


# --- a life that the journal does not remember --------------------------------------------------------------


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
    assert once.settings
    again = decide(command, rules=make_rules(contract=Contract.IDEMPOTENT), history_lost=True)
    assert verdicts(again) == {"a": "admit"}


# --- refusals ---------------------------------------------------------------------------------------------


NEEDS_N = make_rules(judge=lambda payload: f"invalid_payload: {payload['command']} needs n")


@pytest.mark.parametrize(
    ("command", "rules", "error"),
    [
        (make_command(payload={"command": "fly"}), None, "unknown_command: this device has no handler 'fly'"),
        (make_command(payload={}), None, "missing_command_name: "),
        (make_command(payload={"command": 7}), None, "missing_command_name: "),
        (make_command(payload={"command": ""}), None, "missing_command_name: "),
        (make_command(payload={"Command": "ping"}), None, "missing_command_name: "),
        (make_command(), NEEDS_N, "invalid_payload: ping needs n"),
        (make_command(fault="unreadable_expires_at: no time"), None, "unreadable_expires_at: no time"),
    ],
)
def test_a_command_that_cannot_be_run_is_rejected_with_its_reason(command, rules, error):
    result = decide(command, rules=rules, now_s=None)
    assert error_of(result).startswith(error)
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
    for now_s in (999.9, None):  # nobody knows the time
        assert verdicts(decide(command, now_s=now_s)) == {command.id: "admit"}


# --- one too many, too late, taken back -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "admitted", "why"),
    [
        ({}, 3, "3 commands are in lane 'ping' already"),
        ({"ping": 2}, 1, "3 commands are in lane 'ping' already"),
        ({"ping": 3}, 0, "3 commands are in lane 'ping' already"),
        ({"other": 9}, 1, "10 commands are under way on this device already"),
    ],
)
def test_beyond_the_caps_a_command_is_refused_and_an_idle_lane_always_takes_one(monkeypatch, waiting, admitted, why):
    monkeypatch.setattr("agent.core.admission.WAITING_MAX", 10)
    monkeypatch.setattr("agent.core.admission.WAITING_PER_LANE_MAX", 3)
    rules = make_rules("ping", "other")
    commands = [make_command(f"c{number}", status="queued") for number in range(5)]
    result = decide(*commands, rules=rules, waiting=waiting)
    assert len(result.of(Verdict.ADMIT)) == admitted
    for decision in result.of(Verdict.REFUSE):
        assert decision.entry is not None
        assert decision.entry.outcome is not None
        assert decision.entry.outcome.error == f"too_many_waiting: {why}; send it again later"


@pytest.mark.parametrize(
    ("received", "now", "limit_s", "refused"),
    [
        (make_moment(1000.0), make_moment(1030.0), 30.0, False),
        (make_moment(1000.0), make_moment(1031.0), 30.0, True),
        (make_moment(1000.0), make_moment(9000.0), None, False),
        # The wall clock was set in between: only the monotonic one counts within a boot.
        (make_moment(1000.0), make_moment(1010.0, wall_s=9e9), 30.0, False),
        # Across boots the wall clock counts, where it was set both times.
        (make_moment(1000.0), make_moment(5.0, wall_s=make_moment().wall_s + 40, boot_id="boot-2"), 30.0, True),
        (make_moment(1000.0), make_moment(5.0, wall_s=make_moment().wall_s + 20, boot_id="boot-2"), 30.0, False),
        # Where it was not, this boot's own age is what is certain.
        (make_moment(1000.0, wall_s=7.0), make_moment(20.0, wall_s=20.0, boot_id="boot-2"), 30.0, False),
        (make_moment(1000.0, wall_s=7.0), make_moment(31.0, wall_s=31.0, boot_id="boot-2"), 30.0, True),
    ],
)
def test_the_start_timeout_goes_by_what_the_clocks_can_tell(received, now, limit_s, refused):
    outcome = refuse_at_start(make_entry(received=received), None, now, limit_s)
    assert (outcome is not None) is refused
    if outcome is not None:
        assert outcome.status is OutcomeStatus.REJECTED
        assert (outcome.error or "").startswith("not_started_in_time: it waited ")


def test_a_command_that_was_started_before_has_kept_its_start_timeout():
    entry = make_entry(state=CommandState.STARTED, attempts=1)
    assert refuse_at_start(entry, None, make_moment(99_000.0), 1.0) is None


@pytest.mark.parametrize("status", ["canceled", "cancelled", "CANCELED"])
@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (CommandState.RECEIVED, Verdict.CANCEL),
        (CommandState.STARTED, Verdict.CANCEL),
        (CommandState.FINISHED, Verdict.DUPLICATE),
        (CommandState.REPORTED, Verdict.DUPLICATE),
        (CommandState.SKIPPED, Verdict.DUPLICATE),
        (CommandState.UNDELIVERABLE, Verdict.DUPLICATE),
    ],
)
def test_a_command_under_way_that_is_listed_as_canceled_is_to_be_canceled(status, state, verdict):
    known = {"c1": make_entry("c1", state)}
    assert verdicts(decide(make_command("c1", status=status), known=known)) == {"c1": verdict}


@pytest.mark.parametrize("flags", [{"history_lost": True}, {}])
def test_what_another_life_may_have_run_is_asked_about_where_its_handler_can_tell(flags):
    rules = CommandRules({"ping": HandlerRule(Contract.ONCE, "ping", verifies=True)})
    (decision,) = decide(make_command("c1", status="in_progress"), rules=rules, **flags).of(Verdict.VERIFY)
    assert decision.entry is not None
    # As if this life had begun it: after another crash it is asked about again.
    assert (decision.entry.state, decision.entry.attempts) == (CommandState.STARTED, 1)


# --- after a crash ----------------------------------------------------------------------------------------------------

STARTED = make_moment(500.0)
"""When this process began."""

BEFORE = make_moment(400.0)
OTHER_BOOT = make_moment(9000.0, boot_id="boot-0")
SINCE = make_moment(501.0)

AGAIN = Recovery()
ASK = Recovery(verify=True)


def started(attempts: int = 1, at=BEFORE) -> JournalEntry:
    return make_entry(state=CommandState.STARTED, attempts=attempts, started=at)


def rule(contract: Contract, **members) -> HandlerRule:
    return HandlerRule(contract, "ping", **members)


IDEMPOTENT, ONCE, RESTARTS = Contract.IDEMPOTENT, Contract.ONCE, Contract.RESTARTS_DEVICE
CAN_TELL = {"verifies": True}


@pytest.mark.parametrize(
    ("contract", "members", "entry", "canceled_by", "expected"),
    [
        # An idempotent handler runs again until it was tried too often, or was taken back before the crash.
        (IDEMPOTENT, {}, started(1), None, AGAIN),
        (IDEMPOTENT, {}, started(2), None, AGAIN),
        (IDEMPOTENT, {}, started(3), None, "too_many_attempts"),
        (IDEMPOTENT, {"max_attempts": 1}, started(1), None, "too_many_attempts"),
        (IDEMPOTENT, {"max_attempts": 5}, started(4), None, AGAIN),
        (IDEMPOTENT, {}, started(1), "by command 9", "canceled"),
        (IDEMPOTENT, CAN_TELL, started(1), None, AGAIN),
        # A once handler never runs again on its own; its verify hook is asked, and that ends, too.
        (ONCE, {}, started(1), None, "indeterminate"),
        (ONCE, {}, started(1), "by command 9", "indeterminate"),
        (ONCE, CAN_TELL, started(1), None, ASK),
        (ONCE, CAN_TELL, started(2), None, ASK),
        (ONCE, CAN_TELL, started(3), None, "indeterminate"),
        (ONCE, CAN_TELL, started(1), "by command 9", ASK),
        (ONCE, {"verifies": True, "max_attempts": 1}, started(1), None, "indeterminate"),
        # A restart that happened is concluded by the run after it, also with the smallest cap and after a cancel.
        (RESTARTS, {}, started(1), None, AGAIN),
        (RESTARTS, {}, started(1, OTHER_BOOT), None, AGAIN),
        (RESTARTS, {}, started(1), "by command 9", AGAIN),
        (RESTARTS, {"max_attempts": 1}, started(1), None, AGAIN),
        (RESTARTS, {"max_attempts": 1}, started(2), None, "too_many_attempts"),
        (RESTARTS, {}, started(3), None, "too_many_attempts"),
        # One that did not happen is not known to have failed.
        (RESTARTS, {}, started(1, SINCE), None, "indeterminate"),
        (RESTARTS, CAN_TELL, started(1, SINCE), None, ASK),
    ],
)
def test_a_crash_means_what_the_contract_says(contract, members, entry, canceled_by, expected):
    recovery = recover(replace(entry, canceled_by=canceled_by), rule(contract, **members), STARTED)
    if isinstance(expected, Recovery):
        assert recovery == expected
    else:
        assert recovery.outcome is not None
        assert recovery.outcome.status is OutcomeStatus.FAILED
        assert (recovery.outcome.error or "").startswith(f"{expected}: ")


def test_a_command_whose_handler_is_gone_is_concluded():
    outcome = recover(started(), None, STARTED).outcome
    assert outcome is not None
    assert "'ping' is gone" in (outcome.error or "")
