"""A new layer on trial: what is refused before anything is touched, and every step to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.app.start_counter import ConfigTrial, StartCounter
from agent.app.trial import TrialEnd, find_regressions, put_on_trial
from agent.config import load_config
from agent.config.layer import FOLDER, LAYER
from agent.core.values import Outcome, OutcomeStatus
from agent.errors import StorageError
from agent.exit_codes import EXIT_REPLACE
from agent.handlers.base import HandlerRejected
from agent.handlers.maintenance import UpdateConfig
from agent.runtime.health import Health, Part
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from agent.app.agent import Agent

WELL = ("commands", "readings")


def health_of(parts: Iterable[str]) -> Health:
    """These parts are well."""
    health = Health(FakeClock())
    for name in parts:
        health.put(name, "ok")
    return health


class Device:
    """A state directory with its local file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "config.yaml"
        self.path.write_text(
            "service: {base_url: 'https://api.example.com'}\ndevice: {device_id: d1}\n"
            f"auth: {{allow_secret_key_on_device: true}}\nstate_dir: '{folder}'\n"
            "sensors: [{name: board, type: system, interval_s: 60}]\n"
        )

    def propose(self, config: Any, **settings: Any) -> ConfigTrial:
        counter = StartCounter(self.folder)
        counter.begin()
        config_in_force = SimpleNamespace(state_dir=self.folder)
        process: Any = SimpleNamespace(
            counter=counter, path=self.path, environ={}, config=config_in_force, health=health_of(WELL)
        )
        trial = put_on_trial(process, "c1", config, UpdateConfig.Settings(**settings))
        counter.ended_in_order()
        return trial

    def refused(self, config: Any, **members: Any) -> HandlerRejected:
        with pytest.raises(HandlerRejected) as caught:
            self.propose(config, **members)
        return caught.value

    def start(self) -> tuple[StartCounter, float]:
        """What a process finds that begins now: its counter, and the poll interval that it has."""
        counter = StartCounter(self.folder)
        counter.begin()
        return counter, load_config(self.path, {}).config.commands.poll.idle_s

    @property
    def trial(self) -> ConfigTrial | None:
        return StartCounter(self.folder).trial

    @property
    def layer(self) -> Path:
        return self.folder / FOLDER / LAYER


@pytest.fixture
def device(tmp_path) -> Device:
    return Device(tmp_path)


class End:
    """Drives a trial's end by hand."""

    def __init__(self, counter: StartCounter) -> None:
        self.health = health_of(WELL)
        self.calls: list[tuple[float, Callable[[], object]]] = []
        self.concluded: list[tuple[str, Outcome]] = []
        self.endings: list[tuple[str, int]] = []
        self.fault: Exception | None = None
        self.process = SimpleNamespace(counter=counter, supervisor=self, health=self.health)
        assert counter.trial is not None
        TrialEnd(cast("Agent", self), counter.trial).begin()

    def schedule(self, delay_s: float, call: Callable[[], object]) -> None:
        self.calls.append((delay_s, call))

    def end(self, reason: str, exit_code: int) -> None:
        self.endings.append((reason, exit_code))

    def pass_time(self) -> float:
        delay_s, call = self.calls.pop(0)
        call()
        return delay_s

    def conclude(self, command_id: str, outcome: Outcome) -> None:
        if self.fault is not None:
            raise self.fault
        self.concluded.append((command_id, outcome))


class TestRefused:
    @pytest.mark.parametrize(
        ("config", "words"),
        [
            (
                {"commands": {"poll": {"idle_s": "x"}}, "loging": {}},
                ("commands.poll.idle_s", "did you mean 'logging'?"),
            ),
            ("a: [", ("invalid_configuration",)),
            ("auth: {mode: bearer}", ("invalid_configuration", "only the local file")),
            ("service: {base_url: 'https://elsewhere.example.com'}", ("not_allowed", "service.base_url")),
            ("executables: {x: {argv: [/bin/sh]}}", ("not_allowed",)),
            ("commands: {handlers: {run: {settings: {programs: {x: {argv: [/bin/sh]}}}}}}", ("not_allowed",)),
            ("sensors: [{name: board, type: file, settings: {path: /etc/shadow}}]", ("not_allowed",)),
            ("sensors: [{name: board, type: system}, {name: b2, type: program}]", ("not_allowed",)),
            ("logging: {level: debug}\nservice: {timeout_s: 3}", ("not_allowed", "service.timeout_s")),
        ],
    )
    def test_what_no_command_may_do_is_told_and_touches_nothing(self, device, config, words):
        error = device.refused(config)
        assert all(word in str(error) for word in words)
        assert not (device.folder / FOLDER).exists()

    def test_a_plug_in_that_would_not_be_usable(self, device):
        sensors = {"sensors": [{"name": "board", "type": "system", "settings": {"disk": 5}}]}
        assert "sensor board would be invalid_settings" in device.refused(sensors, allow=("sensors",)).message

    def test_a_second_one_while_one_is_on_trial(self, device):
        device.propose({"logging": {"level": "debug"}})
        assert device.refused({}).code == "busy"

    def test_a_layer_that_no_longer_fits_is_mended_by_another_one(self, device):
        device.layer.parent.mkdir()
        device.layer.write_text("logging: {level: gone_since_1.0}\n")
        assert device.propose({"logging": {"level": "debug"}}).changed == ("logging.level",)


class TestEnd:
    def test_worse_than_before_it_gets_the_time_once_more_and_is_then_taken_back(self, device):
        device.propose({"commands": {"poll": {"idle_s": 90}}})
        end = End(device.start()[0])
        end.health.put("commands", "unreachable", "no route")
        end.pass_time()
        assert (end.concluded, end.endings) == ([], [])
        end.pass_time()
        assert end.concluded == []
        assert [code for _, code in end.endings] == [EXIT_REPLACE]
        counter, idle_s = device.start()
        assert idle_s == 60
        after = End(counter)
        [(_, outcome)] = after.concluded
        assert outcome.status is OutcomeStatus.FAILED
        assert "commands is unreachable (no route)" in str(outcome.error)
        assert device.trial is None

    def test_a_result_that_cannot_be_written_is_tried_again_and_written_once(self, device):
        device.propose({})
        end = End(device.start()[0])
        end.fault = StorageError("the disk is full")
        end.pass_time()
        assert device.trial is not None
        end.fault = None
        end.pass_time()
        assert len(end.concluded) == 1
        assert end.calls == []

    @pytest.mark.parametrize("step", ["keep", "outcome_of", "forget_trial"])
    def test_a_crash_around_the_verdict_is_made_good_by_the_next_process(self, device, step, monkeypatch):
        device.propose({"commands": {"poll": {"idle_s": 90}}})
        end = End(device.start()[0])

        class Killed(BaseException):
            pass

        def die(*_: object) -> None:
            raise Killed

        owner = "agent.app.trial" if step == "outcome_of" else "agent.app.start_counter.StartCounter"
        with monkeypatch.context() as patched:
            patched.setattr(f"{owner}.{step}", die)
            with pytest.raises(Killed):
                end.pass_time()
        counter, idle_s = device.start()
        assert idle_s == 90
        after = End(counter)
        if step == "keep":
            after.pass_time()
        assert [outcome.status for _, outcome in after.concluded] == [OutcomeStatus.SUCCEEDED]
        assert device.trial is None


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"commands": "unreachable"}, {"commands": Part("unreachable", 0)}, []),
        ({"commands": "unreachable"}, {"commands": Part("unauthorized", 0)}, ["commands is unauthorized"]),
        ({"commands": "ok"}, {}, ["the other side has not answered yet"]),
        ({"sensor:x": "ok"}, {"sensor:x": Part("failing", 0, "no bus")}, ["sensor:x is failing (no bus)"]),
        ({}, {"sensor:new": Part("failing", 0)}, ["sensor:new is failing"]),
        ({"mode": "safe"}, {"sensor:x": Part("failing", 0)}, []),
        ({}, {"mode": Part("safe", 0), "configuration": Part("refused", 0), "clock": Part("unsure", 0)}, []),
    ],
)
def test_what_counts_as_worse(before, now, words):
    assert find_regressions(before, now) == words
