"""Which starts came to nothing, and when that makes safe mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.app.start_notes import FILE_NAME, StartNotes
from agent.config.safe_mode import SafeModeConfig
from tests.factories import make_moment

LIMITS = SafeModeConfig(starts=3, window_s=900.0, healthy_after_s=60.0, first_s=600.0, most_s=3000.0)


def start(folder: Path, at_s: float = 1000.0, boot_id: str = "boot-1", limits: SafeModeConfig = LIMITS) -> StartNotes:
    notes = StartNotes(folder)
    notes.begin(make_moment(at_s, boot_id=boot_id))
    notes.judge(limits)
    return notes


def crash(folder: Path, times: int, reason: str | None = None) -> None:
    for number in range(times):
        notes = start(folder, 1000.0 + number)
        if reason is not None:
            notes.crashed(reason)


def test_a_start_that_ended_in_order_does_not_count(tmp_path):
    for number in range(10):
        notes = start(tmp_path, 1000.0 + number)
        assert not notes.is_safe
        notes.ended_in_order()
    assert not (tmp_path / FILE_NAME).exists()


def test_an_agent_that_stays_up_forgets_what_was_before(tmp_path):
    crash(tmp_path, 2)
    start(tmp_path, 1010).healthy()
    assert not (tmp_path / FILE_NAME).exists()
    assert not start(tmp_path, 1020).is_safe


def test_only_a_lone_mark_is_forgotten_without_waiting_for_the_disk(tmp_path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr("agent.app.start_notes.sync_directory", synced.append)
    start(tmp_path).healthy()
    assert not (tmp_path / FILE_NAME).exists()
    assert not synced
    crash(tmp_path, 1)
    start(tmp_path, 1010).healthy()
    assert len(synced) == 1, "two in a row are near to safe mode"
    crash(tmp_path, 3)
    start(tmp_path, 1020).ended_in_order()
    synced.clear()
    start(tmp_path, 1030).healthy()
    assert len(synced) == 1, "and so is a start after safe mode"


def test_crashes_that_lie_far_apart_are_no_loop(tmp_path):
    for number in range(10):
        assert not start(tmp_path, 1000.0 + 500.0 * number).is_safe


def test_starts_of_earlier_boots_count_whatever_the_clocks_say(tmp_path):
    for number in range(3):
        assert not start(tmp_path, 30.0, boot_id=f"boot-{number}").is_safe
    assert start(tmp_path, 5.0, boot_id="boot-9").is_safe


def test_safe_mode_is_left_by_an_ending_in_order_and_one_more_failure_leads_back_for_twice_as_long(tmp_path):
    crash(tmp_path, 3)
    safe = start(tmp_path, 1010)
    assert safe.lasts_s(LIMITS) == 600.0
    safe.ended_in_order()
    assert not start(tmp_path, 1020).is_safe
    again = start(tmp_path, 1030)
    assert again.is_safe
    assert again.lasts_s(LIMITS) == 1200.0
    again.ended_in_order()
    start(tmp_path, 1040)
    third = start(tmp_path, 1050)
    third.ended_in_order()
    start(tmp_path, 1060)
    assert start(tmp_path, 1070).lasts_s(LIMITS) == 3000.0


def test_safe_mode_that_dies_too_comes_back_ever_more_slowly_and_keeps_its_reason(tmp_path):
    crash(tmp_path, 3, "the plug-in")
    assert start(tmp_path, 1010).pause_s() == 0
    pauses = []
    for number in range(10):
        notes = start(tmp_path, 1020.0 + number)
        assert notes.is_safe
        pauses.append(notes.pause_s())
    assert pauses[:3] == [10.0, 20.0, 40.0]
    assert pauses[-1] == 300.0
    assert "the plug-in" in notes.why


def test_safe_mode_never_calls_itself_healthy(tmp_path):
    crash(tmp_path, 3)
    safe = start(tmp_path, 1010)
    safe.healthy()
    assert start(tmp_path, 1020).is_safe


@pytest.mark.parametrize("text", ["", "{", "[]", '{"starts": 5}', '{"starts": [[1]]}', '{"starts": [["b", "x"]]}'])
def test_damaged_notes_count_as_none(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    assert not start(tmp_path).is_safe


def test_a_disk_that_refuses_costs_the_notes_and_not_the_start(tmp_path, caplog):
    notes = StartNotes(tmp_path / "missing")
    notes.begin(make_moment())
    notes.judge(LIMITS)
    notes.crashed("x")
    notes.healthy()
    assert "starts=not_noted" in caplog.text
