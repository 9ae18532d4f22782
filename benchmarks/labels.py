"""Figure Q1: labels made, proven by two decoders and written, beside qrcode, segno and qrencode doing the same.

Method: the same texts (profile json, version 6 at level M), the same size (6 dots per module, quiet zone 4), a PNG file
for each. Rates are labels per second of one core: CPU time of the process and its children, which a busy machine
changes less than the time of day. "Made" is encoded, drawn and written; "proven" is the written file read back by
zxing-cpp and zbar and compared byte for byte. What a decoder does not read is counted; only ours tries another code
then, and ours also writes journal and manifest.

=============  ==================================================================================================
ours           ``make_labels`` in this process, everything included
ours, jobs     the same over all cores; the rate is per second of the clock
qrcode, segno  the libraries, in this process; ``qrcode`` draws with Pillow
qrencode       Debian's program, one process for each label, as a script would use it
=============  ==================================================================================================

    python benchmarks/labels.py [--labels 600]
    python benchmarks/labels.py --proof 100000 [--decoders zxing,zbar,opencv] [--seed 1]

``--proof`` proves that many payloads over all profiles (and plain texts), versions 2 to 10 and all levels, and says how
many needed a second candidate and how often each decoder missed the first. Nothing is written.

Exit codes: 0 the bar is reached and every payload is readable, 1 not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import qrcode  # noqa: E402 - after the path
import segno  # noqa: E402

from simulator.labels import UnreadableLabel, make_labels  # noqa: E402
from simulator.labels.errors import LabelError  # noqa: E402
from simulator.labels.payload import PROFILES, label_text, open_payload  # noqa: E402
from simulator.labels.processes import cores, run_ordered  # noqa: E402
from simulator.labels.symbol.decoders import Decoder, panel  # noqa: E402
from simulator.labels.symbol.encoding import LEVELS, Candidate, encode  # noqa: E402
from simulator.labels.symbol.pictures import load_picture  # noqa: E402
from simulator.labels.symbol.proving import DecodeVerdict, PrintSize, prove  # noqa: E402

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
TWO = ("zxing", "zbar")
BAR = 300
DOTS = 6
PLAIN = "plain text"
VERSIONS = range(2, 11)
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_."


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def make_ours(folder: Path, count: int, jobs: int) -> None:
    """The whole command's work."""
    make_labels(product_id=PRODUCT, count=count, out=folder, formats=["png"], decoders=TWO, jobs=jobs)


def make_qrcode(path: Path, text: str) -> None:
    """As its documentation shows it."""
    code = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, box_size=DOTS, border=4)
    code.add_data(text)
    code.make(fit=True)
    with path.open("wb") as file:
        code.make_image().save(file)


def make_segno(path: Path, text: str) -> None:
    """As its documentation shows it; the level is not raised by itself."""
    segno.make_qr(text, error="m", boost_error=False).save(str(path), scale=DOTS, border=4)


def make_qrencode(path: Path, text: str) -> None:
    """One process for one label."""
    command = ["qrencode", "-8", "-l", "M", "-s", str(DOTS), "-m", "4", "-o", str(path), text]
    subprocess.run(command, check=True)


def measure_peer(folder: Path, texts: Sequence[str], make: Callable[[Path, str], None]) -> tuple[float, float, int]:
    """Rate of making, rate of making and proving, and how many some decoder did not read."""
    readers = panel(TWO)
    paths = [folder / f"{number}.png" for number in range(len(texts))]
    begun_s = cpu_s()
    for path, text in zip(paths, texts, strict=True):
        make(path, text)
    made_s = cpu_s()
    missed = sum(not is_read(path, text, readers) for path, text in zip(paths, texts, strict=True))
    proven_s = cpu_s()
    return len(texts) / (made_s - begun_s), len(texts) / (proven_s - begun_s), missed


def is_read(path: Path, text: str, readers: Sequence[Decoder]) -> bool:
    """Whether every decoder reads the file as exactly this text."""
    image = load_picture(path)
    return all(reader.read(image) == (text.encode(),) for reader in readers)


def compare(count: int) -> int:
    """Measure, print the table; 1 when the bar is missed."""
    texts = [label_text(PRODUCT, f"SIM-{serial:06d}") for serial in range(1, count + 1)]
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        make_ours(Path(folder, "warm"), 20, 1)
        begun_s = cpu_s()
        make_ours(Path(folder, "ours"), count, 1)
        ours = count / (cpu_s() - begun_s)
        rows.append(("ours", "", f"{ours:,.0f}", "0"))
        begun_s = time.perf_counter()
        make_ours(Path(folder, "jobs"), count * 4, cores())
        rate = count * 4 / (time.perf_counter() - begun_s)
        rows.append((f"ours, {cores()} jobs, by the clock", "", f"{rate:,.0f}", "0"))
        peers: dict[str, Callable[[Path, str], None]] = {"segno": make_segno, "qrcode": make_qrcode}
        if shutil.which("qrencode"):
            peers["qrencode"] = make_qrencode
        for name, make in peers.items():
            own = Path(folder, name)
            own.mkdir()
            make(own / "warm.png", texts[0])
            made, proven, missed = measure_peer(own, texts, make)
            rows.append((name, f"{made:,.0f}", f"{proven:,.0f}", str(missed)))
    print(f"{machine()}\n{count} labels, {DOTS} dots per module, per second of a core; bar: ours >= {BAR}\n")
    print(f"{'':<28} {'made':>8} {'and proven':>12} {'not read at the first try':>28}")
    for name, made_rate, proven_rate, unread in rows:
        print(f"{name:<28} {made_rate:>8} {proven_rate:>12} {unread:>28}")
    if "qrencode" not in peers:
        print("\nqrencode is not installed (Debian: apt-get install qrencode)")
    return 0 if ours >= BAR else 1


def machine() -> str:
    """What and when this was measured on."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    return f"{(names or [platform.machine()])[0]}, {os.cpu_count()} cores, Python {platform.python_version()}, {today}"


@dataclass(frozen=True, slots=True)
class Payload:
    """One text to prove.

    Attributes:
        kind: the profile, or plain text.
        level: the lowest error correction level.
        text: what the code says.
    """

    kind: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        kind: the profile, or plain text.
        version: of the symbol taken; 0 when there is none.
        tries: candidates drawn.
        missed_first: decoders that did not read the first candidate.
    """

    kind: str
    version: int
    tries: int
    missed_first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProofWork:
    """Prove payloads in a worker process.

    Attributes:
        decoders: the panel.
    """

    decoders: tuple[str, ...]

    def start(self) -> Callable[[Payload], Outcome]:
        """The function for one payload."""
        readers = panel(self.decoders)
        size = PrintSize()

        def do(payload: Payload) -> Outcome:
            try:
                symbol = prove(payload.text, size=size, level=payload.level, panel=readers)
            except UnreadableLabel:
                return Outcome(payload.kind, 0, 0, self.decoders)
            first = (*symbol.missed, symbol.taken)[0]
            missed = tuple(name for name, verdict in first.verdicts if verdict is not DecodeVerdict.READ)
            return Outcome(payload.kind, symbol.matrix.version, len(symbol.missed) + 1, missed)

        return do


def write(kind: str, identifier: str) -> str:
    """The text of a kind for an identifier."""
    if kind == PLAIN:
        return identifier
    return open_payload(kind, host="onboard.example.com" if kind == "link" else "").text("p", identifier)


@cache
def lengths(kind: str, level: str) -> dict[int, list[int]]:
    """Version -> lengths of identifiers that need exactly it."""
    found: dict[int, list[int]] = {}
    for length in range(1, 280, 3):
        try:
            matrix = encode(write(kind, "a" * length), Candidate(0, level, None))
        except LabelError:
            continue
        if matrix is not None and matrix.version in VERSIONS:
            found.setdefault(matrix.version, []).append(length)
    return found


def payloads(count: int, seed: int) -> Iterator[Payload]:
    """Payloads in turn over all kinds, levels and versions; the same for the same seed."""
    pick = random.Random(seed)
    classes = [
        (kind, level, some)
        for kind in (*PROFILES, PLAIN)
        for level in LEVELS
        for _, some in sorted(lengths(kind, level).items())
    ]
    for number in range(count):
        kind, level, some = classes[number % len(classes)]
        identifier = "".join(pick.choices(ALPHABET, k=pick.choice(some)))
        if number % 7 == 0 and len(identifier) > 3:
            identifier = identifier[:-2] + "ü"  # two bytes in place of two: the code holds UTF-8
        yield Payload(kind, level, write(kind, identifier))


def proof(count: int, decoders: tuple[str, ...], seed: int, jobs: int) -> int:
    """Prove, print what came of it; 1 when one payload is unreadable."""
    source = payloads(count, seed)
    portions = iter(lambda: [each for _, each in zip(range(16), source, strict=False)], [])
    kinds: Counter[str] = Counter()
    versions: Counter[int] = Counter()
    missed: Counter[str] = Counter()
    tries: Counter[int] = Counter()
    begun_s = time.perf_counter()
    for number, outcome in enumerate(run_ordered(ProofWork(decoders), portions, jobs), start=1):
        kinds[outcome.kind] += 1
        versions[outcome.version] += 1
        tries[outcome.tries] += 1
        missed.update(outcome.missed_first)
        if number % 10_000 == 0:
            print(f"{number} of {count}", file=sys.stderr, flush=True)
    took_s = time.perf_counter() - begun_s
    total = kinds.total()
    print(f"{machine()}\n{total} payloads, seed {seed}, proven by {', '.join(decoders)} in {took_s:,.0f} s\n")
    print(f"unreadable                   {tries[0]}")
    print(f"needed a second candidate    {total - tries[0] - tries[1]} (most tried: {max(tries)})")
    for name in decoders:
        print(f"first one missed by {name:<8} {missed[name]}")
    print("payloads by profile          " + ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())))
    print(
        "payloads by version          " + ", ".join(f"{version}: {versions[version]}" for version in sorted(versions))
    )
    return 1 if tries[0] else 0


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=600, help="labels for each program")
    parser.add_argument("--proof", type=int, help="prove this many payloads instead")
    parser.add_argument("--decoders", help="who has to read them; by default all that are installed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=cores(), help="processes of --proof")
    given = parser.parse_args()
    if given.proof is None:
        return compare(given.labels)
    names = given.decoders.split(",") if given.decoders else None
    return proof(given.proof, tuple(decoder.name for decoder in panel(names)), given.seed, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
