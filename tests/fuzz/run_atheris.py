"""Coverage-guided fuzzing of the parsers in ``targets.py``: ``make fuzz`` (needs requirements/fuzz.txt).

Each parser runs in a process of its own for FUZZ_SECONDS. Inputs that reach new code are kept in ``.fuzz/corpus`` and
taken up by the next run; an input that a parser must not fall over is left in ``.fuzz/finds`` and ends the whole with
exit code 1. Cut it down, mend the parser, and put it into ``tests/fuzz/corpus/TARGET/``: ``make test`` replays it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".fuzz"
HAND_MADE = Path(__file__).with_name("corpus")
# What one input may take, seconds; and how long an input may be.
MOST_S = 10
MOST_BYTES = 8192


def fuzz_one(name: str, seconds: int) -> None:
    """Fuzz one parser in this process; it ends with libFuzzer's exit code."""
    import atheris

    with atheris.instrument_imports(include=["agent", "simulator"]):
        from tests.fuzz.targets import TARGETS

    each = TARGETS[name]
    folder = name.replace(" ", "_")
    corpus = KEPT / "corpus" / folder
    corpus.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(each.examples):
        (corpus / f"example-{number}").write_bytes(example)
    finds = KEPT / "finds"
    finds.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={MOST_S}",
        f"-artifact_prefix={finds / folder}-",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    hand_made = [str(HAND_MADE / folder)] if (HAND_MADE / folder).is_dir() else []
    atheris.Setup([sys.argv[0], *options, str(corpus), *hand_made], each.run, enable_python_coverage=True)
    atheris.Fuzz()


def fuzz_all(names: list[str], seconds: int) -> int:
    """Fuzz these parsers one after the other, or all; 1 when something was found."""
    sys.path.insert(0, str(ROOT))
    from tests.fuzz.targets import TARGETS

    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"no parser is called {unknown[0]!r}; there is: {', '.join(sorted(TARGETS))}", file=sys.stderr)
        return 2
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FUZZ_SECONDS": str(seconds)}
    found = []
    for name in names or sorted(TARGETS):
        print(f"== {name}: {seconds} s", flush=True)
        done = subprocess.run(
            [sys.executable, __file__, "--one", name],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (done.stdout + done.stderr).splitlines()
        runs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "?")
        print(f"   {runs} inputs", flush=True)
        if done.returncode:
            found.append(name)
            print("\n".join(lines[-40:]), flush=True)
    if found:
        print(f"found something in: {', '.join(found)}; the inputs are in {KEPT / 'finds'}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    wanted = int(os.environ.get("FUZZ_SECONDS", "30"))
    if sys.argv[1:2] == ["--one"]:
        fuzz_one(sys.argv[2], wanted)
    sys.exit(fuzz_all(sys.argv[1:], wanted))
