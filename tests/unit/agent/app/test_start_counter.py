"""Which starts came to nothing, when that makes safe mode, and when it takes a configuration back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.app.starts import FILE_NAME, ConfigTrial, StartCounter
from agent.config.load import FOLDER, LAYER
from agent.trial import KEPT, ROLLED_BACK, TRYING


def start(folder: Path, limit: int = 3) -> StartCounter:
    counter = StartCounter(folder)
    counter.begin()
    counter.choose_mode(limit)
    return counter


def crash(folder: Path, times: int) -> None:
    for _ in range(times):
        start(folder).crashed("the plug-in")


class TestSafeMode:
    def test_a_start_that_ended_in_order_or_stayed_up_does_not_count(self, tmp_path):
        for _ in range(5):
            start(tmp_path).ended_in_order()
        crash(tmp_path, 2)
        start(tmp_path).healthy()
        assert not (tmp_path / FILE_NAME).exists()
        assert not start(tmp_path).is_safe

    def test_it_is_left_by_an_ending_in_order_and_one_more_failure_leads_back(self, tmp_path):
        crash(tmp_path, 3)
        safe = start(tmp_path)
        safe.healthy()  # which it never calls itself
        assert safe.is_safe
        safe.ended_in_order()
        assert not start(tmp_path).is_safe
        assert start(tmp_path).is_safe
        assert not start(tmp_path, 0).is_safe, "it can be switched off"

    def test_safe_mode_that_dies_too_comes_back_ever_more_slowly_and_keeps_its_reason(self, tmp_path):
        crash(tmp_path, 3)
        pauses = [start(tmp_path).pause_s for _ in range(4)]
        assert pauses == [0.0, 10.0, 20.0, 40.0]
        found = json.loads((tmp_path / FILE_NAME).read_text())
        (tmp_path / FILE_NAME).write_text(json.dumps({**found, "failed": 5000}))
        counter = start(tmp_path)
        assert counter.pause_s == 300.0, "after days of it, too"
        assert "the plug-in" in counter.why

    @pytest.mark.parametrize(
        "text", ["", "[]", "[[" * 5000, '{"failed": []}', '{"failed": 9, "version": "0.0.1"}', '{"trial": {"x": 1}}']
    )
    def test_a_damaged_file_and_the_starts_of_another_version_count_as_none(self, tmp_path, text):
        (tmp_path / FILE_NAME).write_text(text)
        counter = start(tmp_path)
        assert (counter.is_safe, counter.trial) == (False, None)


def propose(folder: Path, before: str | None = "a: old\n") -> StartCounter:
    if before is not None:
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / FOLDER / LAYER).write_text(before)
    counter = start(folder)
    counter.propose(ConfigTrial(TRYING, command_id="c1", layer="a: new\n", changed=("x.y",)))
    return counter


def layer(folder: Path) -> str:
    return (folder / FOLDER / LAYER).read_text()


class TestTrial:
    def test_a_kept_layer_stays_and_leaves_nothing_else_behind(self, tmp_path):
        propose(tmp_path).ended_in_order()
        start(tmp_path).keep()
        for _ in range(5):  # cut off before it was answered
            trial = start(tmp_path, 0).trial
            assert trial is not None
            assert trial.phase == KEPT
        counter = start(tmp_path, 0)
        counter.forget_trial()
        counter.healthy()
        assert layer(tmp_path) == "a: new\n"
        assert sorted(path.name for path in tmp_path.rglob("*")) == [FOLDER, LAYER]

    @pytest.mark.parametrize("before", ["a: old\n", None])
    def test_starts_that_do_not_last_bring_the_former_layer_back(self, tmp_path, before):
        crash(tmp_path, 2)  # these do not count for it
        propose(tmp_path, before).ended_in_order()
        start(tmp_path).ended_in_order()
        for _ in range(3):
            assert not start(tmp_path).is_safe
            assert layer(tmp_path) == "a: new\n"
        counter = start(tmp_path)
        assert layer(tmp_path) == (before or "")
        assert counter.trial is not None
        assert counter.trial.phase == ROLLED_BACK
        assert "3 starts with it did not last" in counter.trial.reason
        assert not counter.is_safe, "the starts died of a configuration that is gone"

    def test_wherever_it_is_cut_off_the_layer_follows_what_was_decided(self, tmp_path, monkeypatch):
        """Each process dies before the layer is written; the next one makes it good."""

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        propose(tmp_path)
        assert layer(tmp_path) == "a: old\n"
        with monkeypatch.context() as patched:
            patched.setattr(StartCounter, "_follow", die)
            with pytest.raises(KeyboardInterrupt):
                start(tmp_path)
        counter = start(tmp_path)
        assert layer(tmp_path) == "a: new\n"
        with monkeypatch.context() as patched:
            patched.setattr(StartCounter, "_follow", die)
            with pytest.raises(KeyboardInterrupt):
                counter.take_back("it was worse")
        assert layer(tmp_path) == "a: new\n"
        trial = start(tmp_path).trial
        assert layer(tmp_path) == "a: old\n"
        assert trial is not None
        assert trial.reason == "it was worse"

    def test_a_disk_that_refuses_costs_the_count_and_a_layer_that_is_not_in_force_is_not_kept(self, tmp_path, caplog):
        start(tmp_path / "missing").healthy()
        assert "starts=not_counted" in caplog.text
        propose(tmp_path, None)
        (tmp_path / FOLDER).write_text("a file is in the way")
        trial = start(tmp_path).trial
        assert trial is not None
        assert trial.phase == ROLLED_BACK
        assert "cannot be written" in trial.reason
