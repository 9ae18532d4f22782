"""Figure A1 for a device: the memory of an idle agent on a system where no other process shares its pages.

Method: a Debian boots with its own systemd in a container (systemd-nspawn), the agent in it as its unit starts it, with
a configuration with the sensor ``system``. PSS out of ``/proc/PID/smaps_rollup``, the median of the idle time's
samples. Python and the libraries lie in the container's own files, which nobody outside has open, so nothing but what
systemd itself uses (the C library) is shared. ``agent_footprint.py`` measures beside peers, which is less.

    python benchmarks/agent_alone.py [--minutes 2] [--release 12]

Needs root, systemd-container and mmdebstrap or debootstrap; ``SYSTEMD_TREE_CACHE=DIR`` keeps the bare Debian.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.support.canary import SECRET_KEY
from tests.support.debian_tree import SUITES, shared_tree
from tests.support.nspawn import Container
from tests.system.agent_bench import API_KEY, AgentBench

UNIT = "device-agent.service"
CONFIG = """
service: {{base_url: "{base_url}"}}
device: {{device_id: {device_id}}}
auth:
  allow_secret_key_on_device: true
  api_key_file: /etc/device-agent/api_key
  secret_key_file: /etc/device-agent/secret_key
sensors: [{{name: board, type: system, interval_s: 60}}]
"""
SETTLE_S = 20.0
SAMPLE_S = 5.0


def main() -> int:
    """The benchmark."""
    parser = argparse.ArgumentParser(description="What an agent takes that is alone on its system.")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to watch the idle agent (default 2)")
    parser.add_argument("--release", choices=sorted(SUITES), default="12", help="of Debian (default 12)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, shared_tree("alone", options.release) as tree:
        place = Path(name)
        (place / "bench").mkdir()
        config = ServiceConfig(
            data_dir=place / "service",
            api_key=API_KEY,
            secret_key=Secret(SECRET_KEY),
            rate_limit=0,
            log_level="warning",
        )
        with RunningService(config) as service, Container(tree, place) as machine:
            bench = AgentBench(place / "bench", service.base_url)
            install(machine, service.base_url, bench.device_id)
            bench.close()
            samples = watch(machine, options.minutes)
    print(f"agent alone on Debian {options.release}, {options.minutes:g} min idle; {dt.datetime.now(dt.UTC).date()}")
    print(f"PSS {statistics.median(samples):.1f} MB (from {min(samples):.1f} to {max(samples):.1f})")
    return 0


def install(machine: Container, base_url: str, device_id: str) -> None:
    """The steps of docs/operations.md."""
    machine.run("mkdir", "--parents", "/etc/device-agent")
    machine.write("/etc/device-agent/config.yaml", CONFIG.format(base_url=base_url, device_id=device_id), 0o644)
    machine.write("/etc/device-agent/api_key", API_KEY, 0o600)
    machine.write("/etc/device-agent/secret_key", SECRET_KEY, 0o600)
    machine.run("cp", "/opt/systemd/sysusers.d/device-agent.conf", "/usr/lib/sysusers.d/")
    machine.run("systemd-sysusers")
    machine.run("cp", f"/opt/systemd/{UNIT}", "/etc/systemd/system/")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", UNIT)


def watch(machine: Container, minutes: float) -> list[float]:
    """The agent's PSS while it is idle, MB."""
    pid = machine.show(UNIT, "MainPID")
    pause = threading.Event()
    pause.wait(SETTLE_S)
    samples = []
    for _ in range(max(1, round(minutes * 60 / SAMPLE_S))):
        text = machine.run("cat", f"/proc/{pid}/smaps_rollup")
        [line] = [line for line in text.splitlines() if line.startswith("Pss:")]
        samples.append(int(line.split()[1]) * 1024 / 1e6)
        pause.wait(SAMPLE_S)
    return samples


if __name__ == "__main__":
    sys.exit(main())
