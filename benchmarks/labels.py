"""Figure Q1: labels made, proven by two decoders and written, beside qrcode and segno doing the same.

Method: the same texts (profile json, version 6 at level M), the same size (6 dots per module, quiet zone 4), a PNG file
for each. Rates are labels per second of one core: CPU time of the process and its children, which a busy machine
changes less than the time of day. "Made" is encoded, drawn and written; "proven" is the written file read back by
zxing-cpp and zbar and compared. What a decoder does not read is counted; only ours tries another code then, and ours
also writes manifests. Ours is ``make_labels`` in this process; qrcode and segno are used as their pages show them.

    python benchmarks/labels.py [--labels 600]
    python benchmarks/labels.py --proof 10000 [--seed 1]

``--proof`` makes labels of random identifiers and says how many no candidate was read of, and how many needed another.

Exit codes: 0 the bar is reached and every label is readable, 1 not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import qrcode  # noqa: E402 - after the path
import segno  # noqa: E402

from simulator.labels import UnreadableLabel, make_labels  # noqa: E402
from simulator.labels.payload import label_text  # noqa: E402
from simulator.labels.symbol.decoders import Decoder, panel  # noqa: E402
from simulator.labels.symbol.pictures import load_picture  # noqa: E402
from simulator.labels.symbol.proving import PrintSize, prove  # noqa: E402

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
BAR = 100
DOTS = 6
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.ü器"


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


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


def measure_peer(folder: Path, texts: Sequence[str], make: Callable[[Path, str], None]) -> tuple[float, float, int]:
    """Rate of making, rate of making and proving, and how many some decoder did not read."""
    readers = panel()
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
    pixels = load_picture(path)
    return all(reader.read(pixels) == (text,) for reader in readers)


def compare(count: int) -> int:
    """Measure, print the table; 1 when the bar is missed."""
    texts = [label_text(PRODUCT, f"SIM-{serial:06d}") for serial in range(1, count + 1)]
    with tempfile.TemporaryDirectory() as folder:
        make_labels(product_id=PRODUCT, count=20, out=Path(folder, "warm"), formats=["png"])
        begun_s = cpu_s()
        make_labels(product_id=PRODUCT, count=count, out=Path(folder, "ours"), formats=["png"])
        ours = count / (cpu_s() - begun_s)
        rows = [("ours", "", f"{ours:,.0f}", "0")]
        for name, make in (("segno", make_segno), ("qrcode", make_qrcode)):
            own = Path(folder, name)
            own.mkdir()
            make(own / "warm.png", texts[0])
            made, proven, missed = measure_peer(own, texts, make)
            rows.append((name, f"{made:,.0f}", f"{proven:,.0f}", str(missed)))
    print(f"{machine()}\n{count} labels, {DOTS} dots per module, per second of a core; bar: ours >= {BAR}")
    print(f"proven by {', '.join(reader.name for reader in panel())}\n")
    print(f"{'':<10} {'made':>8} {'and proven':>12} {'not read at the first try':>28}")
    for name, made_rate, proven_rate, unread in rows:
        print(f"{name:<10} {made_rate:>8} {proven_rate:>12} {unread:>28}")
    return 0 if ours >= BAR else 1


def proof(count: int, seed: int) -> int:
    """Prove labels of random identifiers, print what came of it; 1 when one is unreadable."""
    pick, readers, size = random.Random(seed), panel(), PrintSize()
    unreadable = retaken = 0
    for _ in range(count):
        identifier = "".join(pick.choices(ALPHABET, k=pick.randint(4, 64))).strip(".")
        try:
            symbol = prove(label_text(PRODUCT, identifier), size=size, panel=readers)
        except UnreadableLabel:
            unreadable += 1
        else:
            retaken += bool(symbol.missed)
    print(f"{machine()}\n{count} labels, seed {seed}, proven by {', '.join(reader.name for reader in readers)}")
    print(f"unreadable {unreadable}, needed another candidate {retaken}")
    return 1 if unreadable else 0


def machine() -> str:
    """What and when this was measured on."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    return f"{(names or [platform.machine()])[0]}, {os.cpu_count()} cores, Python {platform.python_version()}, {today}"


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=600, help="labels for each program")
    parser.add_argument("--proof", type=int, help="prove this many labels instead")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return compare(given.labels) if given.proof is None else proof(given.proof, given.seed)


if __name__ == "__main__":
    sys.exit(main())
