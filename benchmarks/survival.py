"""Figures R1 and R2: what survives kill -9, power cuts and failing disks.

=====  =============================================================================================================
R1     agents and their service are killed at random under load (``tests/fault/kill_storm.py``); the bar is nothing
       acknowledged lost, no handler that may run only once run twice, no committed reading lost, none stored twice
cuts   a life is recorded and the power cut at each of its syncs (``tests/fault/power_cuts.py``); the bar is that the
       store opens and holds every promise
R2     the agent's system calls on its store fail for a while (``tests/fault/disk_faults.py``), once with a SIGKILL in
       the middle; the bar is no false acknowledgement, no crash loop, recovery within 30 s
=====  =============================================================================================================

The machinery is that of the tests; nothing is measured against a peer, since the bar is zero.

    python benchmarks/survival.py [--cycles 500] [--seed 1] [--sectors 2] [--dir FOLDER]

Exit codes: 0 the bars are reached, 1 they are not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fault.disk_faults import DISK_FAULTS, Patient  # noqa: E402 - after the path is set
from tests.fault.plugin_folder import make_plugin_folder  # noqa: E402
from tests.fault.power_cuts import images, moments, open_and_judge  # noqa: E402
from tests.fault.processes import ForkServer  # noqa: E402
from tests.fault.recording import Scenario  # noqa: E402
from tests.fault.soak import weather  # noqa: E402


def kills(folder: Path, seed: int, cycles: int) -> int:
    """R1: one storm; how many bars are missed."""
    found, books = weather(folder, seed, cycles)
    print(f"\nR1 kill -9 under load (seed {seed})")
    print(f"{'cycles':>8} {'seconds':>8} {'commands':>9} {'effects':>8} {'readings':>9}")
    print(f"{found.cycles:8} {found.seconds:8.0f} {found.commands:9} {found.effects:8} {found.readings:9}")
    print(f"{'lost commands':>15} {'run twice':>10} {'lost readings':>14} {'stored twice':>13} {'other':>6}")
    print(
        f"{found.lost_commands:15} {found.run_twice:10} {found.lost_readings:14} {found.stored_twice:13} "
        f"{found.other_faults:6}"
    )
    for fault in books.faults[:20]:
        print(f"  {fault}")
    return len(books.faults)


def power_cuts(folder: Path, strace: str, seed: int, of_sectors: int) -> int:
    """Every sync of a recorded life; how many promises are broken."""
    folder.mkdir()
    recording = Scenario(folder, strace).record()
    began_s, faults, counts = time.monotonic(), 0, dict.fromkeys(("syncs", "images"), 0)
    for moment in moments(recording):
        counts["syncs"] += 1
        for image in images(moment, random.Random(f"{seed} {moment.number}"), of_sectors=of_sectors):
            counts["images"] += 1
            found = open_and_judge(image, folder / "image")
            faults += len(found)
            for text in found:
                print(f"  {text}")
    print(f"\npower cuts (seed {seed})\n{'moments':>8} {'images':>8} {'seconds':>8} {'broken promises':>16}")
    print(f"{counts['syncs']:8} {counts['images']:8} {time.monotonic() - began_s:8.0f} {faults:16}")
    return faults


def disk_faults(folder: Path, strace: str) -> int:
    """R2 of the disk; how many bars are missed."""
    print(f"\nR2 a disk that fails and mends\n{'fault':48} {'then':>8} {'faults':>7} {'recovery s':>11}")
    missed, longest_s = 0, 0.0
    with ForkServer(make_plugin_folder(folder / "plugins")) as server:
        for number, (fault, killed) in enumerate((fault, killed) for killed in (False, True) for fault in DISK_FAULTS):
            recovery = Patient(folder / str(number), server, strace).go_through(fault, killed=killed)
            missed += len(recovery.faults)
            took = "-" if recovery.seconds is None else f"{recovery.seconds:.1f}"
            longest_s = max(longest_s, recovery.seconds or 0.0)
            print(f"{fault.name:48} {'SIGKILL' if killed else 'mended':>8} {len(recovery.faults):7} {took:>11}")
            for text in recovery.faults[:5]:
                print(f"  {text}")
    print(f"longest recovery: {longest_s:.1f} s")
    return missed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Kills, power cuts and failing disks: what survives them.")
    parser.add_argument("--cycles", type=int, default=500, help="kills of R1 (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default: 1)")
    parser.add_argument("--sectors", type=int, default=2, help="images with random sectors per moment (default: 2)")
    parser.add_argument("--dir", type=Path, help="where the files go; on a disk, not in memory (default: /tmp)")
    arguments = parser.parse_args()
    strace = shutil.which("strace")
    if strace is None:
        parser.error("the program strace is missing: apt-get install strace")
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, {platform.platform()}")
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="survival-") as name:
        folder = Path(name)
        missed = kills(folder / "kills", arguments.seed, arguments.cycles)
        missed += power_cuts(folder / "cuts", strace, arguments.seed, arguments.sectors)
        missed += disk_faults(folder / "disk", strace)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
