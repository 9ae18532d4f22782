"""A real agent behind a bad network: no false acknowledgement, nothing twice, no crash loop, back within 30 s.

``FAULT_ROUNDS=200`` adds so many rounds of faults drawn at random (``make faults``).
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store.status import read_status
from agent.core.triage import FIRST_CONTACT
from agent.wire.command_states import FINAL_STATES
from agent.wire.commands import CommandRecord
from simulator.wire.messages import SendCommand
from tests.e2e.agent_bench import wait_until
from tests.fault.fault_proxy import Fault, FaultProxy
from tests.fault.rig import Rig

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "0"))
_FAULT_S = 2.0
_HITS_S = 60.0
_RECOVERY_S = 30.0
_COMMANDS = 2

# fault, share of the exchanges, its seconds
SCRIPT = [
    (Fault.REFUSED, 1.0, 0.0),
    (Fault.REFUSED, 0.5, 0.0),
    (Fault.LOST_ANSWER, 1.0, 0.0),
    (Fault.DELAY, 1.0, 0.3),
    (Fault.DELAY, 1.0, 2.5),  # beyond the agent's patience: the answer comes too late
    (Fault.BLACK_HOLE, 1.0, 0.0),
    (Fault.HALF_OPEN, 1.0, 0.0),
    (Fault.TRUNCATED, 1.0, 0.0),
    (Fault.DRIP, 1.0, 0.0),
    (Fault.DUPLICATED, 1.0, 0.0),
    (Fault.REORDERED, 0.5, 0.5),
    (Fault.PORTAL, 1.0, 0.0),
    (Fault.TOO_MANY, 1.0, 0.0),
    (Fault.FAILING, 1.0, 0.0),
]


class _NetworkRig(Rig):
    """The rig with the proxy between agent and service."""

    def __init__(self, folder: Path, *, plain: bool) -> None:
        super().__init__(folder)
        self.is_plain = plain
        self.network: FaultProxy | None = None

    def _configure(self) -> None:
        super()._configure()
        self.network = FaultProxy(self._port, seed=6, plain=self.is_plain)
        path = self.folder / "agent.yaml"
        settings = yaml.safe_load(path.read_text())
        settings["service"] |= {"base_url": self.network.url, "timeout_s": 1}
        settings["commands"]["long_poll_wait_s"] = 1
        settings["sensors"] = [{"name": "s", "type": "simulated", "interval_s": 0.1, "settings": {"noise": 1}}]
        path.write_text(yaml.safe_dump(settings))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self.network is not None:
            self.network.close()


class _Bench:
    """One agent through all faults, so that it meets each with what the last one left behind."""

    def __init__(self, rig: _NetworkRig) -> None:
        assert rig.network is not None
        self.rig, self.network = rig, rig.network
        self.sent: list[str] = []
        self._client = rig.client()
        rig.start_agent()
        # What a plain server lists at the first contact is history.
        wait_until(self._had_contact, _RECOVERY_S)
        self.wait_until_well("at the start")

    def go_through(self, fault: Fault, share: float, seconds: float) -> None:
        before = self.network.met[fault]
        self.network.fail(fault, share=share, seconds=seconds)
        self._send()
        threading.Event().wait(_FAULT_S)
        self._send()
        wait_until(lambda: self.network.met[fault] > before, _HITS_S)
        self.network.heal()
        self.wait_until_well(f"{fault}, {share:.0%} of the exchanges")

    def wait_until_well(self, after: str) -> None:
        """Commands are done, a fresh reading is there, and it is the same process still."""
        begun_s = time.monotonic()
        self._send()
        wait_until(lambda: self._is_done() or not self.rig.agent.running, _RECOVERY_S)
        before = self._newest()
        wait_until(lambda: self._newest() != before or not self.rig.agent.running, _RECOVERY_S)
        log = (self.rig.folder / "agent.log").read_text()
        assert self.rig.agent.running, f"{after}: the agent ended:\n{log}"
        assert time.monotonic() - begun_s <= _RECOVERY_S, f"{after}: it took too long to recover"
        assert log.count("agent=ready") == 1

    def close(self) -> None:
        self._client.close()

    def judge(self) -> None:
        """Stop the agent and compare its books with the service's and with the effects."""
        self.rig.agent.end(_RECOVERY_S)
        status = read_status(self.rig.folder / "state" / FILE_NAME)
        assert status is not None
        books, waiting = status.outbox, status.outbox.rows
        # A plain server takes no time of reading; no two readings of the noisy sensor are alike.
        stored = [dict(record.sensor_data) for record in self._client.sensor_data(device_id=self.rig.device_id)]
        readings = {tuple(values.values()) for values in stored}
        assert (books.dropped, books.set_aside) == (0, 0)
        assert books.accepted == books.delivered + waiting
        # What was handed over in the last moment may not be settled yet: stored, and in the outbox still.
        assert books.delivered <= len(readings) <= books.accepted, "a reading was acknowledged that is not stored"
        runs = self.rig.runs()
        assert runs == dict.fromkeys(self.sent, 1), "a command's effect is missing or there twice"
        if not self.rig.is_plain:
            assert len(stored) == len(readings), "a reading is stored twice"
            assert {self.records()[each].status for each in self.sent} == {"succeeded"}

    def records(self) -> dict[str, CommandRecord]:
        return {str(record.id): record for record in self._client.device_commands(self.rig.device_id).records}

    def _had_contact(self) -> bool:
        status = read_status(self.rig.folder / "state" / FILE_NAME)
        return status is not None and FIRST_CONTACT in status.settings

    def _newest(self) -> float | None:
        found = self._client.sensor_data(device_id=self.rig.device_id, order="desc", limit=1)
        return next((record.recorded_at for record in found), None)

    def _send(self) -> None:
        for _ in range(_COMMANDS):
            payload = {"command": "append", "seconds": 0, "number": len(self.sent)}
            record = self._client.send_command(SendCommand(device_id=self.rig.device_id, command_payload=payload))
            self.sent.append(str(record.id))

    def _is_done(self) -> bool:
        if self.rig.is_plain:
            return set(self.sent) <= set(self.rig.runs())
        records = self.records()
        return all(records[each].status in FINAL_STATES for each in self.sent)


@pytest.mark.timeout(600)
def test_through_every_fault_of_the_network_nothing_is_lost_or_doubled_and_all_is_well_soon_after(tmp_path):
    with _NetworkRig(tmp_path, plain=False) as rig, closing(_Bench(rig)) as bench:
        for fault, share, seconds in SCRIPT:
            bench.go_through(fault, share, seconds)
        bench.judge()


@pytest.mark.timeout(600)
def test_with_a_plain_server_nothing_is_lost_and_no_effect_is_doubled(tmp_path):
    with _NetworkRig(tmp_path, plain=True) as rig, closing(_Bench(rig)) as bench:
        for fault in (Fault.LOST_ANSWER, Fault.DUPLICATED, Fault.TRUNCATED):
            bench.go_through(fault, 0.5, 0.0)
        bench.judge()


@pytest.mark.skipif(not ROUNDS, reason="only with FAULT_ROUNDS=NUMBER (make faults)")
@pytest.mark.timeout(600 + 60 * ROUNDS)
def test_through_faults_drawn_at_random(tmp_path):
    chance = random.Random(ROUNDS)
    with _NetworkRig(tmp_path, plain=False) as rig, closing(_Bench(rig)) as bench:
        for _ in range(ROUNDS):
            bench.go_through(chance.choice(list(Fault)), chance.uniform(0.5, 1.0), chance.uniform(0.1, 3.0))
        bench.judge()
