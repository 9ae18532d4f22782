from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import label_text
from simulator.labels.symbol import decoders
from simulator.labels.symbol.decoders import GrayImage, OpenCv, Zxing, find_zbar, lone_decoder_warning, panel
from simulator.labels.symbol.encoding import Candidate, candidate_order, encode
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.symbol.png_reading import read_drawing
from simulator.labels.symbol.proving import DecodeVerdict, PrintSize, judge, prove
from tests.conftest import require_program

TEXT = label_text("0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11", "SIM-000001")
PANEL = tuple(decoder for decoder in panel() if decoder.name != "opencv")  # which takes 10 ms for a picture


@dataclass
class Picky:
    """A decoder that misses the first pictures it is shown, then reads as zxing does."""

    misses: int
    name: str = "picky"
    seen: list[GrayImage] = field(default_factory=list)

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        self.seen.append(image)
        return () if len(self.seen) <= self.misses else Zxing().read(image)


@dataclass(frozen=True)
class Liar:
    """A decoder that always reads the same."""

    answers: tuple[bytes, ...]
    name: str = "liar"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        return self.answers


def _prove(text=TEXT, *, size_mm=25.0, dpi=300, level="M", decoders=PANEL):
    return prove(text, size=PrintSize(size_mm, dpi), level=level, panel=decoders)


_identifiers = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80).filter(
    lambda text: text.isprintable() and text == text.strip()
)


@settings(max_examples=50)
@given(_identifiers, _identifiers, st.sampled_from("LMQH"), st.sampled_from([203, 300]))
def test_any_identifier_is_read_back_from_its_drawing_byte_for_byte(product_id, identifier, level, dpi):
    text = label_text(product_id, identifier)
    symbol = _prove(text, size_mm=40, dpi=dpi, level=level)
    image = load_picture(symbol.png)
    assert all(decoder.read(image) == (text.encode(),) for decoder in PANEL)
    assert image.width == symbol.matrix.modules_with_quiet_zone * symbol.dots_per_module
    assert symbol.edge_mm <= 40


def test_both_decoders_of_this_machine_are_independent_and_agree():
    require_program("zbarimg", "zbar-tools")
    zbar = find_zbar()
    assert zbar is not None
    image = load_picture(_prove("zwölf Käse, 器械, \N{GRINNING FACE}").png)
    assert zbar.read(image) == Zxing().read(image) == ("zwölf Käse, 器械, \N{GRINNING FACE}".encode(),)


def test_the_quiet_zone_is_white_on_all_sides():
    symbol = _prove()
    image = load_picture(symbol.png)
    quiet = QUIET_MODULES * symbol.dots_per_module
    rows = [image.pixels[y * image.width : (y + 1) * image.width] for y in range(image.height)]
    dark = [(x, y) for y, row in enumerate(rows) for x, value in enumerate(row) if value == 0]
    assert min(x for x, _ in dark) == min(y for _, y in dark) == quiet
    assert max(x for x, _ in dark) == max(y for _, y in dark) == image.width - quiet - 1


@pytest.mark.parametrize("mask", range(8))
@pytest.mark.parametrize("level", "LMQH")
def test_level_and_mask_are_read_from_the_format_information_as_encoded(level, mask):
    matrix = encode(TEXT, Candidate(0, level, mask))
    assert matrix.level_and_mask == (level, mask)


def test_the_candidates_come_in_the_documented_order():
    first = list(itertools.islice(candidate_order("Q"), 20))
    assert first[0] == Candidate(0, "Q", None)
    assert first[1:9] == [Candidate(0, "Q", mask) for mask in range(8)]
    assert first[9] == Candidate(0, "H", None)
    assert first[18] == Candidate(1, "Q", None)
    assert len(list(candidate_order("L"))) == 3 * 4 * 9


def test_a_larger_candidate_is_exactly_that_many_versions_larger():
    versions = [encode(TEXT, Candidate(larger, "M", None)).version for larger in (0, 1, 2)]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]


def test_a_first_try_that_a_decoder_misses_makes_room_for_the_next_and_both_are_recorded():
    symbol = _prove(decoders=(Zxing(), Picky(misses=2)))
    assert symbol.taken.number == 3
    assert symbol.taken.candidate == Candidate(0, "M", 1)
    assert symbol.matrix.level_and_mask == ("M", 1)
    assert [trial.number for trial in symbol.missed] == [1, 2]
    assert symbol.missed[0].verdicts == (("zxing", DecodeVerdict.READ), ("picky", DecodeVerdict.MISSED))
    assert symbol.taken.verdicts == (("zxing", DecodeVerdict.READ), ("picky", DecodeVerdict.READ))


def test_after_all_masks_comes_the_next_level_and_then_the_next_version():
    next_level = _prove(decoders=(Picky(misses=9),))
    assert next_level.matrix.level_and_mask[0] == "Q"
    next_version = _prove(decoders=(Picky(misses=27),), size_mm=60)
    assert next_version.taken.candidate == Candidate(1, "M", None)


@pytest.mark.parametrize("answers", [(b"something else",), (TEXT.encode(), b"and more"), (TEXT.encode() + b"\n",)])
def test_a_code_that_reads_as_anything_else_is_never_taken(answers):
    with pytest.raises(UnreadableLabel, match=r"liar.*--size-mm"):
        _prove(decoders=(Liar(answers),))


def test_candidates_too_large_for_the_label_are_never_drawn():
    picky = Picky(misses=1000)
    with pytest.raises(UnreadableLabel):
        _prove(size_mm=8.4, decoders=(picky,))
    assert picky.seen
    assert max(image.width for image in picky.seen) <= 8.4 / 25.4 * 300


def test_without_a_decoder_nothing_is_proven():
    with pytest.raises(LabelError, match="no decoder"):
        _prove(decoders=())


def test_a_text_too_long_for_any_code_is_refused_with_its_size():
    with pytest.raises(LabelError, match=r"3000 bytes .*level M.*shorten"):
        _prove("x" * 3000, size_mm=200)


def test_a_label_too_small_for_its_text_is_refused_with_sizes_that_fit():
    with pytest.raises(LabelError, match=r"--size-mm 8\.3 or --dpi 600 would fit"):
        _prove(size_mm=5)
    assert _prove(size_mm=8.3).dots_per_module == 2
    assert _prove(size_mm=5, dpi=600).dots_per_module == 2


@pytest.mark.parametrize(
    ("size_mm", "dpi"), [(0, 300), (-3, 300), (float("nan"), 300), (2000, 300), (25, 0), (25, 9999)]
)
def test_impossible_sizes_and_resolutions_are_refused(size_mm, dpi):
    with pytest.raises(LabelError, match="give"):
        PrintSize(size_mm, dpi)


def test_a_module_is_the_largest_whole_number_of_dots_that_fits():
    size = PrintSize(25.4, 300)
    assert size.dots_per_module(50) == 6
    assert size.dots_per_module(51) == 5
    assert size.to_mm(6) == pytest.approx(0.508)


def test_a_missing_code_a_wrong_one_and_a_right_one_are_told_apart():
    png = _prove().png
    panel_ = (Zxing(), Picky(misses=1), Liar((b"x",)))
    assert [verdict for _, verdict in judge(png, TEXT, panel_)] == [
        DecodeVerdict.READ,
        DecodeVerdict.MISSED,
        DecodeVerdict.DIFFERENT,
    ]


def test_the_drawing_is_read_back_pixel_for_pixel_as_pillow_reads_it():
    for dots in (2, 3, 6):
        png = _prove(size_mm=8.4 / 2 * dots).png
        assert read_drawing(png) == load_picture(png)


@pytest.mark.parametrize("at", [0, 20, 60, 300, -20])
def test_a_drawing_with_one_changed_byte_is_never_taken_for_read(at):
    png = bytearray(_prove().png)
    png[at] ^= 4
    with pytest.raises(LabelError, match="drawn picture"):
        judge(bytes(png), TEXT, PANEL)


def test_every_decoder_of_the_tests_is_here_and_reads_any_text_byte_for_byte():
    require_program("zbarimg", "zbar-tools")
    assert [decoder.name for decoder in panel()] == ["zxing", "zbar", "opencv"]
    text = "zwölf Käse, 器械, \N{GRINNING FACE}"
    assert [verdict for _, verdict in _prove(text, decoders=panel()).taken.verdicts] == [DecodeVerdict.READ] * 3


def test_opencv_says_the_same_about_a_picture_however_often_it_is_asked():
    opencv = OpenCv()
    image = read_drawing(_prove().png)
    assert {opencv.read(image) for _ in range(4)} == {(TEXT.encode(),)}
    assert opencv.read(GrayImage(40, 40, b"\xff" * 1600)) == ()
    assert opencv.read(GrayImage(1, 1, b"\0")) == ()


def test_a_panel_by_name_is_exactly_those_in_the_fixed_order():
    assert [decoder.name for decoder in panel(["zxing"])] == ["zxing"]
    with pytest.raises(LabelError, match=r"boofcv asked for; give one or more of zxing, zbar, opencv"):
        panel(["zxing", "boofcv"])
    with pytest.raises(LabelError, match="none asked for"):
        panel([])


def test_a_decoder_asked_for_but_not_installed_is_an_error_with_the_fix(monkeypatch):
    monkeypatch.setattr(decoders.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(decoders.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabelError, match=r"zbar: .*libzbar0.*opencv: pip install '\.\[opencv\]'"):
        panel(["zxing", "zbar", "opencv"])
    assert [decoder.name for decoder in panel()] == ["zxing"]


def test_one_decoder_alone_is_said_and_two_are_not():
    assert lone_decoder_warning(["zxing", "zbar"]) is None
    assert "proven by one decoder alone, zxing" in (lone_decoder_warning(["zxing"]) or "")


@pytest.mark.parametrize("text", ["H4JM4CXixP9JgZUrN-BS5EI.bkvü", "12345678ü", "GERÄT-000001", "器械" * 40])
def test_text_beyond_ascii_is_one_run_of_bytes_that_opencv_reads_too(text):
    # zxing-cpp's own encoding of these has an ECI mark and changes modes; OpenCV reads no candidate of that.
    symbol = _prove(text, size_mm=40, decoders=panel())
    assert symbol.taken.candidate.larger_by == 0
    assert symbol.matrix == encode(text, symbol.taken.candidate)


def test_text_beyond_ascii_that_no_version_holds_is_refused_as_any_other():
    with pytest.raises(LabelError, match=r"3000 bytes .*level M.*shorten"):
        _prove("ü" * 1500, size_mm=200)
    assert encode("ü" * 1480, Candidate(1, "L", 0)) is None
    assert encode("ü", Candidate(2, "L", 0)).version == 3
