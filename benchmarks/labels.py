"""Figure Q1: labels made, read back by zxing-cpp and written, beside qrcode and segno doing the same.

Method: the same texts (profile json, version 6 at level M), 6 dots for a module, a PNG file for each. Rates are labels
per second of one core: CPU time of the process, which a busy machine changes less than the time of day. Ours is
``make_labels`` in this process, manifests too; the peers are used as their pages show them, and the file is read.

    python -m benchmarks.labels [--labels 600]
    python -m benchmarks.labels --proof 10000 [--seed 1]

``--proof`` makes labels of random identifiers, and has zxing-cpp and zbar's program (zbarimg) read every written file.

Exit codes: 0 the bar is reached and every label is read, 1 not.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import qrcode
import segno

from benchmarks._rig import judge, machine
from simulator.labels.make import make_labels
from simulator.labels.payload import label_text
from simulator.labels.reading import read_drawing

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"
BAR = 100
DOTS = 6
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.ü器"
FILES_AT_ONCE = 100


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


def measure_peer(folder: Path, texts: Sequence[str], make: Callable[[Path, str], None]) -> tuple[float, int]:
    """The rate of making and reading, and how many were not read."""
    folder.mkdir()
    begun_s, missed = time.process_time(), 0
    for number, text in enumerate(texts):
        path = folder / f"{number}.png"
        make(path, text)
        missed += read_drawing(path.read_bytes()) != [text]
    return len(texts) / (time.process_time() - begun_s), missed


def compare(count: int) -> int:
    """Measure, print the table; 1 when the bar is missed."""
    texts = [label_text(PRODUCT, f"SIM-{serial:06d}") for serial in range(1, count + 1)]
    with tempfile.TemporaryDirectory() as place:
        make_labels(product_id=PRODUCT, count=20, out=Path(place, "warm"), formats=["png"])
        begun_s = time.process_time()
        make_labels(product_id=PRODUCT, count=count, out=Path(place, "ours"), formats=["png"])
        ours = count / (time.process_time() - begun_s)
        peers = {name: measure_peer(Path(place, name), texts, make) for name, make in PEERS.items()}
    print(f"Q1: {count} labels, read back and written, per second of a core\n{machine()}")
    for name, (rate, missed) in peers.items():
        print(f"     {name:<7} {rate:8,.0f}   not read {missed}")
    return 0 if judge("ours", ours, BAR, "labels/s", is_least=True) else 1


PEERS = {"segno": make_segno, "qrcode": make_qrcode}


def proof(count: int, seed: int) -> int:
    """Make labels of random identifiers and have two programs read them; 1 when one of them does not."""
    pick = random.Random(seed)
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(pick.choices(ALPHABET, k=pick.randint(4, 64))).strip(".")] = None
    with tempfile.TemporaryDirectory() as place:
        table = Path(place, "devices.csv")
        table.write_text("device_identifier\n" + "\n".join(names), encoding="utf-8")
        batch = make_labels(product_id=PRODUCT, devices=table, out=Path(place, "labels"), formats=["png"])
        wanted = {str(label.png): label.order.text for label in batch.labels}
        unread = dict.fromkeys(("zxing-cpp", "zbar"), 0)
        for path, text in wanted.items():
            unread["zxing-cpp"] += read_drawing(Path(path).read_bytes()) != [text]
        paths = list(wanted)
        for first in range(0, count, FILES_AT_ONCE):
            some = paths[first : first + FILES_AT_ONCE]
            command = ["zbarimg", "--nodbus", "--quiet", "--raw", *some]
            read = subprocess.run(command, capture_output=True, check=False, text=True).stdout.splitlines()
            unread["zbar"] += len({wanted[path] for path in some}.symmetric_difference(read))
    print(f"{count} labels, seed {seed}; not read or read otherwise: {unread}")
    return 1 if any(unread.values()) else 0


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
