"""``make soak``: many storms, one after the other, each judged by itself, so that a night needs no more room than one.

    python -m tests.system.fault.soak [--cycles 15000] [--seed 1] [--out FOLDER]

Each round is a storm with the next seed: ``--seed`` of a failed round and ``--cycles 500`` play it again (the random
choices are the same; what threads and processes make of them is not). The files of a round that went well are deleted.
Called again with the same ``--out`` the soak leaves out the rounds that went well.

Exit codes: 0 nothing lost and nothing done twice, 1 something was; the files of that round are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from tests.system.fault.kill_storm import Plan, Storm

ROUND_CYCLES: Final = 500


def play(folder: Path, seed: int, cycles: int) -> list[str]:
    """One storm in a folder of its own: what was wrong, one line each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began_s = time.monotonic()
    books = Storm(folder, Plan(seed=seed, cycles=cycles)).run()
    figures = (
        f"{books.commands} commands, {books.effects} effects, {books.readings} readings, {len(books.faults)} faults"
    )
    print(f"seed {seed}: {cycles} cycles in {time.monotonic() - began_s:.0f} s, {figures}", flush=True)  # noqa: T201
    if not books.faults:
        shutil.rmtree(folder)
    return books.faults


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Kills agents and their service at random, thousands of times.")
    parser.add_argument("--cycles", type=int, default=15_000, help="how many agents are killed (default: 15000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next has the next (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("soak-output"), help="where the rounds are written down")
    arguments = parser.parse_args()
    has_failed = False
    for number in range(-(-arguments.cycles // ROUND_CYCLES)):
        seed, cycles = arguments.seed + number, min(ROUND_CYCLES, arguments.cycles - number * ROUND_CYCLES)
        done = arguments.out / f"seed-{seed}-{cycles}.done"
        if done.exists():
            continue
        folder = arguments.out / f"seed-{seed}"
        if faults := play(folder, seed, cycles):
            (folder / "faults.txt").write_text("\n".join(faults) + "\n")
            has_failed = True
        else:
            done.touch()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
