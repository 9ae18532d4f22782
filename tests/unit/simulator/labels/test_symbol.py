from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.payload import label_text
from simulator.labels.symbol import decoders
from simulator.labels.symbol.decoders import Zxing, lone_decoder_warning, panel
from simulator.labels.symbol.encoding import Candidate
from simulator.labels.symbol.matrix import QUIET_MODULES
from simulator.labels.symbol.pictures import Pixels, load_picture
from simulator.labels.symbol.proving import DecodeVerdict, PrintSize, judge, prove

TEXT = label_text("0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11", "SIM-000001")
PANEL = panel()


@dataclass
class Picky:
    """A decoder that misses the first pictures it is shown, then reads as zxing does."""

    misses: int
    name: str = "picky"
    seen: list[Pixels] = field(default_factory=list)

    def read(self, image: Pixels) -> tuple[str, ...]:
        self.seen.append(image)
        return () if len(self.seen) <= self.misses else Zxing().read(image)


@dataclass(frozen=True)
class Liar:
    """A decoder that always reads the same."""

    answers: tuple[str, ...]
    name: str = "liar"

    def read(self, image: Pixels) -> tuple[str, ...]:
        return self.answers


def _prove(text=TEXT, *, size_mm=25.0, dpi=300, decoders=PANEL):
    return prove(text, size=PrintSize(size_mm, dpi), panel=decoders)


_identifiers = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80).filter(
    lambda text: text.isprintable() and text == text.strip()
)


@settings(max_examples=50)
@given(_identifiers, _identifiers, st.sampled_from([203, 300]))
def test_any_identifier_is_read_back_from_its_drawing(product_id, identifier, dpi):
    text = label_text(product_id, identifier)
    symbol = _prove(text, size_mm=40, dpi=dpi)
    image = load_picture(symbol.png)
    assert all(decoder.read(image) == (text,) for decoder in PANEL)
    assert image.shape[1] == symbol.matrix.modules_with_quiet_zone * symbol.dots_per_module
    assert symbol.edge_mm <= 40


def test_the_quiet_zone_is_white_on_all_sides():
    symbol = _prove()
    image = load_picture(symbol.png)
    quiet = QUIET_MODULES * symbol.dots_per_module
    rows, columns = (image == 0).nonzero()
    assert rows.min() == columns.min() == quiet
    assert rows.max() == columns.max() == image.shape[0] - quiet - 1


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


@pytest.mark.parametrize("answers", [("something else",), (TEXT, "and more"), (TEXT + "\n",)])
def test_a_code_that_reads_as_anything_else_is_never_taken(answers):
    with pytest.raises(UnreadableLabel, match=r"liar.*--size-mm"):
        _prove(decoders=(Liar(answers),))


def test_candidates_too_large_for_the_label_are_never_drawn():
    picky = Picky(misses=1000)
    with pytest.raises(UnreadableLabel):
        _prove(size_mm=8.4, decoders=(picky,))
    assert picky.seen
    assert max(image.shape[1] for image in picky.seen) <= 8.4 / 25.4 * 300


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
    panel_ = (Zxing(), Picky(misses=1), Liar(("x",)))
    assert [verdict for _, verdict in judge(png, TEXT, panel_)] == [
        DecodeVerdict.READ,
        DecodeVerdict.MISSED,
        DecodeVerdict.DIFFERENT,
    ]


def test_one_decoder_alone_is_said_and_two_are_not():
    assert lone_decoder_warning(("zxing", "zbar")) is None
    assert "proven by one decoder alone, zxing" in (lone_decoder_warning(("zxing",)) or "")


def test_text_beyond_ascii_that_no_version_holds_is_refused_as_any_other():
    with pytest.raises(LabelError, match=r"3000 bytes .*level M.*shorten"):
        _prove("ü" * 1500, size_mm=200)


def test_without_zbar_the_panel_is_zxing_alone(monkeypatch):
    monkeypatch.setattr(decoders.ctypes.util, "find_library", lambda name: None)
    assert [decoder.name for decoder in panel()] == ["zxing"]
