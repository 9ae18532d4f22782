"""Handlers in an interpreter of their own: real children."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agent.core.values import Contract, Outcome, OutcomeStatus
from agent.handlers.base import HandlerFailed, HandlerRejected, Verified
from agent.handlers.isolated import run_isolated
from agent.handlers.loaded import LoadedHandler
from tests.unit.agent.handlers.isolated_handler import SOON_S, Isolated


@pytest.fixture
def run(make_context):
    loaded = LoadedHandler(
        "isolated",
        Isolated(),
        Contract.ONCE,
        60.0,
        "isolated",
        isolation="process",
        target=f"{Isolated.__module__}:Isolated",
    )

    def run(do: str, *, method: str = "handle", path: Path | str = "", **context):
        return run_isolated(loaded, method, {"do": do, "path": str(path)}, make_context(**context))

    return run


def is_gone(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    # Ended, and nobody has asked for its exit code yet (in a container nobody may ever).
    return " Z " in Path(f"/proc/{process_id}/stat").read_text()


def test_it_runs_in_a_process_and_a_group_of_its_own_and_knows_its_command(run):
    result = run("answer", attempt=2, restarted=True)
    assert result.pop("process") == result.pop("group") != os.getpid()
    assert result == {"command_id": "command-1", "device_id": "device-1", "attempt": 2, "restarted": True}
    assert run("nothing") is None


@pytest.mark.parametrize(
    ("do", "raised", "error"),
    [
        ("fail", HandlerFailed, "stuck: the valve is stuck"),
        ("reject", HandlerRejected, "no_power: there is no power"),
        ("raise", HandlerFailed, "handler_error: ZeroDivisionError: by nought"),
        ("object", HandlerFailed, "bad_result: it returned what cannot travel"),
        ("huge", HandlerFailed, "result_too_large: it did run, but its result is more than 253952 bytes of JSON"),
        ("abort", HandlerFailed, "crashed: its process ended without a result, ended by SIGABRT"),
        ("exit", HandlerFailed, "crashed: its process ended without a result, exit code 0"),
        ("shout", HandlerFailed, "bad_conversation: its process said what it should not"),
    ],
)
def test_whatever_it_does_is_one_failed_command(run, do, raised, error):
    with pytest.raises(HandlerFailed) as caught:
        run(do)
    assert type(caught.value) is raised
    assert str(caught.value).startswith(error)


def test_a_payload_is_judged_in_the_process_alone_which_its_validators_may_end(run):
    with pytest.raises(HandlerRejected, match="payload of 'isolated': 'do'"):
        run(7)
    with pytest.raises(HandlerFailed, match="crashed: its process ended without a result, exit code 9"):
        run("die while judged")


def test_the_agents_controls_answer_and_what_is_none_says_so(run, controls):
    result = run("controls")
    assert result["interval_s"] == 5.0
    assert result["identity"]["device_id"] == "device-1"
    assert result["errors"] == ["KeyError", "ValueError", "HandlerFailed"]
    assert controls.restarts == ["because"]


def test_progress_and_log_lines_come_back_and_are_signs_of_life(run, caplog):
    caplog.set_level("INFO")
    progress: list[dict] = []
    signs: list[None] = []
    run("tell", report_progress=progress.append, heartbeat=lambda: signs.append(None))
    assert progress == [{"percent": 50}]
    assert [record.message for record in caplog.records] == ["half way", "the bus is slow"]
    assert signs


@pytest.mark.parametrize(
    ("do", "outcome"),
    [
        ("done", Outcome(OutcomeStatus.SUCCEEDED, {"opened": 3})),
        ("failed", Outcome(OutcomeStatus.FAILED, None, "stuck: the valve is stuck")),
        ("undone", None),
    ],
)
def test_its_verify_hook_is_asked_in_a_process_too(run, do, outcome):
    found = run(do, method="verify")
    assert isinstance(found, Verified)
    assert found.outcome == outcome


def test_a_verify_hook_that_cannot_tell_gives_nothing(run):
    assert run("who knows", method="verify") is None


class Stopper(threading.Thread):
    """Sets ``stopping`` once the handler has begun."""

    def __init__(self, begun: Path, stopping: threading.Event) -> None:
        super().__init__()
        self._begun = begun
        self._stopping = stopping

    def run(self) -> None:
        pause = threading.Event()
        for _ in range(2400):
            if self._begun.exists() and (self._begun.name != "ids" or self._begun.read_text()):
                break
            pause.wait(0.05)
        self._stopping.set()


def test_a_handler_that_heeds_the_stop_gives_what_it_has(run, tmp_path):
    stopping = threading.Event()
    stopper = Stopper(tmp_path / "begun", stopping)
    stopper.start()
    assert run("heed", path=tmp_path / "begun", stopping=stopping) == {"heeded": True}
    stopper.join(SOON_S)


def test_a_handler_that_heeds_nothing_is_killed_with_all_that_it_started(run, tmp_path):
    stopping = threading.Event()
    stopper = Stopper(tmp_path / "ids", stopping)
    stopper.start()
    with pytest.raises(HandlerFailed, match="stopped: its process was ended"):
        run("hang", path=tmp_path / "ids", stopping=stopping)
    stopper.join(SOON_S)
    for process_id in (tmp_path / "ids").read_text().split():
        assert is_gone(int(process_id))


def test_nothing_that_is_meant_for_the_agent_reaches_it(run, monkeypatch):
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "DEVICE_AGENT_AUTH__TOKEN_FILE"):
        monkeypatch.setenv(name, "/canary")
    monkeypatch.setenv("GPIO_BUS", "1")
    environment = run("environment")
    assert "/canary" not in environment.values()
    assert environment["GPIO_BUS"] == "1"
