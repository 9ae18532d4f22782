"""Waves, their order, when a rollout stops, and what becomes of an answer that is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Refused, ServerFault, TransportError, Unauthorized
from agent.wire.models import CommandRecord
from gateway.rollout import DeviceState, Plan, Rollout, in_waves, stop_reason, wave_sizes


@pytest.mark.parametrize(
    ("text", "devices", "sizes"),
    [
        ("1,5%,25%,all", 500, [1, 24, 100, 375]),
        ("1,5%,25%,all", 10, [1, 2, 7]),
        ("10,5%,all", 20, [10, 10]),
        ("1000,all", 3, [3]),
        ("0.5 %, 100%", 500, [3, 497]),
    ],
)
def test_each_entry_says_how_many_have_the_command_after_its_wave(text, devices, sizes):
    assert wave_sizes(text, devices) == sizes


@pytest.mark.parametrize("text", ["", "1,5%", "0,all", "-1,all", "x,all", "101%,all", "1,,all"])
def test_waves_that_cannot_be_are_refused(text):
    with pytest.raises(click.BadParameter):
        wave_sizes(text, 100)


@given(st.sets(st.text(min_size=1), min_size=1), st.text())
def test_every_device_is_in_one_wave_and_its_place_hangs_on_the_name_alone(ids, name):
    waves = in_waves(name, ids, "1,5%,25%,all")
    assert waves == in_waves(name, sorted(ids, reverse=True), "1,5%,25%,all")
    assert [len(wave) for wave in waves] == wave_sizes("1,5%,25%,all", len(ids))
    assert sorted(device for wave in waves for device in wave) == sorted(ids)


PLAN = Plan(
    rollout_id="9b2f6a3e-3f0c-4d5f-8a58-0c2f6a3e3f0c",
    name="r",
    base_url="http://127.0.0.1:1",
    command_payload={"command": "ping"},
    ttl_s=60,
    max_failed=0.05,
    max_silent=0.2,
    timeout_s=60.0,
)


@pytest.mark.parametrize(
    ("counts", "is_over", "said"),
    [
        (Counter(planned=19, failed=1), False, None),
        (Counter(planned=18, failed=2), False, "2 of the 20 device(s) of wave 3 failed (10 %), and 5 % may"),
        (Counter(sent=4, succeeded=16), True, None),
        (Counter(sent=5, succeeded=15), True, "5 of the 20 device(s) of wave 3 gave no result (25 %), and 20 % may"),
        (Counter(silent=5, planned=15), False, "5 of the 20 device(s) of wave 3 gave no result (25 %), and 20 % may"),
        (Counter(silent=3, sent=2, succeeded=15), False, None),
    ],
)
def test_a_wave_beyond_a_limit_stops_it_at_once(counts, is_over, said):
    assert stop_reason(3, counts, PLAN, is_over=is_over) == said


# --- under way --------------------------------------------------------------------------------------------------------

GOOD = (DeviceState.SUCCEEDED, None)


class Played:
    """A service that answers from a script, and a clock that a sleep moves on.

    Attributes:
        refusals: device id -> errors before anything is stored.
        losses: device id -> errors after it was stored.
        away: errors when results are looked for.
        broken: devices whose commands can never be looked at.
        ends: device id -> how its command has ended.
        stored: device id -> keys of the commands that were stored.
    """

    def __init__(self, monkeypatch):
        self.now_s = 1_000.0
        self.refusals, self.losses, self.ends, self.stored, self.away = {}, {}, {}, {}, []
        self.broken = set()
        clock = SimpleNamespace(time=lambda: self.now_s, monotonic=lambda: self.now_s, sleep=self.sleep)
        monkeypatch.setattr("gateway.rollout.time", clock)

    def sleep(self, seconds):
        self.now_s += max(seconds, 0.001)

    def send_command(self, command, *, idempotency_key=None):
        device_id = command.device_id
        if self.refusals.get(device_id):
            raise self.refusals[device_id].pop(0)
        keys = self.stored.setdefault(device_id, [])
        if idempotency_key is None or idempotency_key not in keys:
            keys.append(idempotency_key)
        if self.losses.get(device_id):
            raise self.losses[device_id].pop(0)
        return CommandRecord.receive({"command_payload": {}, "id": f"c-{device_id}"})

    def end_of(self, device_id, command_id):
        assert command_id == f"c-{device_id}"
        if self.away:
            raise self.away.pop()
        if device_id in self.broken:
            raise ServerFault(500)
        return self.ends.get(device_id)

    def roll(self, rollout, *, has_keys=True):
        return rollout.run(self, self, has_keys=has_keys)


@pytest.fixture
def played(monkeypatch):
    return Played(monkeypatch)


def begin(folder, *waves, **limits):
    return Rollout(folder / "r.db", (replace(PLAN, **limits), waves))


def states(rollout):
    return {each["device_id"]: each["state"] for each in rollout.devices()}


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_lost_answer_is_sent_again_under_its_key_or_never_and_a_lost_look_is_made_again(played, tmp_path, has_keys):
    played.ends = dict.fromkeys("ab", GOOD)
    played.losses = {"a": [TransportError("lost")]}
    with begin(tmp_path, ["a", "b"], max_silent=1.0) as rollout:
        with pytest.raises(TransportError):
            played.roll(rollout, has_keys=has_keys)
        played.away = [TransportError("lost")] * 3
        assert played.roll(rollout, has_keys=has_keys) is None
        assert states(rollout) == {"a": "succeeded" if has_keys else "silent", "b": "succeeded"}
    assert {device: len(keys) for device, keys in played.stored.items()} == {"a": 1, "b": 1}


def test_a_wave_without_results_ends_after_its_time_and_the_next_one_does_not_begin(played, tmp_path):
    with begin(tmp_path, ["a"], ["b"]) as rollout:
        assert "gave no result" in played.roll(rollout)
        assert played.now_s == pytest.approx(1_060.0, abs=1.0)
        assert states(rollout) == {"a": "sent", "b": "planned"}
        played.ends = dict.fromkeys("ab", GOOD)
        rollout.replan(timeout_s=600.0, max_failed=None)
        assert played.roll(rollout) is None


def test_a_device_that_can_never_be_looked_at_does_not_hide_the_end_of_the_others(played, tmp_path):
    played.ends, played.broken = {"b": GOOD}, {"a"}
    with begin(tmp_path, ["a", "b"], max_silent=0.5, timeout_s=600.0) as rollout:
        assert played.roll(rollout) is None
        assert states(rollout) == {"a": "sent", "b": "succeeded"}


def test_keys_that_are_refused_leave_the_device_to_be_sent_and_a_refused_command_has_failed(played, tmp_path):
    played.ends = dict.fromkeys("ab", GOOD)
    played.refusals = {"a": [Unauthorized(401)], "b": [Refused(400, "validation_error")]}
    with begin(tmp_path, ["a", "b"], max_failed=1.0) as rollout:
        with pytest.raises(Unauthorized):
            played.roll(rollout)
        assert states(rollout) == {"a": "planned", "b": "planned"}
        assert played.roll(rollout) is None
        assert states(rollout) == {"a": "succeeded", "b": "failed"}


def test_a_command_that_may_be_there_is_not_forgotten_when_its_repeat_is_refused(played, tmp_path):
    """A day later its key is known no more: as planned it would be sent a second time."""
    played.losses, played.ends = {"a": [TransportError("lost")]}, {"a": GOOD}
    with begin(tmp_path, ["a"], max_silent=1.0) as rollout:
        with pytest.raises(TransportError):
            played.roll(rollout)
        played.refusals = {"a": [Unauthorized(401)]}
        with pytest.raises(Unauthorized):
            played.roll(rollout)
        played.now_s += 86_400
        assert played.roll(rollout) is None
        assert states(rollout) == {"a": "silent"}
    assert {device: len(keys) for device, keys in played.stored.items()} == {"a": 1}
