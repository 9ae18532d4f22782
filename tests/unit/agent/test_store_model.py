"""The store against its model: whatever sequence of calls, restarts and failures, SQLite and the fake agree."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.core.commands import IllegalMove
from agent.core.outbox import Bounds
from agent.core.values import CommandState, Outcome, OutcomeStatus, Priority, Reading, SendOutcome
from agent.store.writer import Store
from tests.factories import make_command, make_entry
from tests.fakes import FakeClock, FakeStore

IDS = [f"c{n}" for n in range(6)]
BOUNDS = Bounds(max_rows=6, max_age_s=500.0)
SETTINGS = ["interval.a", "interval.b"]


class StoreAgainstModel(RuleBasedStateMachine):
    """Each rule does the same to both; the invariants compare everything that can be asked."""

    @initialize()
    def begin(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name, "agent.db")
        self.clock = FakeClock()
        self.model = FakeStore(self.clock, BOUNDS)
        self.open_store()
        self.boot = 1

    def teardown(self):
        self.store.stop(60)
        self.directory.cleanup()

    def open_store(self):
        self.store = Store(self.path, clock=self.clock, bounds=BOUNDS, on_state=lambda _state, text: pytest.fail(text))
        self.store.start()

    def both(self, call):
        results = []
        for target in (self.model, self.store):
            try:
                results.append(call(target))
            except IllegalMove as error:
                results.append((error.state, error.event))
        assert results[0] == results[1]
        return results[1]

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=4), state=st.sampled_from(["received", "skipped", "finished"]))
    def admit(self, ids, state):
        outcome = Outcome(OutcomeStatus.REJECTED, error="unknown_command: no") if state == "finished" else None
        entries = [
            make_entry(
                command=make_command(each, {"command": "ping", "n": each}, created_at=1.5),
                state=CommandState(state),
                received=self.clock.now(),
                outcome=outcome,
            )
            for each in ids
        ]
        self.both(lambda target: target.journal.admit(entries))

    @rule(command_id=st.sampled_from(IDS))
    def start(self, command_id):
        self.both(lambda target: target.journal.start(command_id, self.clock.now()))

    @rule(command_id=st.sampled_from(IDS), result=st.none() | st.just({"n": [1, None, "ü"]}))
    def finish(self, command_id, result):
        outcome = Outcome(OutcomeStatus.SUCCEEDED, result)
        self.both(lambda target: target.journal.finish(command_id, outcome, self.clock.now()))

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=3))
    def report(self, ids):
        self.both(lambda target: target.journal.reported(ids))

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=3), age_s=st.floats(0, 300))
    def forget(self, ids, age_s):
        self.both(lambda target: target.journal.forget(ids, self.clock.now().wall_s - age_s))

    @rule(
        name=st.sampled_from(SETTINGS), value=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    )
    def set(self, name, value):
        self.both(lambda target: target.journal.put_setting(name, value))

    @rule(
        values=st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9) | st.integers(-9, 9), min_size=1),
        priority=st.sampled_from([Priority.HIGH, Priority.NORMAL, Priority.LOW]),
    )
    def put(self, values, priority):
        self.both(lambda target: target.outbox.put(Reading(values, self.clock.now(), priority), wait=True))

    @rule(limit=st.integers(1, 8), fates=st.lists(st.sampled_from("dru"), min_size=8, max_size=8))
    def send(self, limit, fates):
        batches = [target.outbox.next_batch(limit) for target in (self.model, self.store)]
        seen = [[(each.key, each.reading) for each in batch] for batch in batches]
        assert seen[0] == seen[1]
        keys = [each.key for each in batches[1]]
        delivered = tuple(key for key, fate in zip(keys, fates, strict=False) if fate == "d")
        refused = {key: "no" for key, fate in zip(keys, fates, strict=False) if fate == "r"}
        self.both(lambda target: target.outbox.settle(SendOutcome(delivered, refused)))

    @rule(seconds=st.floats(0.1, 200))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule(is_reboot=st.booleans())
    def restart(self, is_reboot):
        self.store.stop(60)
        if is_reboot:
            self.boot += 1
            self.clock.reboot(f"boot-{self.boot}")
        self.model.restart()
        self.open_store()

    @invariant()
    def agree(self):
        self.both(lambda target: target.journal.known(IDS))
        self.both(lambda target: [target.journal.in_state(state) for state in CommandState])
        self.both(lambda target: target.journal.is_empty())
        self.both(lambda target: [target.journal.setting(name) for name in SETTINGS])
        self.both(lambda target: target.outbox.stats())


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(max_examples=40, stateful_step_count=30)
