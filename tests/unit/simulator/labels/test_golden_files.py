"""The bytes of labels and the pixels of damage, against hashes in ``golden.json``: moved code must not change them.

Left out is what depends on another library's version: PDF on reportlab's, ``jpeg`` on libjpeg, ``several_codes`` and
the choice of masks on zxing-cpp's. So the symbol of every label here is drawn by hand.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import draw_label
from simulator.labels.damage.measuring import damage
from simulator.labels.printing.brother import begin_job, draw_tape, find_tape, page_commands
from simulator.labels.printing.dots import DotLabel
from simulator.labels.printing.layout import Room
from simulator.labels.printing.zpl import draw_zpl
from simulator.labels.symbol.matrix import Matrix
from simulator.labels.symbol.png import draw_png
from simulator.labels.symbol.svg import draw_svg

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
MATRIX = Matrix(tuple(bytes((x * y + x // 3 + y // 2) % 2 for x in range(25)) for y in range(25)))
LABEL = draw_label("SIM-000001", "SIM-000001", MATRIX)
DOTS = DotLabel("SIM-000001", ("SIM-000001", "press-7"), MATRIX, 5)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"jpeg", "several_codes"}])
def test_a_kind_of_damage_gives_the_pixels_that_it_always_gave(kind):
    given = [_sha256(damage(LABEL, KINDS[kind], severity, 7).tobytes()) for severity in (0.25, 1.0)]
    assert given == GOLDEN["damage"][kind]


def test_files_of_a_label_have_the_bytes_that_they_always_had():
    tape = find_tape(62)
    given = {
        "png": draw_png(MATRIX, dots_per_module=5, dpi=300),
        "svg": draw_svg(MATRIX, module_mm=0.42, title="SIM-000001"),
        "zpl": draw_zpl(DOTS, room=Room(50.0, 25.0, 1.0), dpi=300),
        "brother": begin_job() + page_commands(draw_tape(DOTS, tape), tape, first=True, last=True),
    }
    assert {name: _sha256(data) for name, data in given.items()} == GOLDEN["files"]
