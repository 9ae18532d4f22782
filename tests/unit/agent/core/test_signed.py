"""What a device makes of signed commands."""

from __future__ import annotations

import dataclasses

import pytest

from agent.core.admission import decide_commands, setting_of
from agent.wire.signed import SigningKey
from tests.support.factories import make_moment
from tests.support.fakes import START_WALL_S
from tests.unit.agent.signing import Device, command_of, make_rules, sign

KEY = SigningKey.make()


@pytest.fixture
def device():
    return Device(make_rules(KEY))


def test_where_signing_is_accepted_an_unsigned_command_runs_unless_its_handler_asks_for_a_signature(device):
    device.rules = make_rules(KEY, required=False, required_for=frozenset({"open_door"}))
    assert device.take_one({"command": "ping"}) == "ran"
    assert device.take_one({"command": "open_door"}) == "signature_required"
    assert device.take_one(sign(KEY, 1)) == "ran"
    assert device.take_one(sign(KEY, 2, command="ping")) == "ran"


def test_an_expired_signature_is_refused_and_uses_its_counter_up(device):
    payload = sign(KEY, 1, lifetime_s=60)
    device.now_s = START_WALL_S + 60
    assert device.take_one(payload) == "signature_expired"
    device.restart()
    device.now_s = None  # nobody knows the time any more, and still it does not run
    assert device.take_one(payload) == "signature_replayed"


def test_without_the_time_the_counter_decides_alone(device):
    device.now_s = None
    assert device.take_one(sign(KEY, 1, lifetime_s=-1e9)) == "ran"
    assert device.take_one(sign(KEY, 1, lifetime_s=1e9)) == "signature_replayed"


def test_history_that_is_skipped_at_first_contact_does_not_run_later(device):
    new = Device(device.rules)
    payload = sign(KEY, 3)
    result = decide_commands(
        [command_of(payload, "old")],
        {},
        device.rules,
        received=make_moment(),
        service_now_s=START_WALL_S,
        first_contact=True,
    )
    assert [str(decision.verdict) for decision in result.decisions] == ["skip"]
    assert result.settings[setting_of(KEY.key_id)] == "3"
    new.store.journal.admit(result.entries, result.settings)
    assert new.take_one(payload) == "signature_replayed"


def test_the_limit_counts_for_the_envelope_and_nothing_above_it_is_verified(device):
    opened = []
    signatures = dataclasses.replace(device.rules.signatures, open=opened.append)
    payload = sign(KEY, 1)
    device.rules = dataclasses.replace(
        device.rules, signatures=signatures, max_payload_bytes=command_of(payload).size_bytes - 1
    )
    assert device.take_one(payload) == "payload_too_large"
    assert not opened


def test_a_counter_that_cannot_be_read_lets_nothing_through(device):
    device.store.journal.put_setting(setting_of(KEY.key_id), "many")
    assert device.take_one(sign(KEY, 1)) == "signature_replayed"
