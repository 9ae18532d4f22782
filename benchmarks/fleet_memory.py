"""Figure F4: memory for each virtual device with ``agent.core`` in it.

Method. One process has 1,000 devices, another one all. Every device polls and
sends readings (several of each, 200 connections shared or one for each device) before the proportional set size of the
process is read (``/proc/self/smaps_rollup``). The difference between the two, divided by the devices between them, is
what one device costs: interpreter, libraries and engine are in both. The target is nginx with constant answers; what
the kernel keeps for a socket is not in a process's memory and comes on top.

    python benchmarks/fleet_memory.py [--devices 10000] [--period 10]

Exit codes: 0 the bars are reached, 1 one is not, 2 nginx is missing (apt-get install nginx-light).
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
FEW = 1_000
POOL = 200
BARS_KB = {"pooled": 10.0, "a socket each": 40.0}


def measure(url: str, devices: int, period_s: float, *, per_device: bool, core: int) -> list[dict[str, float]]:
    """Both steps of one process: the few, and all.

    Raises:
        RuntimeError: exchanges failed.
    """
    made: list[dict[str, float]] = []
    for number in (FEW, devices):
        command = [sys.executable, str(DEVICES), url, "--devices", str(number), "--period", str(period_s)]
        more = ["--settle", str(period_s), "--seconds", str(3 * period_s), "--pool", str(POOL), "--core", str(core)]
        done = subprocess.run(
            [*command, *more, *(["--per-device"] if per_device else [])], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"our devices failed: {done.stderr.strip()[-2000:]}")
        step = json.loads(done.stdout)
        if step["failed"]:
            raise RuntimeError(f"{step['failed']} exchanges failed")
        made.append(step)
    return made


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F4: memory for each virtual device.")
    parser.add_argument("--devices", type=int, default=10_000, help="compared with 1,000")
    parser.add_argument("--period", type=float, default=10.0, help="each device polls and reads once in it, seconds")
    given = parser.parse_args()
    if not has_nginx():
        print("nginx is missing: apt-get install nginx-light", file=sys.stderr)
        sys.exit(2)
    target_core, core = cores()
    print(f"F4, {dt.datetime.now(dt.UTC):%Y-%m-%d}: a poll and a reading of each device every {given.period:g} s")
    print(f"machine: {machine()}")
    print(f"method: PSS of the process with {FEW:,} and with {given.devices:,} devices, the difference by device\n")
    print(f"{'connections':<16}{f'{FEW:,} devices':>16}{f'{given.devices:,} devices':>18}{'KB a device':>13}{'bar':>7}")
    held = True
    with nginx(target_core, raise_descriptor_limit()) as target:
        for name, bar_kb in BARS_KB.items():
            few, many = measure(target.url, given.devices, given.period, per_device=name != "pooled", core=core)
            each_kb = (many["pss_kb"] - few["pss_kb"]) / (many["devices"] - few["devices"])
            held = held and each_kb <= bar_kb
            verdict = "ok" if each_kb <= bar_kb else "MISS"
            sizes = f"{few['pss_kb'] / 1024:>13.1f} MB{many['pss_kb'] / 1024:>15.1f} MB"
            print(f"{name:<16}{sizes}{each_kb:>13.2f}{bar_kb:>7g} {verdict}{many['connections']:>10,} open")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
