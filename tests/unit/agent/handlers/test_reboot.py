"""The handler reboot, with a helper that the test plays."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.handlers.base import HandlerFailed, HandlerRejected
from agent.handlers.built_in.reboot import Reboot
from agent.helper import asking
from agent.helper.exchange import HelperAnswer, parse_request, write_file


class Helper(threading.Event):
    """An event whose waits return at once; at each of them the helper may do something.

    Attributes:
        answers: what it says, one at each look; None says nothing and takes nothing.
        takes: it takes a request away, also when it says nothing.
        stops_after: the agent is told to stop at this wait.
    """

    def __init__(
        self, folder: Path, *answers: HelperAnswer | None, takes: bool = True, stops_after: int | None = None
    ) -> None:
        super().__init__()
        self.request = folder / "request.json"
        self.answer = folder / "answer.json"
        self.answers = list(answers)
        self.takes = takes
        self.stops_after = stops_after
        self.waits: list[float | None] = []
        self.asked: list[str] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if self.takes and self.request.exists():
            self.asked.append(parse_request(self.request.read_bytes()).action)
            self.request.unlink()
        if self.asked and self.answers and (answer := self.answers.pop(0)) is not None:
            write_file(self.answer, answer, 0o644)
        if self.stops_after is not None and len(self.waits) >= self.stops_after:
            self.set()
        return self.is_set()


ACCEPTED = HelperAnswer("command-1", "accepted")


@pytest.fixture
def reboot(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "_TAKEN_S", 0.1)
    files = {"request_file": tmp_path / "request.json", "answer_file": tmp_path / "answer.json"}
    return Reboot(Reboot.Settings(answer_timeout_s=0.5, down_timeout_s=1.0, **files))


@pytest.fixture
def run(reboot, make_context):
    def run_(helper, *, delay_s=0.0, **changes):
        return reboot.handle(Reboot.Payload(delay_s=delay_s), make_context(stopping=helper, **changes))

    return run_


def test_in_a_container_that_keeps_its_hosts_boot_id_the_missing_answer_tells(run, tmp_path, controls):
    assert run(Helper(tmp_path, ACCEPTED, stops_after=4)) is None
    (tmp_path / "answer.json").unlink()
    helper = Helper(tmp_path)
    assert run(helper, restarted=True, attempt=2)["rebooted"] is True
    assert helper.asked == []


def test_an_agent_that_comes_back_before_the_reboot_waits_for_it_and_does_not_ask_again(run, tmp_path, controls):
    assert run(Helper(tmp_path, ACCEPTED, stops_after=4)) is None
    helper = Helper(tmp_path, stops_after=3)
    assert run(helper, restarted=True, attempt=2) is None
    assert helper.asked == []


def test_an_agent_that_died_before_anybody_took_its_request_asks_again(run, tmp_path, controls):
    controls.remember("reboot", '["command-1", "boot-1", false]')
    helper = Helper(tmp_path, ACCEPTED, stops_after=4)
    assert run(helper, restarted=True, attempt=2) is None
    assert helper.asked == ["reboot"]


def test_the_note_of_another_command_counts_for_nothing(run, tmp_path, controls):
    controls.remember("reboot", '["command-0", "boot-0", true]')
    helper = Helper(tmp_path, ACCEPTED, stops_after=4)
    assert run(helper) is None
    assert helper.asked == ["reboot"]


def test_without_a_helper_it_is_rejected_with_what_to_do_and_the_request_is_withdrawn(run, tmp_path):
    with pytest.raises(HandlerRejected, match="no_helper: .* systemctl enable --now device-agent-helper.path"):
        run(Helper(tmp_path, takes=False))
    assert not (tmp_path / "request.json").exists()


def test_a_reboot_that_never_comes_has_failed(run, tmp_path):
    with pytest.raises(HandlerFailed, match="no_reboot: .*has not gone down within 1 s") as caught:
        run(Helper(tmp_path, ACCEPTED))
    assert not isinstance(caught.value, HandlerRejected)


def test_an_answer_to_an_earlier_command_is_not_taken_for_its_own(run, tmp_path):
    write_file(tmp_path / "answer.json", HelperAnswer("command-0", "refused", "too_soon", "earlier"), 0o644)
    assert run(Helper(tmp_path, ACCEPTED, stops_after=4)) is None


def test_an_agent_that_stops_before_the_request_was_taken_withdraws_it(run, tmp_path):
    with pytest.raises(HandlerRejected, match="stopped"):
        run(Helper(tmp_path, takes=False, stops_after=2))
    assert not (tmp_path / "request.json").exists()
