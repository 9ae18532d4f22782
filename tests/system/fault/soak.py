"""``make soak``: many storms, one after the other, each judged by itself, so that a night needs no more room than one.

    python -m tests.system.fault.soak [--cycles 15000] [--seed 1] [--out FOLDER]

A round is a storm with a seed of its own; ``--seed`` of a failed round and ``--cycles 500`` play it again (the random
choices are the same; what threads and processes make of them is not). A round that went well is written down and its
files are deleted; called again with the same ``--out`` the soak goes on where it was.

Exit codes: 0 nothing lost and nothing done twice, 1 something was; the files of that round are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.system.fault.kill_storm import Plan, Storm
from tests.system.fault.verdict import Books

ROUND_CYCLES: Final = 500
_FIGURES: Final = ("cycles", "commands", "effects", "interrupted", "readings")
_FAULTS: Final = ("lost_commands", "run_twice", "lost_readings", "stored_twice", "other_faults")


@dataclass(frozen=True, slots=True)
class Round:
    """What one storm amounts to."""

    seed: int
    cycles: int
    seconds: float
    commands: int
    effects: int
    interrupted: int
    readings: int
    lost_commands: int
    run_twice: int
    lost_readings: int
    stored_twice: int
    other_faults: int

    @property
    def is_good(self) -> bool:
        """Nothing was lost, nothing done twice, nothing else went wrong."""
        return not any(getattr(self, name) for name in _FAULTS)

    def line(self) -> str:
        """For a person."""
        figures = ", ".join(f"{name} {getattr(self, name)}" for name in (*_FIGURES, *_FAULTS))
        return f"seed {self.seed}: {self.seconds:.0f} s, {figures}".replace("_", " ")


def weather(folder: Path, seed: int, cycles: int, devices: int = 6) -> tuple[Round, Books]:
    """One storm in a folder of its own, which must not exist."""
    folder.mkdir(parents=True)
    began_s = time.monotonic()
    books = Storm(folder, Plan(seed=seed, cycles=cycles, devices=devices)).run()
    known = books.lost_commands + books.run_twice + books.lost_readings + books.stored_twice
    return Round(
        seed=seed,
        cycles=cycles,
        seconds=time.monotonic() - began_s,
        commands=books.commands,
        effects=books.effects,
        interrupted=books.interrupted,
        readings=books.readings,
        lost_commands=books.lost_commands,
        run_twice=books.run_twice,
        lost_readings=books.lost_readings,
        stored_twice=books.stored_twice,
        other_faults=len(books.faults) - known,
    ), books


def soak(out: Path, seed: int, cycles: int, tell: Callable[[str], None]) -> Counter[str]:
    """Rounds until so many cycles are done; what they sum up to."""
    out.mkdir(parents=True, exist_ok=True)
    ledger = out / "soak.jsonl"
    done = {each.seed: each for each in _read(ledger)}
    total: Counter[str] = Counter()
    for number in range(-(-cycles // ROUND_CYCLES)):
        round_seed = seed + number
        size = min(ROUND_CYCLES, cycles - number * ROUND_CYCLES)
        found = done.get(round_seed)
        if found is None or found.cycles != size:
            folder = out / f"seed-{round_seed}"
            shutil.rmtree(folder, ignore_errors=True)
            found, books = weather(folder, round_seed, size)
            if found.is_good:
                shutil.rmtree(folder)
            else:
                (folder / "faults.txt").write_text("\n".join(books.faults) + "\n")
            with ledger.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
        total.update({name: getattr(found, name) for name in (*_FIGURES, *_FAULTS)})
        total["seconds"] += round(found.seconds)
        tell(f"{total['cycles']} of {cycles} cycles; {found.line()}")
    return total


def _read(ledger: Path) -> Iterator[Round]:
    if ledger.exists():
        for line in ledger.read_text().splitlines():
            found = Round(**json.loads(line))
            if found.is_good:
                yield found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Kills agents and their service at random, thousands of times.")
    parser.add_argument("--cycles", type=int, default=15_000, help="how many agents are killed (default: 15000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next has the next (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("soak-output"), help="where the rounds are written down")
    arguments = parser.parse_args()
    total = soak(arguments.out, arguments.seed, arguments.cycles, lambda text: print(text, flush=True))  # noqa: T201
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in total.items()))  # noqa: T201
    return 1 if any(total[name] for name in _FAULTS) else 0


if __name__ == "__main__":
    sys.exit(main())
