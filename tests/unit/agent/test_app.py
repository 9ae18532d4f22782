"""The glue: the state directory, status file, handlers that are called, token file."""

from __future__ import annotations

import json
import os
import signal

import pytest

from agent.app.lock import state_lock
from agent.app.status import StatusFile, read_agent_status, read_status, write_status
from agent.config import AgentConfig
from agent.core.values import Contract, OutboxStats, Outcome, OutcomeStatus
from agent.errors import ConfigurationError
from agent.handlers.base import Handler, HandlerFailed, HandlerPayload, HandlerRejected
from agent.handlers.registry import HandlerRegistry
from agent.health import Part
from agent.runtime.engine import CommandEngine, HandlerRun, command_rules
from agent.store.status import StoreStatus
from agent.wire.secret import RenewedToken, Secret
from tests.support.factories import make_command, make_entry
from tests.support.fakes import StoreInMemory, make_context


class TestLock:
    def test_a_directory_that_cannot_be_made_is_a_configuration_fault(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigurationError, match="cannot be used"), state_lock(tmp_path / "file" / "state"):
            pass


class TestStatusFile:
    @pytest.mark.parametrize("text", ["", "{", "[]", '{"parts": 1}', '{"parts": {}, "nonsense": 1}', "null"])
    def test_what_is_no_status_is_none(self, tmp_path, text):
        path = tmp_path / "status.json"
        path.write_text(text)
        assert read_status(path) is None

    def test_what_a_later_version_wrote_is_read_as_far_as_it_is_known(self, tmp_path):
        path = tmp_path / "status.json"
        write_status(path, StatusFile("running", 1, "9.0", "d1", 1.0, 2.0, "boot", {"readings": Part("ok", 1.0)}))
        members = json.loads(path.read_text())
        members["parts"]["readings"]["more"] = members["more"] = 1
        path.write_text(json.dumps(members))
        assert read_status(path).parts == {"readings": Part("ok", 1.0)}


class TestStatusOfARunningAgent:
    def test_an_answer_that_another_status_replaced_is_asked_for_again(self, tmp_path, monkeypatch):
        """This process is the agent: it answers SIGUSR1, and the first answer is gone before anybody reads it."""
        path = tmp_path / "status.json"
        store = StoreStatus({"succeeded": 3}, (), (), OutboxStats(0, 0, None, 0, 0, 0, 0), (), (), {}, (), 0)
        answers = []

        def write(found: StoreStatus | None) -> None:
            status = StatusFile("running", os.getpid(), "1", "d1", 1.0, float(len(answers)), "boot", store=found)
            write_status(path, status)

        def answer(_number: int, _frame: object) -> None:
            answers.append(store)
            write(store)
            if len(answers) == 1:
                write(None)

        monkeypatch.setattr("agent.app.status._ANSWERS_WITHIN_S", 2.0)
        values = {"service": {"base_url": "http://localhost"}, "device": {"device_id": "d1"}, "state_dir": tmp_path}
        config = AgentConfig.model_validate({**values, "auth": {"mode": "bearer"}})
        write(None)
        before = signal.signal(signal.SIGUSR1, answer)
        try:
            with state_lock(tmp_path):
                found = read_agent_status(config, {})
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert found.store_fault == ""
        assert found.store == store
        assert len(answers) == 2


class Door(Handler):
    """Does what the payload says."""

    name = "door"
    contract = Contract.IDEMPOTENT

    class Payload(HandlerPayload):
        do: str

    def handle(self, payload: Payload, context):
        match payload.do:
            case "reject":
                raise HandlerRejected("no_power", "the door has no power")
            case "fail":
                raise HandlerFailed("stuck", "the door is stuck")
            case "raise":
                raise ZeroDivisionError("x" * 5000)
            case "exit":
                raise SystemExit(1)
            case "list":
                return [1]
            case "nan":
                return {"t": float("nan")}
            case "object":
                return {"t": object()}
            case "none":
                return None
        return {"attempt": context.attempt, "device": context.device_id}


class TestCallingAHandler:
    def call(self, do: object, *, verify: bool = False) -> HandlerRun:
        registry = HandlerRegistry()
        registry.add("door", "test", "class", Door)
        self.rules = command_rules(registry, handler_key="command", runs_history=True)
        engine = CommandEngine(make_context(StoreInMemory()), registry, self.rules, None, lambda _lane: None)
        entry = make_entry(command=make_command("c1", {"command": "door", "do": do}), attempts=1)
        run = HandlerRun(engine, registry.ready["door"], entry, verify=verify)
        run.run()
        return run

    def run(self, do: object) -> Outcome:
        return self.call(do).outcome()

    @pytest.mark.parametrize("do", ["list", "nan", "object"])
    def test_what_cannot_travel_as_json_fails_and_says_that_it_ran(self, do):
        outcome = self.run(do)
        assert outcome.status is OutcomeStatus.FAILED
        assert (outcome.error or "").startswith("bad_result:")

    def test_what_a_handler_says_and_what_it_raises_are_outcomes(self):
        assert self.run("open").result == {"attempt": 2, "device": "d1"}
        assert self.run("reject") == Outcome(OutcomeStatus.REJECTED, error="no_power: the door has no power")
        assert self.run("fail") == Outcome(OutcomeStatus.FAILED, error="stuck: the door is stuck")
        assert (self.run("exit").error or "").startswith("handler_error: SystemExit")
        assert len(self.run("raise").error or "") < 1100

    def test_a_payload_is_judged_in_the_run_and_not_by_triage(self):
        outcome = self.run(7)
        assert self.rules.judge({"command": "door", "do": 7}) is None
        assert outcome.status is OutcomeStatus.REJECTED
        assert (outcome.error or "").startswith("invalid_payload: payload of 'door': do ")
        hook = self.call(7, verify=True)
        assert hook.result is None
        assert hook.error.startswith("invalid_payload: ")


class TestPlainTokenFile:
    def test_a_renewed_token_is_used_and_a_broken_file_keeps_the_last(self, tmp_path, caplog):
        path = tmp_path / "token"
        path.write_text("one\n")
        token = RenewedToken(path, Secret("one"))
        assert token.current().reveal() == "one"
        path.write_text("two\n")
        assert token.current().reveal() == "two"
        for broken in ("two words\n", "", '{"access_token":"dat_1"}'):
            path.write_text(broken)
            assert token.current().reveal() == "two"
        assert caplog.text.count("auth=stale") == 1, "said once"
        path.unlink()
        assert token.current().reveal() == "two"
        assert "two" not in caplog.text.replace("two words", "")
