"""Zebra and Brother files, read back by somebody else."""

from __future__ import annotations

import re
import struct
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zebrafy import ZebrafyZPL

from simulator.labels.errors import LabelError
from simulator.labels.printing.brother import (
    TAPES,
    begin_job,
    draw_tape,
    find_tape,
    page_commands,
    require_brother,
)
from simulator.labels.printing.dots import DotLabel, draw_dots
from simulator.labels.printing.layout import Room
from simulator.labels.printing.zpl import draw_zpl, pack, require_zebra
from simulator.labels.symbol.decoders import GrayImage, panel
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.matrix import QUIET_MODULES

TEXT = '{"v":1,"product_id":"p-1","device_identifier":"SIM-000001"}'
MATRIX = encode(TEXT, Candidate(0, "M", None))


def _label(dots: int, identifier: str = "SIM-000001") -> DotLabel:
    return DotLabel(identifier, (identifier, "a product"), MATRIX, dots)


def _gray(image) -> GrayImage:
    picture = image.convert("L")
    return GrayImage(picture.width, picture.height, picture.tobytes())


def _assert_reads(image) -> None:
    assert {decoder.name: decoder.read(_gray(image)) for decoder in panel()} == {
        decoder.name: (TEXT.encode(),) for decoder in panel()
    }


@pytest.mark.parametrize(("dpi", "dots"), [(203, 3), (300, 5), (600, 9)])
def test_a_zebra_label_says_its_size_and_reads_as_a_stranger_draws_it(dpi, dots):
    zpl = draw_zpl(_label(dots), room=Room(50, 25, 1), dpi=dpi, quantity=3).decode("ascii")
    width, height = int(50 * dpi / 25.4), int(25 * dpi / 25.4)
    assert f"^PW{width}^LL{height}" in zpl
    assert zpl.startswith("^XA\n")
    assert zpl.endswith("^PQ3\n^XZ\n")
    (image,) = ZebrafyZPL(zpl).to_images()
    assert image.size == (-(-width // 8) * 8, height)
    assert (
        image.crop((0, 0, width, height)).tobytes()
        == draw_dots(_label(dots), room=Room(50, 25, 1), dpi=dpi).as_image().tobytes()
    )
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


def test_a_very_wide_row_repeats_beyond_what_one_letter_can_say():
    row = b"\x11" + b"\xaa" * 500 + b"\x00"
    assert pack([row]) == "11" + "zYA" * 2 + "nHA,"  # 419 + 419 + 162 digits
    assert pack([b"\xaa" * 210]) == "zYAA"
    (image,) = ZebrafyZPL(f"^XA^GFA,502,502,502,{pack([row])}^FS^XZ").to_images()
    assert bytes(255 - value for value in image.tobytes()) == row


@pytest.mark.parametrize("identifier", ["^XZ^XA^PQ999", "~JR", "a\n^XA", "器^FS", "100 %"])
def test_an_identifier_never_becomes_a_command(identifier):
    zpl = draw_zpl(_label(3, identifier), room=Room(70, 40, 1), dpi=300).decode("ascii")
    commands = re.findall(r"[\^~][A-Z][A-Z]", zpl)
    assert commands == ["^XA", "^FX", "^FS", "^PW", "^LL", "^LH", "^LS", "^LT", "^FO", "^GF", "^FS", "^PQ", "^XZ"]


@pytest.mark.parametrize(
    ("dpi", "quantity", "words"),
    [(240, 1, "Zebra printers have 203, 300, 600 dpi, not 240"), (300, 0, "--quantity is 0: give 1 to 99999999")],
)
def test_what_no_zebra_printer_can_do_is_refused(dpi, quantity, words):
    with pytest.raises(LabelError, match=words):
        require_zebra(dpi, quantity)


class _BrotherPrinter:
    """Reads a raster stream by Brother's command reference: what it is told of each label, and the dots it burns.

    Written from the reference's chapter 4, not from the module under test.
    """

    LENGTHS: ClassVar = {b"@": 0, b"ia": 1, b"iz": 10, b"iM": 1, b"iA": 1, b"iK": 1, b"id": 2}

    def __init__(self) -> None:
        self.pages: list[dict] = []
        self._told: dict[bytes, bytes] = {}
        self._lines: list[bytes] = []

    def take(self, stream: bytes) -> None:
        at = 0
        while at < len(stream):
            sign = stream[at : at + 1]
            if sign == b"\x00":
                at += 1
            elif sign == b"\x1b":
                name = stream[at + 1 : at + 2] if stream[at + 1 : at + 2] == b"@" else stream[at + 1 : at + 3]
                length = self.LENGTHS[name]
                at += 1 + len(name)
                self._told[name] = stream[at : at + length]
                at += length
            elif sign == b"g":
                assert stream[at + 1] == 0
                length = stream[at + 2]
                assert length == 90
                self._lines.append(stream[at + 3 : at + 3 + length])
                at += 3 + length
            elif sign in b"\x0c\x1a":
                self.pages.append({**self._told, "lines": self._lines, "last": sign == b"\x1a"})
                self._lines = []
                at += 1
            else:
                raise AssertionError(f"no command begins with {sign!r}")


def _burnt(page) -> list[str]:
    """Each line of dots as somebody sees it: pin 0 of the head is the rightmost dot."""
    return [f"{int.from_bytes(line, 'big'):0720b}"[::-1] for line in page["lines"]]


@pytest.mark.parametrize("width_mm", [12, 29, 38, 50, 62])
def test_a_brother_printer_burns_each_label_where_the_tape_is(width_mm):
    tape = find_tape(width_mm)
    label = _label(2 if width_mm == 12 else 5)
    bitmap = draw_tape(label, tape)
    assert bitmap.width == tape.dots
    assert bitmap.height >= 150
    printer = _BrotherPrinter()
    printer.take(begin_job())
    printer.take(page_commands(bitmap, tape, first=True, last=False))
    printer.take(page_commands(bitmap, tape, first=False, last=True))
    assert [page["last"] for page in printer.pages] == [False, True]
    assert [page[b"iz"][8] for page in printer.pages] == [0, 1]
    for page in printer.pages:
        flags, kind, width, length, lines = struct.unpack("<BBBBI", page[b"iz"][:8])
        assert (flags & 0x86, kind, width, length, lines) == (0x86, 0x0A, width_mm, 0, bitmap.height)
        assert (page[b"ia"], page[b"iM"], page[b"iA"], page[b"iK"], page[b"id"]) == (
            b"\1",
            b"@",
            b"\1",
            b"\x08",
            b"#\0",
        )
        dots = _burnt(page)
        right = 720 - tape.right_pins
        inside = [line[right - tape.dots : right] for line in dots]
        outside = [line[: right - tape.dots] + line[right:] for line in dots]
        assert not any("1" in line for line in outside)
        want = [f"{int.from_bytes(row, 'big'):0{bitmap.stride * 8}b}"[: bitmap.width] for row in bitmap.rows]
        assert inside == want
    _assert_reads(bitmap.as_image())


def test_every_tape_lies_on_the_print_head():
    assert all(tape.dots + tape.right_pins <= 720 for tape in TAPES.values())
    assert [round(tape.print_mm, 1) for tape in TAPES.values()] == [9.0, 25.9, 35.0, 46.9, 50.0, 58.9]


@pytest.mark.parametrize(
    ("dpi", "size_mm", "words"),
    [
        (203, 20, "Brother QL printers have 300 dpi, not 203: give --dpi 300"),
        (300, 30, "29 mm tape, which prints 25.9 mm: at most --size-mm 24.9 or --tape-mm 38"),
        (300, 90, "at most --size-mm 24.9$"),
    ],
)
def test_what_the_tape_cannot_hold_is_refused_with_what_would(dpi, size_mm, words):
    with pytest.raises(LabelError, match=words):
        require_brother(dpi, find_tape(29), size_mm)


def test_a_label_longer_than_the_printer_makes_is_refused():
    with pytest.raises(LabelError, match="long: shorter text, or a wider tape"):
        draw_tape(DotLabel("x", ("W" * 5000,), MATRIX, 2), find_tape(12))
