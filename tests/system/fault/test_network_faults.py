"""A real agent and a service that fails on purpose: nothing acknowledged falsely or twice, and all is well in 30 s."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest
import yaml

from agent.store.sqlite import FILE_NAME
from agent.store.status import read_store_status
from agent.wire.models import FINAL_STATES, CommandRecord
from agent.wire.secret import KeyPair, Secret
from gateway.client import SendCommand
from simulator.wire.client import ServiceClient
from simulator.wire.control import ControlClient
from tests.support.canary import SECRET_KEY
from tests.system.agent_bench import wait_until
from tests.system.fault.rig import API_KEY, Rig

pytestmark = pytest.mark.long

_FAULT_S = 2.0
_HITS_S = 60.0
_RECOVERY_S = 30.0
_COMMANDS = 2
_FAULTS = "/_emulator/faults"

OBSERVER = {"X-Emulator-Observer": "1"}
"""The test's own requests meet no fault."""
HALF_OPEN = "half-open connections"
_HELD_S = 600

# what is said of it, effect, share of the requests
SCRIPT: list[tuple[str, dict[str, Any], float]] = [
    ("lost requests", {"lose": "request"}, 1.0),
    ("lost answers", {"lose": "answer"}, 1.0),
    ("reset connections", {"reset": "answer"}, 0.5),
    ("late answers", {"latency": {"fixed_s": 0.3}}, 1.0),
    ("answers that come too late", {"latency": {"fixed_s": 2.5}}, 1.0),  # beyond the agent's patience
    ("a black hole", {"latency": {"fixed_s": _HELD_S, "of": "request"}}, 1.0),
    (HALF_OPEN, {"latency": {"fixed_s": _HELD_S, "of": "request"}}, 1.0),
    ("answers cut off", {"truncate": {}}, 1.0),
    ("JSON that stops", {"truncate": {"end": "complete"}}, 1.0),
    ("requests overtaken", {"latency": {"fixed_s": 0.5, "of": "request"}}, 0.5),
    ("a storm of 429", {"answer": {"status": 429, "retry_after_s": 1}}, 1.0),
    ("a storm of 500", {"answer": {"status": 500}}, 1.0),
]


class _NetworkRig(Rig):
    """The rig with an agent of little patience."""

    def control(self) -> ControlClient:
        """A client of the service's control paths; close it."""
        return ControlClient(self.base_url)

    def _configure(self) -> None:
        super()._configure()
        path = self.folder / "agent.yaml"
        settings = yaml.safe_load(path.read_text())
        settings["service"] |= {"timeout_s": 1}
        settings["commands"]["long_poll_s"] = 1
        walk = {"shape": "random_walk"}
        settings["sensors"] = [{"name": "s", "type": "simulated", "interval_s": 0.1, "settings": walk}]
        path.write_text(yaml.safe_dump(settings))


class _Bench:
    """One agent through all faults, so that it meets each with what the last one left behind."""

    def __init__(self, rig: _NetworkRig) -> None:
        self.rig = rig
        self.sent: list[str] = []
        self._open = ExitStack()
        self._control = self._open.enter_context(rig.control())
        self._client = self._open.enter_context(ServiceClient(rig.base_url, KeyPair(API_KEY, Secret(SECRET_KEY))))
        self._client.headers |= OBSERVER
        rig.start_agent()
        self.wait_until_well("at the start")

    def go_through(self, name: str, effect: dict[str, Any], share: float) -> None:
        rule = {"times": {"probability": share}, "effect": effect}
        fault = self._control.request("POST", _FAULTS, rule)["fault_id"]
        self._send()
        threading.Event().wait(_FAULT_S)
        self._send()
        wait_until(lambda: self._control.request("GET", f"{_FAULTS}/{fault}")["hits"] > 0, _HITS_S)
        # Deleting all lets go of what is held, and that goes on; what a rule holds that was deleted alone stays silent.
        self._control.request("DELETE", f"{_FAULTS}/{fault}" if name == HALF_OPEN else _FAULTS)
        self.wait_until_well(f"{name}, {share:.0%} of the requests")

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
        self._open.close()

    def judge(self) -> None:
        """Stop the agent and compare its books with the service's and with the effects."""
        self.rig.agent.end(_RECOVERY_S)
        status = read_store_status(self.rig.folder / "state" / FILE_NAME)
        assert status is not None
        books, waiting = status.outbox, status.outbox.rows
        # No two readings of the noisy sensor are alike.
        stored = [dict(record.sensor_data) for record in self._client.sensor_data(device_id=self.rig.device_id)]
        readings = {tuple(values.values()) for values in stored}
        assert (books.dropped, books.refused) == (0, 0)
        assert books.accepted == books.delivered + waiting
        # What was handed over in the last moment may not be settled yet: stored, and in the outbox still.
        assert books.delivered <= len(readings) <= books.accepted, "a reading was acknowledged that is not stored"
        runs = self.rig.runs()
        assert runs == dict.fromkeys(self.sent, 1), "a command's effect is missing or there twice"
        assert len(stored) == len(readings), "a reading is stored twice"
        assert {self.records()[each].status for each in self.sent} == {"succeeded"}

    def records(self) -> dict[str, CommandRecord]:
        return {str(record.id): record for record in self._client.device_commands(self.rig.device_id).records}

    def _newest(self) -> float | None:
        found = self._client.sensor_data(device_id=self.rig.device_id, order="desc", limit=1)
        return next((record.recorded_at for record in found), None)

    def _send(self) -> None:
        for _ in range(_COMMANDS):
            payload = {"command": "append", "seconds": 0, "number": len(self.sent)}
            record = self._client.send_command(SendCommand(device_id=self.rig.device_id, command_payload=payload))
            self.sent.append(str(record.id))

    def _is_done(self) -> bool:
        records = self.records()
        return all(records[each].status in FINAL_STATES for each in self.sent)


@pytest.mark.timeout(600)
def test_through_every_fault_of_the_network_nothing_is_lost_or_doubled_and_all_is_well_soon_after(tmp_path):
    with _NetworkRig(tmp_path) as rig, closing(_Bench(rig)) as bench:
        for name, effect, share in SCRIPT:
            bench.go_through(name, effect, share)
        bench.judge()
