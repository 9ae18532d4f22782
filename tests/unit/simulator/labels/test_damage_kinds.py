"""Every kind of damage keeps the four rules of simulator.labels.damage, and does what its name says."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.labels.damage import kinds
from simulator.labels.damage.chance import BELL_DEVIATION, PortableRandom
from simulator.labels.damage.kind import REGISTERED, damage_kind
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import PIXELS_PER_MODULE, draw_label, find_code, load_labels
from simulator.labels.damage.measuring import damage
from simulator.labels.damage.pixels import bell_weights, blur, shrink, spread_dark, warp
from simulator.labels.damage.verdict import PictureVerdict, judge
from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import Zxing, panel
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.symbol.png import draw_png
from tests.conftest import do_without

ROOT = Path(__file__).resolve().parents[4]
TEXT = '{"v":1,"product_id":"press-7","device_identifier":"SIM-000001"}'
MATRIX = encode(TEXT, Candidate(0, "M", None))
LABEL = draw_label("SIM-000001", TEXT, MATRIX)
SEVERITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
# By which measure of the picture itself a kind's damage is at least as large at each worse severity.
GROWING = ("blur", "contrast", "glare", "uneven_light", "scratches", "stains", "dirt", "partial_print", "dead_dots")


def _apply(kind, severity, seed=1, label=LABEL):
    return damage(label, KINDS[kind], severity, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_severity_of_a_kind_is_another_picture_and_the_same_each_time(kind):
    pictures = [_apply(kind, severity) for severity in SEVERITIES]
    assert all(picture.dtype == np.uint8 and picture.ndim == 2 for picture in pictures)
    assert len({(picture.shape, picture.tobytes()) for picture in [LABEL.pixels, *pictures]}) == 1 + len(SEVERITIES)
    for severity, picture in zip(SEVERITIES, pictures, strict=True):
        assert np.array_equal(_apply(kind, severity), picture)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_never_writes_into_the_label(kind):
    label = dataclasses.replace(LABEL, pixels=LABEL.pixels.copy())
    label.pixels.setflags(write=False)
    _apply(kind, 0.7, label=label)
    assert np.array_equal(label.pixels, LABEL.pixels)


@pytest.mark.parametrize("kind", KINDS)
def test_the_measure_of_a_kind_rises_with_its_severity(kind):
    measures = [KINDS[kind].measure(step / 20) for step in range(21)]
    assert all(after > before for before, after in itertools.pairwise(measures))
    assert KINDS[kind].unit
    assert KINDS[kind].what


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_stands_in_the_documents_with_its_measure(kind):
    page = (ROOT / "docs" / "label-damage.md").read_text(encoding="utf-8")
    assert f"| `{kind}` | {KINDS[kind].what} | {KINDS[kind].measure(1):g} {KINDS[kind].unit} |" in page


@pytest.mark.parametrize("kind", GROWING)
def test_a_worse_severity_differs_more_from_the_clean_label(kind):
    clean = LABEL.pixels.astype(int)
    differences = [np.abs(_apply(kind, severity).astype(int) - clean).mean() for severity in (0.0, *SEVERITIES)]
    assert differences == sorted(differences)
    assert differences[-1] > differences[1] > 0


@pytest.mark.parametrize("kind", ["scratches", "stains", "dirt", "dead_dots", "glare", "noise"])
def test_another_seed_damages_elsewhere(kind):
    assert not np.array_equal(_apply(kind, 0.6, seed=1), _apply(kind, 0.6, seed=2))


@pytest.mark.parametrize("kind", ["scratches", "dirt", "dead_dots", "partial_print"])
def test_what_is_damaged_at_a_severity_is_damaged_at_every_worse_one(kind):
    """Severity is a path: a scratch grows, it does not move."""
    changed = [_apply(kind, severity) != LABEL.pixels for severity in SEVERITIES]
    for mild, worse in itertools.pairwise(changed):
        assert not (mild & ~worse).any()


def test_a_new_kind_of_damage_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "weather.py").write_text(
        "from simulator.labels.damage.kind import damage_kind\n"
        "@damage_kind('out in the rain', unit='days', measure=lambda severity: 7 * severity)\n"
        "def rain(label, severity, chance):\n"
        "    return label.pixels // 2\n"
    )
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    try:
        kinds.import_all()
        assert (KINDS["rain"].what, KINDS["rain"].unit, KINDS["rain"].measure(1)) == ("out in the rain", "days", 7)
        assert np.array_equal(_apply("rain", 0.5), LABEL.pixels // 2)
    finally:
        REGISTERED.pop("rain", None)
        sys.modules.pop("simulator.labels.damage.kinds.weather", None)


def test_two_kinds_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two kinds of damage are called blur"):
        damage_kind("again", unit="", measure=float)(KINDS["blur"].apply)


def test_severity_0_is_the_label_itself():
    assert all(np.array_equal(_apply(kind, 0.0), LABEL.pixels) for kind in KINDS)


def test_there_are_at_least_16_kinds_and_most_of_them_cost_every_decoder_a_standard_label():
    readers = panel()
    lost = {kind for kind in KINDS if not any(verdict.legible for verdict in judge(_apply(kind, 1.0), TEXT, readers))}
    assert len(KINDS) >= 16
    assert len(lost) >= 16
    assert "rotation" not in lost


def test_inverted_mirrored_and_several_codes_are_what_they_say():
    readers = [Zxing()]
    assert judge(_apply("inverted", 0.1), TEXT, readers) == (PictureVerdict.READ,)
    mirrored = _apply("mirrored", 0.02)
    assert judge(mirrored, TEXT, readers) == (PictureVerdict.READ,)
    assert (np.abs(mirrored[:, ::-1].astype(int) - LABEL.pixels) < 20).all()
    several = _apply("several_codes", 0.2)
    assert judge(several, TEXT, readers) == (PictureVerdict.SEVERAL,)
    assert len(set(Zxing().read(several))) == 4


def test_a_decoder_that_reads_something_else_misreads():
    class Other:
        name = "other"

        def read(self, pixels):
            return ("something else",)

    assert judge(LABEL.pixels, TEXT, [Other()]) == (PictureVerdict.MISREAD,)


# --- labels as they come ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dots", [2, 3, 6, 7, 12, 25])
def test_a_label_of_any_resolution_is_brought_near_one_and_still_reads(tmp_path, dots):
    path = tmp_path / "label.png"
    path.write_bytes(draw_png(MATRIX, dots_per_module=dots, dpi=300))
    label = find_code(load_picture(path), name="label", text=TEXT)
    assert label.modules == MATRIX.modules
    assert PIXELS_PER_MODULE <= label.module_px < 2 * PIXELS_PER_MODULE
    assert label.pixels.shape[0] == pytest.approx(label.module_px * (MATRIX.modules + 8), abs=2)
    assert label.left == label.top == pytest.approx(4 * label.module_px, abs=1)
    assert judge(label.pixels, TEXT, panel()) == (PictureVerdict.READ,) * len(panel())


def test_a_label_without_a_quiet_zone_gets_one():
    pixels = LABEL.pixels[LABEL.top : LABEL.top + LABEL.edge, LABEL.left : LABEL.left + LABEL.edge]
    label = find_code(np.ascontiguousarray(pixels), name="a", text=TEXT)
    assert np.array_equal(label.pixels, LABEL.pixels)


@pytest.mark.parametrize("kind", ["rotation", "stains", "several_codes"])
def test_damage_begins_with_a_clean_upright_label(kind):
    with pytest.raises(LabelError, match="labels make"):
        find_code(_apply(kind, 0.5), name="a", text=TEXT)


def test_two_labels_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.png").write_bytes(draw_png(MATRIX, dots_per_module=4, dpi=300))
    with pytest.raises(LabelError, match="same"):
        load_labels([tmp_path / "a", tmp_path / "b"])


# --- the arithmetic ---------------------------------------------------------------------------------------------


def test_chance_gives_the_same_numbers_on_every_machine():
    """Raw bits of PCG64, which numpy promises for good; these are from numpy 2.4."""
    assert PortableRandom(1, "noise", "a").between(0, 1) == 0.7255194776095627
    assert PortableRandom("seed").field(1, 4).tolist() == [[23116, 50595, 22399, 2614]]


def test_bell_noise_has_the_deviation_that_it_says():
    bell = PortableRandom("bell").bell(200, 200)
    assert bell.std() == pytest.approx(BELL_DEVIATION, rel=0.02)
    assert abs(bell.mean()) < 0.02 * BELL_DEVIATION


@pytest.mark.parametrize("deviation", [0.01, 0.3, 1.0, 7.5])
def test_the_weights_of_a_blur_add_up_to_one_and_keep_a_grey_as_it_is(deviation):
    assert sum(bell_weights(deviation)) == 65536
    grey = np.full((9, 9), 137, np.uint8)
    assert np.array_equal(blur(grey, deviation), grey)


def test_a_warp_by_nothing_changes_nothing_and_by_half_a_pixel_takes_the_mean():
    ys, xs = np.mgrid[0:4, 0:4].astype(float)
    picture = (np.arange(16, dtype=np.uint8) * 10).reshape(4, 4)
    assert np.array_equal(warp(picture, xs, ys), picture)
    assert warp(picture, xs + 0.5, ys)[0].tolist() == [5, 15, 25, (30 + 255) // 2 + 1]


def test_a_larger_pixel_is_the_mean_of_what_it_covers():
    picture = np.array([[0, 100], [200, 100]], np.uint8)
    assert shrink(picture, 2).tolist() == [[100]]
    assert shrink(picture, 1).tolist() == picture.tolist()
    # Begun half a large pixel early: half of the first one is white paper.
    assert shrink(np.zeros((2, 2), np.uint8), 2, (0.5, 0.0)).tolist() == [[128, 128]]


def test_ink_spreads_by_parts_of_a_pixel():
    picture = np.full((1, 5), 255, np.uint8)
    picture[0, 2] = 0
    assert spread_dark(picture, 1.0).tolist() == [[255, 0, 0, 0, 255]]
    assert spread_dark(picture, 0.5).tolist() == [[255, 128, 0, 128, 255]]


@pytest.mark.parametrize("name", ["zxing", "zbar"])
def test_what_a_decoder_says_about_a_picture_does_not_depend_on_those_before_it(name):
    """zbar's scanner draws random numbers, and used to go on in their sequence from picture to picture."""
    readers = [decoder for decoder in panel() if decoder.name == name]
    if not readers:
        do_without(f"the decoder {name} is missing: apt-get install libzbar0", "add it to PACKAGES in .ci/run")
    pictures = [_apply("motion_blur", 0.2 + step / 50) for step in range(12)]
    first = [judge(picture, TEXT, readers) for picture in pictures]
    assert [judge(picture, TEXT, readers) for picture in pictures] == first
    assert [judge(picture, TEXT, readers) for picture in reversed(pictures)] == first[::-1]
