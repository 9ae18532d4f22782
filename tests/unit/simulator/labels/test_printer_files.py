"""Zebra files, read back by somebody else."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from zebrafy import ZebrafyZPL

from simulator.labels.errors import LabelError
from simulator.labels.printing.dots import DotLabel, draw_dots
from simulator.labels.printing.layout import Room
from simulator.labels.printing.zpl import draw_zpl, pack, require_zebra
from simulator.labels.symbol.decoders import panel
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.matrix import QUIET_MODULES

TEXT = '{"v":1,"product_id":"p-1","device_identifier":"SIM-000001"}'
MATRIX = encode(TEXT, Candidate(0, "M", None))


def _label(dots: int, identifier: str = "SIM-000001") -> DotLabel:
    return DotLabel(identifier, (identifier, "a product"), MATRIX, dots)


def _assert_reads(image) -> None:
    pixels = np.asarray(image.convert("L"))
    assert {decoder.name: decoder.read(pixels) for decoder in panel()} == {decoder.name: (TEXT,) for decoder in panel()}


@pytest.mark.parametrize(("dpi", "dots"), [(203, 3), (300, 5), (600, 9)])
def test_a_zebra_label_says_its_size_and_reads_as_a_stranger_draws_it(dpi, dots):
    zpl = draw_zpl(_label(dots), room=Room(50, 25, 1), dpi=dpi).decode("ascii")
    width, height = int(50 * dpi / 25.4), int(25 * dpi / 25.4)
    assert f"^PW{width}^LL{height}" in zpl
    assert zpl.startswith("^XA\n")
    assert zpl.endswith("^PQ1\n^XZ\n")
    (image,) = ZebrafyZPL(zpl).to_images()
    assert image.size == (-(-width // 8) * 8, height)
    bitmap = draw_dots(_label(dots), room=Room(50, 25, 1), dpi=dpi)
    drawn = Image.frombytes("1", image.size, b"".join(bytes(255 - value for value in row) for row in bitmap.rows))
    assert image.crop((0, 0, width, height)).tobytes() == drawn.crop((0, 0, width, height)).tobytes()
    _assert_reads(image)


def test_every_module_is_a_square_of_whole_dots_in_its_place():
    bitmap = draw_dots(DotLabel("x", (), MATRIX, 4), room=Room(30, 30, 1), dpi=300)
    pixels = [f"{int.from_bytes(row, 'big'):0{bitmap.stride * 8}b}" for row in bitmap.rows]
    edge = (MATRIX.modules + 2 * QUIET_MODULES) * 4
    left = top = int((30 - edge * 25.4 / 300) / 2 * 300 / 25.4 + 1e-6)
    drawn = "\n".join(pixels)
    for y, row in enumerate(MATRIX.rows):
        for line in range(4):
            found = pixels[top + (y + QUIET_MODULES) * 4 + line]
            start = left + QUIET_MODULES * 4
            assert found[start : start + MATRIX.modules * 4] == "".join(str(module) * 4 for module in row)
            assert "1" not in found[:start] + found[start + MATRIX.modules * 4 :]
    assert drawn.count("1") == sum(sum(row) for row in MATRIX.rows) * 16


def _pictures(stride: int) -> st.SearchStrategy[list[bytes]]:
    row = st.lists(st.sampled_from([0, 255, 240, 15, 7]), min_size=stride, max_size=stride).map(bytes)
    return st.lists(row, min_size=1, max_size=12)


@settings(max_examples=40)
@given(st.integers(1, 40).flatmap(_pictures))
def test_any_picture_comes_back_out_of_zebras_compression(rows):
    stride, total = len(rows[0]), len(rows[0]) * len(rows)
    (image,) = ZebrafyZPL(f"^XA^GFA,{total},{total},{stride},{pack(rows)}^FS^XZ").to_images()
    assert bytes(255 - value for value in image.tobytes()) == b"".join(rows)


@pytest.mark.parametrize("identifier", ["^XZ^XA^PQ999", "~JR", "a\n^XA", "器^FS", "100 %"])
def test_an_identifier_never_becomes_a_command(identifier):
    zpl = draw_zpl(_label(3, identifier), room=Room(70, 40, 1), dpi=300).decode("ascii")
    commands = re.findall(r"[\^~][A-Z][A-Z]", zpl)
    assert commands == ["^XA", "^FX", "^FS", "^PW", "^LL", "^LH", "^LS", "^LT", "^FO", "^GF", "^FS", "^PQ", "^XZ"]


def test_what_no_zebra_printer_can_do_is_refused():
    with pytest.raises(LabelError, match="Zebra printers have 203, 300, 600 dpi, not 240"):
        require_zebra(240)
