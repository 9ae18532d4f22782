from __future__ import annotations

import pytest

from agent.core.values import CommandPoll
from agent.errors import Offline, StorageError
from agent.runtime.command_poller import RemoteCancels
from tests.factories import make_command
from tests.fakes import FakeCommandSource


class FakeDispatcher:
    def __init__(self) -> None:
        self.commands: dict[str, str | None] = {"c1": "delivered", "c2": "delivered"}
        self.canceled: list[tuple[str, str]] = []
        self.fault: str | None = None

    def under_way(self) -> dict[str, str | None]:
        return dict(self.commands)

    def cancel(self, command_id: str, why: str) -> str:
        if self.fault is not None:
            raise StorageError(self.fault)
        self.canceled.append((command_id, why))
        return "running"


@pytest.fixture
def source() -> FakeCommandSource:
    return FakeCommandSource()


@pytest.fixture
def dispatcher() -> FakeDispatcher:
    return FakeDispatcher()


@pytest.fixture
def cancels(source, dispatcher) -> RemoteCancels:
    return RemoteCancels(source, dispatcher)


def listed(*command_ids: str, **members) -> CommandPoll:
    return CommandPoll(tuple(make_command(each, status="delivered") for each in command_ids), **members)


def test_while_everything_is_listed_the_service_is_asked_nothing(cancels, source):
    cancels.look(listed("c1", "c2", "c3"))
    assert source.asked == []


def test_what_vanished_and_was_canceled_is_canceled_here(cancels, source, dispatcher):
    source.taken_back = {"c1", "another"}
    cancels.look(listed("c2"))
    assert source.asked == [["c1"]]
    assert dispatcher.canceled == [("c1", "by the service")]


def test_what_vanished_for_another_reason_goes_on_and_is_asked_about_once(cancels, source, dispatcher):
    for _ in range(3):
        cancels.look(listed("c2"))
    assert source.asked == [["c1"]]
    assert dispatcher.canceled == []


def test_what_comes_back_and_vanishes_again_is_asked_about_again(cancels, source):
    cancels.look(listed("c2"))
    cancels.look(listed("c1", "c2"))
    cancels.look(listed("c2"))
    assert source.asked == [["c1"], ["c1"]]


def test_a_question_without_an_answer_is_asked_again_also_when_the_list_stays_the_same(cancels, source, dispatcher):
    source.taken_back = {"c1"}
    source.cancel_errors.append(Offline("unreachable", "nobody answers"))
    cancels.look(listed("c2"))
    assert dispatcher.canceled == []
    cancels.look(CommandPoll(unchanged=True))
    cancels.look(CommandPoll(unchanged=True))
    assert source.asked == [["c1"], ["c1"]]
    assert dispatcher.canceled == [("c1", "by the service")]


@pytest.mark.parametrize("status", [None, "pending", "succeeded"])
def test_a_service_that_tells_no_open_state_is_not_asked(cancels, source, dispatcher, status):
    dispatcher.commands = {"c1": status}
    cancels.look(listed())
    assert source.asked == []


def test_a_push_says_nothing_of_what_it_does_not_name(cancels, source):
    cancels.look(listed("c2", pushed=True))
    assert source.asked == []


def test_a_list_whose_pages_are_missing_says_nothing_of_what_it_does_not_name(cancels, source):
    cancels.look(listed("c2", is_whole=False))
    assert source.asked == []


def test_a_cancel_that_cannot_be_written_is_logged(cancels, source, dispatcher, caplog):
    source.taken_back = {"c1"}
    dispatcher.fault = "the disk is full"
    cancels.look(listed("c2"))
    assert "the disk is full" in caplog.text
