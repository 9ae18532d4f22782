from __future__ import annotations

import io
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from simulator.labels.symbol.matrix import QUIET_MODULES, Matrix
from simulator.labels.symbol.png import _compress, _match_lengths, draw_png


def _noise(modules: int, seed: int) -> Matrix:
    pick = random.Random(seed)
    return Matrix(tuple(bytes(pick.randrange(2) for _ in range(modules)) for _ in range(modules)))


@pytest.mark.parametrize("modules", [21, 41, 177])
@pytest.mark.parametrize("dots", [1, 2, 3, 7, 8, 13])
def test_pillow_sees_every_pixel_of_a_drawn_matrix_where_it_belongs(modules, dots):
    matrix = _noise(modules, modules * dots)
    picture = Image.open(io.BytesIO(draw_png(matrix, dots_per_module=dots, dpi=300)))
    picture.load()
    edge = (modules + 2 * QUIET_MODULES) * dots
    expected = Image.new("1", (edge, edge), 1)
    for x, y, run in matrix.dark_runs():
        left, top = (x + QUIET_MODULES) * dots, (y + QUIET_MODULES) * dots
        expected.paste(0, (left, top, left + run * dots, top + dots))
    assert picture.mode == "1"
    assert picture.tobytes() == expected.tobytes()


def test_the_picture_knows_its_resolution():
    picture = Image.open(io.BytesIO(draw_png(_noise(21, 1), dots_per_module=4, dpi=203)))
    assert picture.info["dpi"] == pytest.approx((203, 203), abs=0.02)


def test_a_label_picture_is_small():
    assert len(draw_png(_noise(41, 3), dots_per_module=10, dpi=600)) < 4000


def test_the_bytes_of_a_picture_never_change():
    # The checksum of the whole file: another zlib, Pillow or Python must not alter it.
    matrix = Matrix(tuple(bytes((x * y + x // 3) % 2 for x in range(21)) for y in range(21)))
    assert zlib.crc32(draw_png(matrix, dots_per_module=4, dpi=300)) == 0xCA95FD42


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=700), st.integers(1, 600)), min_size=1, max_size=6))
def test_what_was_compressed_is_what_zlib_reads(rows):
    stream = zlib.decompressobj()
    plain = stream.decompress(_compress(rows))
    assert plain == b"".join(row * times for row, times in rows)
    assert stream.eof
    assert not stream.unused_data


def test_a_row_beyond_the_window_of_deflate_is_still_written_right():
    row = random.Random(1).randbytes(40_000)
    assert zlib.decompress(_compress([(row, 3)])) == row * 3


@given(st.integers(0, 5000))
def test_matches_cover_a_run_exactly_and_keep_the_bounds_of_deflate(total):
    lengths = _match_lengths(total)
    assert sum(lengths) == (total if total >= 3 else 0)
    assert all(3 <= length <= 258 for length in lengths)
