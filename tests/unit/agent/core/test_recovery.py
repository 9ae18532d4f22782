from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.commands import HandlerRule, Recovery, recover
from agent.core.values import CommandState, Contract, JournalEntry, OutcomeStatus
from tests.support.factories import make_entry, make_moment

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
