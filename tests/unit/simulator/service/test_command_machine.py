"""The stored life of commands against a model of a few lines: any order of sending, polling, reporting, waiting."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.wire.command_states import OPEN_STATES
from agent.wire.commands import CommandResult
from agent.wire.registration import RegisterDevice
from agent.wire.sending import SendCommand
from simulator.service.errors import Conflict
from simulator.service.storage import commands, devices, keys
from simulator.service.storage.database import Database
from simulator.service.storage.lists import Window

OPEN = sorted(OPEN_STATES)


@dataclass
class Modelled:
    """What the model knows of a command."""

    id: str
    expires_ms: int
    status: str = "queued"
    result: dict | None = None
    reason: str | None = None


class CommandMachine(RuleBasedStateMachine):
    """Drives the storage and the model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.database = Database(None)
        self.writer = self.database.open_writer()
        self.deadline = commands.Deadline()
        self.now_ms = 1_000_000
        self.model: list[Modelled] = []
        with self.database.writing(self.writer):
            caller = keys.add_account(self.writer, "a", "account", keys.make_keys(), self.now_ms)
            request = RegisterDevice(user_id="u", product_id="p", device_identifier="d")
            self.device, _ = devices.register(self.writer, caller.manufacturer_seq, request, "device", self.now_ms)

    def teardown(self) -> None:
        self.writer.close()
        self.database.close()

    def _lapse(self) -> None:
        for command in self.model:
            if command.status in OPEN and command.expires_ms <= self.now_ms:
                command.status = "expired" if command.status == "queued" else "timed_out"
                command.reason = "not delivered in time" if command.status == "expired" else "no result in time"

    @rule(ttl=st.integers(1, 60))
    def send(self, ttl: int) -> None:
        command_id = f"c{len(self.model)}"
        request = SendCommand(device_id="device", command_payload={"n": len(self.model)}, ttl_seconds=ttl)
        self._lapse()
        with self.database.writing(self.writer):
            commands.end_overdue(self.writer, self.now_ms)
            commands.queue(self.writer, self.device, request, command_id, self.now_ms, deadline=self.deadline)
        self.model.append(Modelled(command_id, self.now_ms + ttl * 1000))

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    @rule(limit=st.integers(1, 4))
    def poll(self, limit: int) -> None:
        self._lapse()
        with self.database.writing(self.writer):
            commands.end_overdue(self.writer, self.now_ms)
            found = commands.list_page(
                self.writer, self.device.seq, commands.OPEN, Window(limit, ascending=True, after=None)
            )
            rows = list(found)[:limit]
            commands.deliver(self.writer, rows, self.now_ms)
        listed = [command for command in self.model if command.status in OPEN][:limit]
        assert [row.id for row in rows] == [command.id for command in listed]
        for command in listed:
            if command.status == "queued":
                command.status = "delivered"

    @precondition(lambda self: self.model)
    @rule(
        pick=st.integers(0, 1_000),
        status=st.sampled_from(["in_progress", "succeeded", "failed", "rejected"]),
        result=st.sampled_from([None, {"x": 1}]),
        error=st.sampled_from([None, "because"]),
    )
    def report(self, pick: int, status: str, result: dict | None, error: str | None) -> None:
        command = self.model[pick % len(self.model)]
        self._lapse()
        said = CommandResult(status=status, result=result, error=error)
        ends = status != "in_progress"
        taken = command.status in OPEN or (command.status == "timed_out" and ends)
        repeated = command.status == status and command.result == result and command.reason == error
        refused = None
        try:
            with self.database.writing(self.writer):
                commands.end_overdue(self.writer, self.now_ms)
            with self.database.writing(self.writer):
                record = commands.report(self.writer, self.device, command.id, said, self.now_ms)
        except Conflict as fault:
            refused = fault
        if refused is not None:
            assert refused.error == "command_not_open"
            assert not taken
            assert not repeated
            return
        assert taken or repeated
        assert record.status == status
        if taken:
            command.status = status
            command.result = result if ends or result is not None else command.result
            command.reason = error if ends or error is not None else command.reason

    @rule()
    def remove(self) -> None:
        self._lapse()
        with self.database.writing(self.writer):
            commands.end_overdue(self.writer, self.now_ms)
            commands.cancel_open(self.writer, self.device.seq, self.now_ms)
        for command in self.model:
            if command.status in OPEN:
                command.status, command.reason = "canceled", "the device was removed"

    @invariant()
    def the_storage_says_what_the_model_says(self) -> None:
        self._lapse()
        with self.database.writing(self.writer):
            commands.end_overdue(self.writer, self.now_ms)
            rows = commands.list_page(self.writer, self.device.seq, None, Window(10_000, ascending=True, after=None))
        shown = [commands.show(row, "device") for row in rows]
        assert [(r.id, r.status, r.result, r.status_reason) for r in shown] == [
            (m.id, m.status, m.result, m.reason) for m in self.model
        ]
        for record in shown:
            assert (record.completed_at is None) == (record.status in OPEN)
            assert record.delivered_at is not None or record.status in {"queued", "expired", "canceled"}


CommandMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestCommandMachine = CommandMachine.TestCase
