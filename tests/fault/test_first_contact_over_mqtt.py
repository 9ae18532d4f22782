"""An agent over MQTT alone that starts before the broker, two days ahead of the true time, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.core.timekeeping import TIME_UNKNOWN
from tests.conftest import require_program
from tests.e2e.agent_bench import wait_until
from tests.fault import shifted_agent
from tests.fault.gateway_rig import GatewayRig
from tests.fault.test_wrong_clock_of_a_real_agent import TRUE
from tests.mosquitto import find_mosquitto

pytestmark = pytest.mark.long

SOON_S = 60.0
AHEAD_S = 2 * 86_400.0
BEFORE = 8
"""Readings that the agent has when the broker comes."""


class AheadRig(GatewayRig):
    """The rig whose agent's wall clock is ahead, and whose sensor reads the true time."""

    def _configure(self) -> None:
        super()._configure()
        (self.folder / "true_time.py").write_text(TRUE)
        (self.folder / "shift").write_text(repr(AHEAD_S))
        path = self.folder / "agent.yaml"
        settings = yaml.safe_load(path.read_text())
        argv = [sys.executable, "-I", "-S", str(self.folder / "true_time.py"), str(self.folder / "reads")]
        settings["sensors"] = [{"name": "t", "type": "program", "interval_s": 0.2, "settings": {"argv": argv}}]
        path.write_text(yaml.safe_dump(settings))

    def program(self, *arguments: str) -> Sequence[str]:
        """``device-agent`` on a machine whose clock is ahead."""
        launcher = [sys.executable, shifted_agent.__file__, str(self.folder / "shift"), "boot-1"]
        return [*launcher, *arguments, "--config", str(self.folder / "agent.yaml")]

    def reads(self) -> int:
        """How often the sensor was read."""
        path = self.folder / "reads"
        return path.stat().st_size if path.exists() else 0


@pytest.mark.timeout(300)
def test_readings_from_before_the_broker_have_their_times_and_the_wrong_clock_is_seen(tmp_path: Path):
    with AheadRig(tmp_path, find_mosquitto() or require_program("mosquitto")) as rig, rig.client() as client:
        rig.broker.kill()
        rig.agent.start(rig.program("run"))
        wait_until(lambda: rig.reads() >= BEFORE, SOON_S)
        agent = rig.agent.pid
        assert agent is not None
        # From the broker's coming on the agent waits twelve seconds for the gateway's time, however slowly that starts.
        os.kill(agent, signal.SIGSTOP)
        rig.broker.start()
        rig.start_gateway()
        rig.wait_for_gateway()
        os.kill(agent, signal.SIGCONT)
        came_s = time.time()
        wait_until(
            lambda: any(row.sensor_data["true_s"] > came_s for row in client.sensor_data(device_id=rig.device_id)),
            SOON_S,
        )
        rows = sorted(client.sensor_data(device_id=rig.device_id), key=lambda row: row.sensor_data["true_s"])
        doctor = _run(rig, "doctor", "--json")
        status = _run(rig, "status", "--json")
    early = [row for row in rows if row.sensor_data["true_s"] < came_s]
    assert len(early) >= BEFORE - 1
    assert not [row for row in rows if TIME_UNKNOWN in row.sensor_data]
    true_s = [0.0, *(row.sensor_data["true_s"] for row in rows), time.time()]
    # The moment of a reading lies between the programs before and after it, however long they take.
    off_s = [
        max(true_s[number] - (row.recorded_at or 0.0), (row.recorded_at or 0.0) - true_s[number + 2])
        for number, row in enumerate(rows)
    ]
    assert max(off_s) <= 1.0
    assert len({row.recorded_at for row in rows}) == len(rows), "each has a time of its own"
    (found,) = [one for one in doctor if one["id"] == "clock_against_agent"]
    assert found["verdict"] == "warning"
    assert "s ahead of the true time" in found["seen"]
    assert "ahead of the true time" in status["told"]["parts"]["clock"]["detail"]


def _run(rig: AheadRig, *arguments: str) -> Any:
    done = subprocess.run(rig.program(*arguments), capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout)
