"""Figure A1 for a device: the memory of an idle agent on a system where no other process shares its pages.

Method: a Debian boots with its own systemd in a container (systemd-nspawn), the agent in it as its unit starts it, with
a configuration with the sensor ``system``. PSS out of ``/proc/PID/smaps_rollup``, the median of the idle time's
samples. Python and the libraries lie in the container's own files, which nobody outside has open, so nothing but what
systemd itself uses (the C library) is shared. ``agent_footprint.py`` measures beside peers, which is less.

    python -m benchmarks.agent_alone [--minutes 2] [--release 12]

Needs root, systemd-container and mmdebstrap or debootstrap; ``SYSTEMD_TREE_CACHE=DIR`` keeps the bare Debian.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._rig import KEYS, machine, make_devices, pss_of, service
from tests.support.debian_tree import SUITES, shared_tree
from tests.support.nspawn import Container

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
        with service(place / "service") as own, Container(tree, place) as container:
            install(container, own.url, make_devices(own.url)[0])
            samples = watch(container, options.minutes)
    print(f"A1, alone on Debian {options.release}, {options.minutes:g} min idle\n{machine()}")
    print(f"PSS {statistics.median(samples):.1f} MB (from {min(samples):.1f} to {max(samples):.1f})")
    return 0


def install(container: Container, base_url: str, device_id: str) -> None:
    """The steps of docs/operations.md."""
    container.run("mkdir", "--parents", "/etc/device-agent")
    container.write("/etc/device-agent/config.yaml", CONFIG.format(base_url=base_url, device_id=device_id), 0o644)
    container.write("/etc/device-agent/api_key", KEYS["x-api-key"], 0o600)
    container.write("/etc/device-agent/secret_key", KEYS["x-secret-key"], 0o600)
    container.run("cp", "/opt/systemd/sysusers.d/device-agent.conf", "/usr/lib/sysusers.d/")
    container.run("systemd-sysusers")
    container.run("cp", f"/opt/systemd/{UNIT}", "/etc/systemd/system/")
    container.run("systemctl", "daemon-reload")
    container.run("systemctl", "enable", "--now", UNIT)


def watch(container: Container, minutes: float) -> list[float]:
    """The agent's PSS while it is idle, MB."""
    pid = container.show(UNIT, "MainPID")
    time.sleep(SETTLE_S)
    samples = []
    for _ in range(max(1, round(minutes * 60 / SAMPLE_S))):
        samples.append(pss_of(container.run("cat", f"/proc/{pid}/smaps_rollup")) / 1e6)
        time.sleep(SAMPLE_S)
    return samples


if __name__ == "__main__":
    sys.exit(main())
