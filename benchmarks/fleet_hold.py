"""100,000 virtual devices with ``agent.core``, one poll a minute each, in one process: memory, CPU and rate.

Method. All devices share 256 connections to nginx, one process on a core of its own, which answers each poll that names
the version it has with 304. The devices are switched on in crowds; after two minutes, when each has found its place in
the minute, counting begins. Each poll spreads its wait by a tenth to either side, as the agent does, so the rate that
was to be is devices / 60 s. The lag is from when a poll fell due to when its bytes went out.

    python benchmarks/fleet_hold.py [--devices 100000] [--minutes 10] [--settle 120] [--readings]

Exit codes: 0 the rate was within 0.5 % and no exchange failed, 1 otherwise, 2 nginx is missing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._fleet_target import cores, has_nginx, machine, nginx
from simulator.fleet.engine.preflight import raise_descriptor_limit

DEVICES = Path(__file__).with_name("_fleet_devices.py")
PERIOD_S = 60.0
BAR_RATE = 0.005


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="100,000 devices, one poll a minute each, in one process.")
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long is counted")
    parser.add_argument("--settle", type=float, default=120.0, help="before that, seconds")
    parser.add_argument("--readings", action="store_true", help="one reading a minute each, too")
    given = parser.parse_args()
    if not has_nginx():
        print("nginx is missing: apt-get install nginx-light", file=sys.stderr)
        sys.exit(2)
    target_core, core = cores()
    print(f"hold, {dt.datetime.now(dt.UTC):%Y-%m-%d}: {given.devices:,} devices, one poll a minute each, one process")
    print(f"machine: {machine()}")
    with nginx(target_core, raise_descriptor_limit()) as target:
        command = [sys.executable, str(DEVICES), target.url, "--devices", str(given.devices), "--core", str(core)]
        more = ["--period", str(PERIOD_S), "--settle", str(given.settle), "--seconds", str(given.minutes * 60)]
        done = subprocess.run(
            [*command, *more, "--pool", "256", *([] if given.readings else ["--no-readings"])],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"our devices failed: {done.stderr.strip()[-2000:]}")
    step = json.loads(done.stdout)
    error = step["ended"] / step["intended"] - 1
    print(f"method: counted for {step['seconds']:.0f} s after {given.settle:g} s; generator and nginx on a core each\n")
    for name, value in (
        ("exchanges a second", f"{step['ended'] / step['seconds']:,.1f} of {step['intended'] / step['seconds']:,.1f}"),
        ("rate error", f"{error:+.3%}"),
        ("failed", f"{step['failed']:,}"),
        ("lag, 99th percentile", f"{step['lag_p99_s'] * 1000:.1f} ms"),
        ("lag, longest", f"{step['lag_max_s'] * 1000:.1f} ms"),
        ("memory (PSS)", f"{step['pss_kb'] / 1024:,.0f} MB, {step['pss_kb'] / given.devices:.2f} KB a device"),
        ("CPU", f"{step['cpu_s'] / step['seconds']:.1%} of a core"),
    ):
        print(f"{name:<24}{value}")
    sys.exit(0 if abs(error) <= BAR_RATE and not step["failed"] else 1)


if __name__ == "__main__":
    main()
