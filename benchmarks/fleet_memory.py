"""Figure F4: memory for each virtual device with ``agent.core`` in it.

Method. One process has 1,000 devices, another one all. Every device polls and
sends readings (several of each, 200 connections shared or one for each device) before the proportional set size of the
process is read (``/proc/self/smaps_rollup``). The difference between the two, divided by the devices between them, is
what one device costs: interpreter, libraries and engine are in both. The target is nginx with constant answers; what
the kernel keeps for a socket is not in a process's memory and comes on top.

    python -m benchmarks.fleet_memory [--devices 10000] [--period 10]

Exit codes: 0 the bars are reached, 1 one is not, 2 nginx is missing (apt-get install nginx-light).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks._peers import find_nginx, nginx
from benchmarks._rig import cores, judge, machine, run

FEW = 1_000
POOL = 200
BARS_KB = {"pooled": 10.0, "a socket each": 40.0}


def measure(url: str, devices: int, period_s: float, core: int, *, per_device: bool) -> dict[str, Any]:
    """Play this many devices; memory, connections and failures of the process that did."""
    words = ["--devices", devices, "--period", period_s, "--settle", period_s, "--seconds", 3 * period_s]
    more = ["--pool", POOL, *(["--per-device"] if per_device else [])]
    [step] = run(["benchmarks._fleet_devices", url, *words, *more], core=core).lines
    if step["failed"]:
        raise RuntimeError(f"{step['failed']} exchanges failed")
    return step


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Figure F4: memory for each virtual device.")
    parser.add_argument("--devices", type=int, default=10_000, help="compared with 1,000")
    parser.add_argument("--period", type=float, default=10.0, help="each device polls and reads once in it, seconds")
    given = parser.parse_args()
    if not find_nginx():
        return 2
    target_core, core = cores()
    print(f"F4: a poll and a reading of each device every {given.period:g} s\n{machine()}\n")
    kept = []
    with nginx(target_core) as target:
        for name, bar_kb in BARS_KB.items():
            few, many = (
                measure(target.url, devices, given.period, core, per_device=name != "pooled")
                for devices in (FEW, given.devices)
            )
            for step in (few, many):
                size = f"{step['pss_bytes'] / 2**20:.1f} MB"
                print(f"     {name}: {step['devices']:,} devices, {step['connections']:,} open, {size}")
            each_kb = (many["pss_bytes"] - few["pss_bytes"]) / 1024 / (many["devices"] - few["devices"])
            kept.append(judge(f"a device, {name}", each_kb, bar_kb, "KB"))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
