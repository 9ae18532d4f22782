"""Which starts came to nothing, when that makes safe mode, and when it takes a configuration back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.app.start_counter import FILE_NAME, KEPT, ROLLED_BACK, ConfigTrial, StartCounter
from agent.config.layer import FOLDER, LAYER
from agent.files import replace_file

LIMIT = 3


def start(folder: Path, limit: int = LIMIT) -> StartCounter:
    counter = StartCounter(folder)
    counter.begin()
    counter.choose_mode(limit)
    return counter


def crash(folder: Path, times: int, reason: str | None = None) -> None:
    for _ in range(times):
        counter = start(folder)
        if reason is not None:
            counter.crashed(reason)


class TestSafeMode:
    def test_a_start_that_ended_in_order_does_not_count(self, tmp_path):
        for _ in range(10):
            counter = start(tmp_path)
            assert not counter.is_safe
            counter.ended_in_order()
        assert not (tmp_path / FILE_NAME).exists()

    def test_an_agent_that_stays_up_forgets_what_was_before(self, tmp_path):
        crash(tmp_path, 2)
        start(tmp_path).healthy()
        assert not (tmp_path / FILE_NAME).exists()
        assert not start(tmp_path).is_safe

    def test_it_is_left_by_an_ending_in_order_and_one_more_failure_leads_back_for_twice_as_long(self, tmp_path):
        crash(tmp_path, 3)
        safe = start(tmp_path)
        assert (safe.is_safe, safe.safe_for_s) == (True, 600.0)
        safe.ended_in_order()
        assert not start(tmp_path).is_safe
        again = start(tmp_path)
        assert (again.is_safe, again.safe_for_s) == (True, 1200.0)
        again.ended_in_order()
        start(tmp_path)
        assert start(tmp_path).safe_for_s == 2400.0

    def test_safe_mode_that_dies_too_comes_back_ever_more_slowly_and_keeps_its_reason(self, tmp_path):
        crash(tmp_path, 3, "the plug-in")
        assert start(tmp_path).pause_s == 0
        pauses = []
        for _ in range(10):
            counter = start(tmp_path)
            assert counter.is_safe
            pauses.append(counter.pause_s)
        assert pauses[:3] == [10.0, 20.0, 40.0]
        assert pauses[-1] == 300.0
        assert "the plug-in" in counter.why
        found = json.loads((tmp_path / FILE_NAME).read_text())
        (tmp_path / FILE_NAME).write_text(json.dumps({**found, "failed": 5000}))
        assert start(tmp_path).pause_s == 300.0, "after days of it, too"

    def test_it_is_never_called_healthy_and_can_be_switched_off(self, tmp_path):
        crash(tmp_path, 3)
        start(tmp_path).healthy()
        assert start(tmp_path).is_safe
        assert not start(tmp_path, 0).is_safe

    def test_the_starts_of_another_version_say_nothing_about_this_one(self, tmp_path):
        crash(tmp_path, 5)
        found = json.loads((tmp_path / FILE_NAME).read_text())
        (tmp_path / FILE_NAME).write_text(json.dumps({**found, "version": "0.0.1"}))
        assert not start(tmp_path).is_safe

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "[[" * 5000, '{"failed": []}', '{"trial": 5}', '{"trial": {"command_id": "x"}}']
    )
    def test_a_damaged_file_counts_as_none(self, tmp_path, text):
        (tmp_path / FILE_NAME).write_text(text)
        counter = start(tmp_path)
        assert not counter.is_safe
        assert counter.trial is None

    def test_a_disk_that_refuses_costs_the_count_and_not_the_start(self, tmp_path, caplog):
        counter = start(tmp_path / "missing")
        counter.crashed("x")
        counter.healthy()
        assert "starts=not_counted" in caplog.text


def propose(folder: Path, text: str = "a: new\n", before: str | None = "a: old\n") -> StartCounter:
    if before is not None:
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / FOLDER / LAYER).write_text(before)
    counter = start(folder)
    counter.propose(text, ConfigTrial("c1", 120.0, ("x.y",)))
    return counter


def layer(folder: Path) -> str:
    return (folder / FOLDER / LAYER).read_text()


class TestTrial:
    def test_a_kept_layer_stays_and_leaves_nothing_else_behind(self, tmp_path):
        propose(tmp_path).ended_in_order()
        counter = start(tmp_path)
        assert counter.on_trial
        counter.keep()
        counter.forget_trial()
        counter.healthy()
        assert layer(tmp_path) == "a: new\n"
        assert sorted(path.name for path in tmp_path.rglob("*")) == [FOLDER, LAYER]

    @pytest.mark.parametrize("before", ["a: old\n", None])
    def test_starts_that_do_not_last_bring_the_former_layer_back(self, tmp_path, before):
        propose(tmp_path, before=before)
        for _ in range(3):
            counter = start(tmp_path)
            assert layer(tmp_path) == "a: new\n"
            assert not counter.is_safe
        counter = start(tmp_path)
        assert layer(tmp_path) == (before or "")
        assert counter.trial is not None
        assert counter.trial.phase == ROLLED_BACK
        assert "3 start(s) with it did not last" in counter.trial.reason
        assert not counter.is_safe, "the starts died of a configuration that is gone"

    def test_starts_that_failed_before_it_are_not_counted_for_it(self, tmp_path):
        crash(tmp_path, 2)
        propose(tmp_path)
        assert not start(tmp_path).is_safe

    def test_a_process_that_was_asked_to_end_does_not_count(self, tmp_path):
        propose(tmp_path).ended_in_order()
        for _ in range(6):
            start(tmp_path).ended_in_order()
        assert layer(tmp_path) == "a: new\n"

    @pytest.mark.parametrize("step", range(3))
    def test_a_cut_before_the_trial_began_leaves_the_layer_that_was(self, tmp_path, monkeypatch, step):
        """Each of the files that propose() writes is the last one."""
        written = []

        def write(path: Path, *arguments: object, **options: object) -> None:
            if len(written) == step:
                raise KeyboardInterrupt
            written.append(path.name)
            replace_file(path, *arguments, **options)  # type: ignore[arg-type]

        (tmp_path / FOLDER).mkdir()
        (tmp_path / FOLDER / LAYER).write_text("a: old\n")
        counter = start(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr("agent.app.start_counter.replace_file", write)
            with pytest.raises(KeyboardInterrupt):
                counter.propose("a: new\n", ConfigTrial("c1", 120.0))
        assert (start(tmp_path).trial, layer(tmp_path)) == (None, "a: old\n")

    def test_a_cut_after_the_verdict_is_made_good_by_the_next_process(self, tmp_path, monkeypatch):
        propose(tmp_path)
        counter = start(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(StartCounter, "_restore", lambda _self: None)
            assert counter.take_back("it was worse")
        assert layer(tmp_path) == "a: new\n"
        trial = start(tmp_path).trial
        assert layer(tmp_path) == "a: old\n"
        assert trial is not None
        assert trial.reason == "it was worse"

    def test_a_cut_after_it_was_kept_never_takes_it_back(self, tmp_path):
        propose(tmp_path)
        start(tmp_path).keep()
        for _ in range(5):
            trial = start(tmp_path, 0).trial
            assert trial is not None
            assert trial.phase == KEPT
        start(tmp_path).forget_trial()
        assert start(tmp_path).trial is None
        assert layer(tmp_path) == "a: new\n"

    def test_a_disk_that_refuses_begins_no_trial(self, tmp_path):
        counter = start(tmp_path)
        (tmp_path / FOLDER).write_text("a file is in the way")
        with pytest.raises(OSError, match="File exists"):
            counter.propose("a: 1", ConfigTrial("c1", 120.0))
        assert counter.trial is None
        assert StartCounter(tmp_path).trial is None
