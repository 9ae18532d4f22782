"""A plug-in's own tests need no agent: a handler is a class, and its context is a value."""
# ruff: noqa: S101 - the name of a test is its sentence, and asserting is what it does

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from door_plugin.disk_free import DiskFree
from door_plugin.door_sensor import DoorSensor
from door_plugin.open_door import OpenDoor

from agent import AgentControls, CommandContext, HandlerFailed, HandlerRejected, SensorFailed


class Waits(threading.Event):
    """``stopping`` that does not wait: it writes down what the door did meanwhile."""

    def __init__(self, value_file: Path, *, stop: bool = False) -> None:
        super().__init__()
        self.seen: list[tuple[float | None, str]] = []
        self._value_file = value_file
        self._stop = stop

    def wait(self, timeout: float | None = None) -> bool:
        self.seen.append((timeout, self._value_file.read_text()))
        return self._stop


def context_with(stopping: threading.Event, progress: list[Any] | None = None) -> CommandContext:
    return CommandContext(
        command_id="command-1",
        device_id="device-1",
        attempt=1,
        restarted=False,
        stopping=stopping,
        log=logging.LoggerAdapter(logging.getLogger("test"), {}),
        controls=cast("AgentControls", None),  # this plug-in asks nothing of the agent
        report_progress=[].append if progress is None else progress.append,
    )


@pytest.fixture
def value_file(tmp_path: Path) -> Path:
    path = tmp_path / "value"
    path.write_text("0")
    return path


def test_the_door_opens_for_as_long_as_the_command_says(value_file: Path) -> None:
    waits, progress = Waits(value_file), []
    handler = OpenDoor(OpenDoor.Settings(value_file=value_file))
    handler.check()
    result = handler.handle(OpenDoor.Payload(open_s=2), context_with(waits, progress))
    assert result == {"opened_s": 2.0}
    assert waits.seen == [(2.0, "1")]
    assert progress == [{"door": "open"}]
    assert value_file.read_text() == "0"


def test_the_door_closes_when_the_agent_stops(value_file: Path) -> None:
    handler = OpenDoor(OpenDoor.Settings(value_file=value_file))
    with pytest.raises(HandlerFailed, match="stopped"):
        handler.handle(OpenDoor.Payload(), context_with(Waits(value_file, stop=True)))
    assert value_file.read_text() == "0"


def test_an_opener_that_is_not_there_fails_the_check(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenDoor(OpenDoor.Settings(value_file=tmp_path / "none")).check()


def test_disk_free_answers_numbers_and_rejects_an_unknown_path(tmp_path: Path) -> None:
    handler, context = DiskFree(), context_with(threading.Event())
    assert handler.handle(DiskFree.Payload(path=str(tmp_path)), context)["total_bytes"] > 0
    with pytest.raises(HandlerRejected, match="unknown_path"):
        handler.handle(DiskFree.Payload(path=str(tmp_path / "none")), context)


def test_the_contact_is_read_either_way_round(value_file: Path) -> None:
    assert DoorSensor(DoorSensor.Settings(contact_file=value_file)).read() == {"door_open": 0}
    assert DoorSensor(DoorSensor.Settings(contact_file=value_file, inverted=True)).read() == {"door_open": 1}
    value_file.write_text("?")
    with pytest.raises(SensorFailed, match="neither 0 nor 1"):
        DoorSensor(DoorSensor.Settings(contact_file=value_file)).read()
