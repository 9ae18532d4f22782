"""Real agent processes whose wall clocks are wrong and jump, from boot to boot; the true time is in each reading."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agent.core.timekeeping import TIME_UNKNOWN
from agent.wire.models import FINAL_STATES
from gateway.client import SendCommand
from simulator.wire.client import ServiceClient
from tests.system.agent_bench import wait_until
from tests.system.fault import shifted_agent
from tests.system.fault.rig import Rig

pytestmark = pytest.mark.long

SOON_S = 60.0
YEAR_S = 365.25 * 86_400.0
TRUE = """import json, sys, time
print(json.dumps({'true_s': time.time()}))
with open(sys.argv[1], 'a') as reads:
    reads.write('.')
"""


class _ShiftedRig(Rig):
    """The rig whose agent has a clock of its own, and a boot id by the test's order."""

    def _configure(self) -> None:
        super()._configure()
        (self.folder / "true_time.py").write_text(TRUE)
        path = self.folder / "agent.yaml"
        settings = yaml.safe_load(path.read_text())
        argv = [sys.executable, "-I", "-S", str(self.folder / "true_time.py"), str(self.folder / "reads")]
        settings["sensors"] = [{"name": "t", "type": "program", "interval_s": 0.2, "settings": {"argv": argv}}]
        settings["service"]["timeout_s"] = 2
        path.write_text(yaml.safe_dump(settings))

    def shift(self, seconds: float) -> None:
        """Set the agent's wall clock."""
        temporary = self.folder / "shift.new"
        temporary.write_text(repr(seconds))
        temporary.replace(self.folder / "shift")

    def reads(self) -> int:
        """How often the sensor was read."""
        path = self.folder / "reads"
        return path.stat().st_size if path.exists() else 0

    def let_it_read(self, times: int) -> None:
        """Wait until the sensor was read so often from now on."""
        end = self.reads() + times
        self.agent.wait_until(lambda: self.reads() >= end, "it read", SOON_S)

    def boot(self, name: str, shift_s: float) -> None:
        """The power comes back."""
        self.agent.kill()
        self.shift(shift_s)
        log = self.folder / "agent.log"
        ready = log.read_text().count("agent=ready") if log.exists() else 0
        launcher = [sys.executable, shifted_agent.__file__, str(self.folder / "shift"), name]
        self.agent.start([*launcher, "run", "--config", str(self.folder / "agent.yaml")])
        self.agent.wait_until(lambda: log.read_text().count("agent=ready") > ready, "it was ready", SOON_S)


@pytest.mark.timeout(300)
def test_every_row_of_every_boot_is_right_within_a_second_or_flagged_and_every_command_ends_well(tmp_path: Path):
    with _ShiftedRig(tmp_path) as rig, rig.client() as client:
        sent: list[str] = []

        def stored() -> int:
            return sum(1 for _ in client.sensor_data(device_id=rig.device_id))

        def more_rows(than: int) -> Callable[[], bool]:
            return lambda: stored() > than + 3

        def command_ends() -> None:
            payload = {"command": "append", "seconds": 0}
            record = client.send_command(SendCommand(device_id=rig.device_id, command_payload=payload))
            sent.append(str(record.id))
            wait_until(lambda: _status_of(rig, client, sent[-1]) in FINAL_STATES, SOON_S)

        rig.boot("boot-1", -time.time() + 17.0)  # 1970
        wait_until(more_rows(0), SOON_S)
        command_ends()
        rig.shift(3600.0)
        wait_until(more_rows(stored()), SOON_S)
        command_ends()
        rig.service.kill()
        rig.let_it_read(6)  # rows of a boot whose time is known, which go with the next boot
        rig.agent.kill()
        before = rig.reads()
        rig.boot("boot-2", -14 * 86_400.0)
        rig.let_it_read(8)  # rows of a boot whose time nobody ever tells
        rig.agent.kill()
        never_told = rig.reads() - before
        rig.boot("boot-3", 50 * YEAR_S)
        rig.start_service()
        wait_until(more_rows(stored()), SOON_S)
        command_ends()
        rig.shift(-3600.0)
        command_ends()
        wait_until(more_rows(stored()), SOON_S)

        rows = sorted(client.sensor_data(device_id=rig.device_id), key=lambda row: row.sensor_data["true_s"])
        flagged = [row for row in rows if TIME_UNKNOWN in row.sensor_data]
        true_s = [0.0, *(row.sensor_data["true_s"] for row in rows), time.time()]
        # The moment of a reading lies between the programs before and after it, however long they take.
        off_s = [
            max(true_s[number] - (row.recorded_at or 0.0), (row.recorded_at or 0.0) - true_s[number + 2])
            for number, row in enumerate(rows)
            if row not in flagged
        ]
        assert max(off_s) <= 1.0
        assert 1 <= len(flagged) <= never_told + 1  # the last one may not have said that it was read
        statuses = {_status_of(rig, client, each) for each in sent}
        runs = rig.runs()
    assert statuses == {"succeeded"}
    assert runs == dict.fromkeys(sent, 1)


def _status_of(rig: Rig, client: ServiceClient, command_id: str) -> str | None:
    records = client.device_commands(rig.device_id).records
    return next((record.status for record in records if record.id == command_id), None)
