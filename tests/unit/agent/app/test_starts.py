"""Starts that came to nothing: safe mode, and a configuration on trial; the system tests have whole trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.app.starts import FILE_NAME, ConfigTrial, StartCounter, end_trial, find_regressions, put_on_trial
from agent.config import load_config
from agent.config.load import FOLDER, LAYER
from agent.core.values import Outcome, OutcomeStatus
from agent.errors import EXIT_REPLACE, StorageError
from agent.handlers.base import HandlerRejected
from agent.handlers.maintenance import UpdateConfig
from agent.health import Health, Part
from agent.trial import KEPT, ROLLED_BACK, TRYING
from tests.support.fakes import FakeClock


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


def propose(folder: Path) -> StartCounter:
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / LAYER).write_text("a: old\n")
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
        propose(tmp_path)
        (tmp_path / FOLDER / LAYER).unlink()
        (tmp_path / FOLDER / LAYER).mkdir()  # which no file can replace
        trial = start(tmp_path).trial
        assert trial is not None
        assert trial.phase == ROLLED_BACK
        assert "cannot be written" in trial.reason


# --- what update_config brings ----------------------------------------------------------------------------------------

POLL_90 = {"commands": {"poll": {"idle_s": 90}}}


class Device:
    """A device and the process that runs on it, which is also its agent and its supervisor.

    Attributes:
        timers: what the process has scheduled.
        concluded: how its commands ended.
        endings: with which exit codes it ended.
        fault: of the journal.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.environ = folder, folder / "config.yaml", dict[str, str]()
        self.path.write_text(
            "service: {base_url: 'https://api.example.com'}\ndevice: {device_id: d1}\n"
            f"auth: {{allow_secret_key_on_device: true}}\nstate_dir: '{folder}'\n"
            "sensors: [{name: board, type: system, interval_s: 60}]\n"
        )
        self.layer = folder / FOLDER / LAYER
        self.process: Any = self
        self.supervisor = self
        self.concluded: list[OutcomeStatus] = []
        self.endings: list[int] = []
        self.fault: Exception | None = None
        self.error = ""
        self.start()

    def start(self) -> None:
        """Another process begins."""
        self.counter = StartCounter(self.folder)
        self.counter.begin()
        self.config: Any = load_config(self.path, {}).config
        self.health = Health(FakeClock())
        self.health.put("commands", "ok")
        self.timers: list[Callable[[], object]] = []
        end_trial(self)  # type: ignore[arg-type]

    def propose(self, config: Any, **settings: Any) -> tuple[str, ...]:
        """The keys that it changes."""
        return put_on_trial(self.process, "c1", config, UpdateConfig.Settings(**settings)).changed

    def pass_time(self) -> None:
        self.timers.pop(0)()

    def schedule(self, _delay_s: float, call: Callable[[], object]) -> None:
        self.timers.append(call)

    def end(self, _reason: str, exit_code: int) -> None:
        self.endings.append(exit_code)

    def conclude(self, _command_id: str, outcome: Outcome) -> None:
        if self.fault is not None:
            raise self.fault
        self.concluded.append(outcome.status)
        self.error = outcome.error or ""


@pytest.fixture
def device(tmp_path) -> Device:
    return Device(tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("a: [", ("invalid_configuration",)),
        ("auth: {mode: bearer}", ("invalid_configuration", "only the local file")),
        ("service: {base_url: 'https://elsewhere.example.com'}", ("not_allowed", "service.base_url")),
        ("executables: {x: {argv: [/bin/sh]}}", ("not_allowed",)),
        ("sensors: [{name: board, type: file, settings: {path: /etc/shadow}}]", ("not_allowed",)),
        ("logging: {level: debug}\nservice: {timeout_s: 3}", ("not_allowed", "service.timeout_s")),
    ],
)
def test_what_no_command_may_do_is_told_and_touches_nothing(device, config, words):
    with pytest.raises(HandlerRejected) as caught:
        device.propose(config)
    assert all(word in str(caught.value) for word in words)
    assert not device.layer.exists()


def test_a_plug_in_that_would_not_be_usable_and_a_second_trial_are_refused(device):
    sensors = {"sensors": [{"name": "board", "type": "system", "settings": {"disk": 5}}]}
    with pytest.raises(HandlerRejected, match="sensor board would be invalid_settings"):
        device.propose(sensors, allow=("sensors",))
    device.propose({})
    with pytest.raises(HandlerRejected, match="busy"):
        device.propose({})


def test_a_layer_that_no_longer_fits_is_mended_by_another_one(device):
    device.layer.parent.mkdir()
    device.layer.write_bytes(b"logging: {level: gone_since_1.0} # \xff\n")
    assert device.propose({"logging": {"level": "debug"}}) == ("logging.level",)


def test_two_layers_as_large_as_commands_are_fit_into_the_file(device):
    comment = "# " + "\u00e9" * 120_000 + "\n"
    device.layer.parent.mkdir()
    device.layer.write_text(comment)
    device.propose(comment + "logging: {level: debug}\n")
    device.start()
    assert device.counter.on_trial
    assert device.config.logging.level == "debug"


def test_worse_than_before_it_gets_the_time_once_more_and_is_then_taken_back(device):
    device.propose(POLL_90)
    device.start()
    device.health.put("commands", "unreachable", "no route")
    device.pass_time()
    assert device.endings == []
    device.pass_time()
    assert (device.concluded, device.endings) == ([], [EXIT_REPLACE])
    device.start()
    assert device.concluded == [OutcomeStatus.FAILED]
    assert "commands is unreachable (no route)" in device.error
    assert (device.counter.trial, device.config.commands.poll.idle_s) == (None, 60)


@pytest.mark.parametrize("step", ["StartCounter.keep", "ConfigTrial.outcome", "StartCounter.forget_trial"])
def test_a_crash_around_the_verdict_is_made_good_by_the_next_process(device, step, monkeypatch):
    device.propose(POLL_90)
    device.start()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"agent.app.starts.{step}", die)
        with pytest.raises(KeyboardInterrupt):
            device.pass_time()
    device.concluded.clear()
    device.start()
    assert device.config.commands.poll.idle_s == 90
    if device.timers:
        device.fault = StorageError("the disk is full")
        device.pass_time()
        assert device.counter.trial is not None, "it is tried again"
        device.fault = None
        device.pass_time()
    assert (device.concluded, device.counter.trial) == ([OutcomeStatus.SUCCEEDED], None)


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"commands": "unreachable"}, {"commands": Part("unreachable", 0)}, []),
        ({"commands": "unreachable"}, {"commands": Part("unauthorized", 0)}, ["commands is unauthorized"]),
        ({"commands": "ok"}, {}, ["the other side has not answered yet"]),
        ({"sensor:x": "ok"}, {"sensor:x": Part("failing", 0, "no bus")}, ["sensor:x is failing (no bus)"]),
        ({"mode": "safe"}, {"sensor:x": Part("failing", 0)}, []),
        ({}, {"mode": Part("safe", 0), "configuration": Part("refused", 0), "clock": Part("unsure", 0)}, []),
    ],
)
def test_what_counts_as_worse(before, now, words):
    assert find_regressions(before, now) == words
