"""A rollout against a service that is played here, on a clock that is played too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agent.errors import NotFound, RateLimited, Refused, ServerFault, TransportError, Unauthorized
from agent.wire.commands import CommandRecord
from gateway.rollout.book import Begun, RolloutBook
from gateway.rollout.plan import DeviceState, Limits
from gateway.rollout.results import CommandEnd
from gateway.rollout.rolling import Ended, Rollout

LIMITS = Limits(failed=0.5, silent=0.5, timeout_s=60.0)
GOOD = CommandEnd(DeviceState.SUCCEEDED)
BAD = CommandEnd(DeviceState.FAILED, "no room")


class Played:
    """The service and the clock.

    Attributes:
        refusals: device -> errors that meet its next commands, before they are stored.
        losses: device -> errors that meet its next commands, after they are stored.
        ends: device -> how its command ends; without one it never does.
        stored: device -> keys of the commands that it has.
    """

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.refusals: dict[str, list[Exception]] = {}
        self.losses: dict[str, list[Exception]] = {}
        self.ends: dict[str, CommandEnd] = {}
        self.stored: dict[str, list[str | None]] = {}
        self.slept_s: list[float] = []
        self.looked: Counter[str] = Counter()
        self.nameless = False

    def send_command(self, command, *, idempotency_key=None):
        device_id = command.device_id
        if self.refusals.get(device_id):
            raise self.refusals[device_id].pop(0)
        keys = self.stored.setdefault(device_id, [])
        if idempotency_key is None or idempotency_key not in keys:
            keys.append(idempotency_key)
        if self.losses.get(device_id):
            raise self.losses[device_id].pop(0)
        record = {"command_payload": command.command_payload, "id": None if self.nameless else f"c-{device_id}"}
        return CommandRecord.receive(record)

    def end_of(self, row):
        self.looked[row.device_id] += 1
        end = self.ends.get(row.device_id)
        if isinstance(end, Exception):
            raise end
        assert row.command_id == f"c-{row.device_id}"
        return end

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += max(seconds, 0.001)

    def roll(self, book: RolloutBook, *, has_keys: bool = True):
        rollout = Rollout(
            book,
            self,
            self,
            has_keys=has_keys,
            show=lambda _progress: None,
            wall=lambda: self.now_s,
            monotonic=lambda: self.now_s,
            sleep=self.sleep,
        )
        return rollout.run()


@pytest.fixture
def played():
    return Played()


def begin(folder: Path, *waves: list[str], limits: Limits = LIMITS) -> RolloutBook:
    begun = Begun("9b2f6a3e-3f0c-4d5f-8a58-0c2f6a3e3f0c", "r", "http://127.0.0.1:1", {"command": "ping"}, 60, 1_000.0)
    return RolloutBook.begin(folder / "r.db", begun, limits, waves)


def states(book: RolloutBook) -> dict[str, str]:
    return {row.device_id: row.state.value for row in book.rows()}


def test_the_next_wave_begins_when_the_one_before_has_done_well(played, tmp_path):
    played.ends = dict.fromkeys("abc", GOOD)
    with begin(tmp_path, ["a"], ["b", "c"]) as book:
        assert played.roll(book).how is Ended.DONE
        assert states(book) == dict.fromkeys("abc", "succeeded")
        assert all(len(keys) == 1 for keys in played.stored.values())
        assert len({keys[0] for keys in played.stored.values()}) == 3


def test_a_wave_that_fails_stops_it_and_the_next_one_gets_nothing(played, tmp_path):
    played.ends = {"a": BAD, "b": GOOD}
    with begin(tmp_path, ["a"], ["b"]) as book:
        ending = played.roll(book)
        assert ending.how is Ended.STOPPED
        assert "wave 1 failed" in (ending.reason or "")
        assert states(book) == {"a": "failed", "b": "planned"}
        book.set_limits(Limits(1.0, 1.0, 60.0))
        assert played.roll(book).how is Ended.DONE
        assert {device: len(keys) for device, keys in played.stored.items()} == {"a": 1, "b": 1}


def test_silence_is_judged_when_the_wave_has_had_its_time_and_after_a_last_look(played, tmp_path):
    played.ends = {"a": GOOD}
    with begin(tmp_path, ["a", "b", "c"], ["d"]) as book:
        ending = played.roll(book)
        assert ending.how is Ended.STOPPED
        assert "2 of the 3 device(s) of wave 1 gave no result" in (ending.reason or "")
        assert 1_060.0 <= played.now_s < 1_062.0
        looked = played.looked["b"]
        assert 5 < looked < 40
        # Resumed long after: each is looked at once more, and a late result counts.
        played.now_s += 86_400.0
        played.ends |= {"b": GOOD, "d": GOOD}
        assert played.roll(book).how is Ended.DONE
        assert states(book) == {"a": "succeeded", "b": "succeeded", "c": "sent", "d": "succeeded"}
        assert "c" not in {device for device, keys in played.stored.items() if len(keys) != 1}


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_lost_answer_is_repeated_under_its_key_or_not_at_all(played, tmp_path, has_keys):
    played.ends = dict.fromkeys("abc", GOOD)
    played.losses = {"b": [TransportError("cut"), ServerFault(502)]}
    with begin(tmp_path, ["a", "b", "c"]) as book:
        assert played.roll(book, has_keys=has_keys).how is Ended.DONE
        assert {device: len(keys) for device, keys in played.stored.items()} == dict.fromkeys("abc", 1)
        assert states(book)["b"] == ("succeeded" if has_keys else "silent")


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("late_s", [10.0, 90_000.0])
def test_a_device_that_a_crash_left_uncertain_is_sent_again_only_while_its_key_is_good(
    played, tmp_path, has_keys, late_s
):
    played.ends = dict.fromkeys("ab", GOOD)
    played.losses = {"a": [KeyboardInterrupt()]}
    with begin(tmp_path, ["a", "b"]) as book, pytest.raises(KeyboardInterrupt):
        played.roll(book, has_keys=has_keys)
    played.now_s += late_s
    with RolloutBook.open(tmp_path / "r.db") as book:
        assert states(book) == {"a": "sending", "b": "planned"}
        assert played.roll(book, has_keys=has_keys).how is Ended.DONE
        is_repeated = has_keys and late_s < 80_000
        assert states(book) == {"a": "succeeded" if is_repeated else "silent", "b": "succeeded"}
    assert {device: len(keys) for device, keys in played.stored.items()} == {"a": 1, "b": 1}


def test_what_the_service_refuses_counts_as_failed_with_its_reason(played, tmp_path):
    played.ends = dict.fromkeys("abcd", GOOD)
    played.refusals = {"b": [NotFound(404, "device_not_found")], "c": [Refused(400, "validation_error")]}
    with begin(tmp_path, ["a", "b", "c", "d"]) as book:
        assert played.roll(book).how is Ended.DONE
        failed = {row.device_id: row.reason for row in book.rows(None, DeviceState.FAILED)}
        assert failed == {"b": "404 device_not_found", "c": "400 validation_error"}


def test_a_device_that_was_removed_meanwhile_has_failed(played, tmp_path):
    played.ends = {"a": GOOD, "b": NotFound(404, "device_not_found")}
    with begin(tmp_path, ["a", "b"]) as book:
        assert played.roll(book).how is Ended.DONE
        assert states(book) == {"a": "succeeded", "b": "failed"}


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_short_quota_is_waited_for_and_nothing_is_lost(played, tmp_path, has_keys):
    played.ends = dict.fromkeys("ab", GOOD)
    played.refusals = {"a": [RateLimited(429, retry_after_s=30.0)] * 3}
    with begin(tmp_path, ["a", "b"]) as book:
        assert played.roll(book, has_keys=has_keys).how is Ended.DONE
        assert states(book) == dict.fromkeys("ab", "succeeded")


def test_keys_that_are_refused_end_it_and_leave_the_device_unsent(played, tmp_path):
    played.ends = dict.fromkeys("ab", GOOD)
    played.refusals = {"a": [Unauthorized(401, "invalid_credentials")]}
    with begin(tmp_path, ["a", "b"]) as book:
        with pytest.raises(Unauthorized):
            played.roll(book, has_keys=False)
        assert states(book) == dict.fromkeys("ab", "planned")
        assert played.roll(book, has_keys=False).how is Ended.DONE


def test_a_service_that_stays_away_ends_it_after_ten_minutes_and_it_can_be_resumed(played, tmp_path):
    played.ends = dict.fromkeys("ab", GOOD)
    played.refusals = {"a": [TransportError("away")] * 100}
    with begin(tmp_path, ["a", "b"]) as book:
        with pytest.raises(TransportError):
            played.roll(book)
        assert 600 <= played.now_s - 1_000 < 700
        assert max(played.slept_s) == 30.0
        played.refusals = {}
        assert played.roll(book).how is Ended.DONE
        assert {device: len(keys) for device, keys in played.stored.items()} == {"a": 1, "b": 1}


def test_a_service_that_names_no_command_stops_it_after_the_first_device(played, tmp_path):
    played.nameless = True
    with begin(tmp_path, ["a"], ["b", "c"]) as book:
        assert played.roll(book).how is Ended.STOPPED
        assert list(played.stored) == ["a"]
