"""What may be asked of an agent whose outbox is full after a long outage, within the memory that its unit allows."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import pytest

from agent.runtime.clocks import SystemClock
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.support.factories import make_reading
from tests.support.processes import run_program
from tests.system.agent_bench import AgentBench

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 250_000
SYSTEMD = Path(__file__).resolve().parents[2] / "systemd" / "device-agent.service"


def peak_kb(process_id: int) -> int:
    return peak_of(Path(f"/proc/{process_id}/status").read_text())


def peak_of(status: str) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def run(bench: AgentBench, *arguments: str) -> tuple[str, int]:
    """What a command prints, and its largest memory in kB."""
    script = (
        "import sys\nfrom agent.cli.program import device_agent\n"
        "try:\n    device_agent(sys.argv[1:])\n"
        "finally:\n    print(open('/proc/self/status').read(), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", script, *arguments, "--config", str(bench.config)]
    done = run_program(command)
    return done.stdout, peak_of(done.stderr)


def test_status_doctor_and_diagnostics_of_a_full_outbox_need_little_memory(bench: AgentBench):
    bench.state_dir.mkdir(mode=0o700, exist_ok=True)
    clock = SystemClock()
    values = {"temperature_of_the_room_in_celsius": 20.123, "humidity_of_the_room_in_percent": 40.25}
    with Store(bench.state_dir / FILE_NAME, clock=clock, trusts_wall=False) as store:
        for _ in range(ROWS):
            store.outbox.put(make_reading(values, at=clock.now()))
    url = str(bench.client.base_url)
    bench.write_config("http://127.0.0.1:9", more="outbox: {max_bytes: 67108864}\n")
    most_kb = 96 * 1024
    assert "MemoryHigh=96M" in SYSTEMD.read_text()
    agent = bench.start()
    before_kb = peak_kb(agent.pid)
    bundle_dir = ["--dir", str(bench.config.parent)]
    for arguments in (["status", "--json"], ["doctor", "--offline"], ["diagnostics", *bundle_dir]):
        shown, peak = run(bench, *arguments)
        assert peak < most_kb, arguments
        if arguments[0] == "status":
            assert json.loads(shown)["store"]["outbox"]["rows"] > ROWS / 2
    assert peak_kb(agent.pid) < before_kb + 16 * 1024
    agent.terminate()
    bench.write_config(url, more="outbox: {max_bytes: 67108864}\n")
    agent = bench.start()
    command_id = bench.send(command="collect_diagnostics")
    record = bench.wait_for(command_id, within_s=120)
    assert record.status == "succeeded"
    assert peak_kb(agent.pid) < most_kb
    path = Path(str((record.result or {})["path"]))
    bundle = json.loads(gzip.decompress(path.read_bytes()))
    assert bundle["status"]["store"]["outbox"]["accepted"] >= ROWS
