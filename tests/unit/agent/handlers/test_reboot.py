"""The handler reboot, with a unit of systemd that the test plays."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.root_tasks import Reboot


class Unit(threading.Event):
    """An event whose waits return at once; at each of them the unit may take the request.

    Attributes:
        takes: it takes a request.
        stops_after: the agent is told to stop at this wait.
    """

    def __init__(self, folder: Path, *, takes: bool = True, stops_after: int | None = None) -> None:
        super().__init__()
        self.request, self.taken = folder / "reboot", folder / "taken"
        self.takes, self.stops_after = takes, stops_after
        self.waits = self.asked = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.takes and self.request.exists():
            self.asked += 1
            self.taken.touch()
            self.request.unlink()
        if self.stops_after is not None and self.waits >= self.stops_after:
            self.set()
        return self.is_set()


@pytest.fixture
def run(tmp_path, make_context):
    files = {"request_file": tmp_path / "reboot", "taken_file": tmp_path / "taken"}
    reboot = Reboot(Reboot.Settings(answer_timeout_s=0.5, down_timeout_s=1.0, **files))
    return lambda unit, **changes: reboot.handle(Reboot.Payload(), make_context(stopping=unit, **changes))


def test_in_a_container_that_keeps_its_hosts_boot_id_the_missing_file_tells(run, tmp_path):
    assert run(Unit(tmp_path, stops_after=2)) is None
    (tmp_path / "taken").unlink()
    unit = Unit(tmp_path)
    assert run(unit, restarted=True, attempt=2)["rebooted"] is True
    assert unit.asked == 0


def test_an_agent_that_comes_back_before_the_reboot_waits_for_it_and_does_not_ask_again(run, tmp_path):
    assert run(Unit(tmp_path, stops_after=2)) is None
    unit = Unit(tmp_path, stops_after=1)
    assert run(unit, restarted=True, attempt=2) is None
    assert unit.asked == 0


@pytest.mark.parametrize("note", ['["command-1", "boot-1", false]', '["command-0", "boot-0", true]'])
def test_an_agent_that_died_before_the_request_was_taken_asks_again_and_the_note_of_another_command_counts_for_nothing(
    run, tmp_path, controls, note
):
    controls.remember("reboot", note)
    unit = Unit(tmp_path, stops_after=2)
    assert run(unit, restarted=True, attempt=2) is None
    assert unit.asked == 1


def test_a_reboot_that_never_comes_has_failed(run, tmp_path):
    with pytest.raises(HandlerFailed, match=r"no_reboot: .* within 1 s") as caught:
        run(Unit(tmp_path))
    assert not isinstance(caught.value, HandlerRejected)


def test_an_agent_that_stops_before_the_request_was_taken_withdraws_it(run, tmp_path):
    with pytest.raises(HandlerRejected, match="stopped"):
        run(Unit(tmp_path, takes=False, stops_after=2))
    assert not (tmp_path / "reboot").exists()
