"""Codes in the terminal, and codes with colours, shapes and a logo."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.labels.cli import labels_command
from simulator.labels.errors import LabelError, UnreadableLabel
from simulator.labels.symbol.decoders import ColourImage, GrayImage, Zxing, panel
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.symbol.proving import DecodeVerdict
from simulator.labels.symbol.styled import SHAPES, Style, prove_styled, prove_terminal

TEXT = "https://example.test/onboard"
PANEL = panel()


def _logo(folder, *, colour="#e8541a", transparent=False):
    path = folder / "logo.png"
    picture = Image.new("RGBA", (90, 60), (0, 0, 0, 0)) if transparent else Image.new("RGB", (90, 60), colour)
    picture.save(path)
    return path


def _style(**given):
    return prove_styled(TEXT, style=Style(**{"dots_per_module": 6, **given}), level="M", panel=PANEL)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_shape_is_read_in_grey_and_in_colour(shape, tmp_path):
    drawing = _style(shape=shape, dark="#0a2a5e", light="#fdf6e3")
    assert {name for name, _ in drawing.taken.verdicts} >= {"zxing", "zxing colour"}
    assert all(verdict is DecodeVerdict.READ for _, verdict in drawing.taken.verdicts)
    (tmp_path / "code.png").write_bytes(drawing.data)
    assert Zxing().read(load_picture(tmp_path / "code.png")) == (TEXT.encode(),)


@pytest.mark.parametrize("transparent", [False, True])
def test_a_logo_stands_in_the_middle_of_a_code_of_level_h(tmp_path, transparent):
    drawing = _style(logo=_logo(tmp_path, transparent=transparent), logo_share=0.25)
    assert drawing.matrix.level_and_mask[0] == "H"
    (tmp_path / "code.png").write_bytes(drawing.data)
    with Image.open(tmp_path / "code.png") as opened:
        middle = opened.convert("RGB").getpixel((opened.width // 2, opened.height // 2))
    assert transparent or middle == (0xE8, 0x54, 0x1A)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dark": "#777777", "light": "#999999"}, r"contrast is too low: .* is 13%, at least 40%"),
        ({"dark": "#ffffff", "light": "#000000"}, "not darker than the light one"),
        ({"dark": "red"}, "six hexadecimal digits"),
        ({"shape": "heart"}, "there is square"),
        ({"dots_per_module": 1}, "give 4 to 100"),
    ],
)
def test_a_style_that_cannot_read_is_refused_with_the_reason(given, words):
    with pytest.raises(LabelError, match=words):
        Style(**given)


def test_a_logo_too_large_or_no_picture_is_refused_with_the_reason(tmp_path):
    with pytest.raises(LabelError, match=r"logo of 50% of the edge is too large"):
        Style(logo=_logo(tmp_path), logo_share=0.5)
    (tmp_path / "text.png").write_text("no picture")
    for name, words in (("text.png", "not a picture"), ("nowhere.png", "No such file")):
        with pytest.raises(LabelError, match=words):
            _style(logo=tmp_path / name)


def test_a_drawing_that_a_decoder_misses_makes_room_for_the_next_and_is_at_last_refused():
    class _OnlyColour:
        name = "only-colour"

        def __init__(self, misses):
            self.misses = misses

        def read(self, image: GrayImage):
            return Zxing().read(image)

        def read_colour(self, image: ColourImage):
            self.misses -= 1
            return () if self.misses >= 0 else Zxing().read_colour(image)

    drawing = prove_styled(TEXT, style=Style(dots_per_module=4), level="M", panel=(_OnlyColour(2),))
    assert (drawing.taken.number, len(drawing.missed)) == (3, 2)
    with pytest.raises(UnreadableLabel, match=r"only-colour colour missed .*smaller logo"):
        prove_styled(TEXT, style=Style(dots_per_module=4), level="H", panel=(_OnlyColour(999),))


@pytest.mark.parametrize("invert", [False, True])
def test_half_blocks_in_a_terminal_are_proven_and_inverted_ones_are_their_negative(invert):
    lines = prove_terminal(TEXT, invert=invert, level="M", panel=PANEL).data.decode().splitlines()
    assert set("".join(lines)) <= set(" \xa0▀▄█")
    corner = lines[0][0]
    assert corner == ("█" if not invert else "\xa0") or (invert and corner == " ")


def test_a_text_too_long_is_refused():
    with pytest.raises(LabelError, match="more than one QR code holds"):
        prove_terminal("x" * 3000, invert=False, level="M", panel=PANEL)


def _run(*arguments):
    return CliRunner().invoke(labels_command, [str(argument) for argument in arguments])


def test_the_commands_draw_a_text_or_a_device_label(tmp_path):
    shown = _run("show", "--product-id", "p", "--identifier", "SIM-1", "--decoders", "zxing")
    assert shown.exit_code == 0
    assert "█" in shown.stdout
    assert "proven by one decoder alone" in shown.stderr
    styled = _run("style", TEXT, "--dark", "#c00000", "--out", tmp_path / "code.png", "--json")
    assert json.loads(styled.stdout)["verdicts"]["zxing colour"] == "read"
    assert "lights with red" not in styled.stderr
    red = _run("style", TEXT, "--dark", "#f00000", "--out", tmp_path / "code.png")
    assert "scanner that lights with red" in red.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show",), 2, "give TEXT, or both"),
        (("show", "x", "--product-id", "p"), 2, "give TEXT, or both"),
        (("show", "x", "--decoders", "eye"), 2, "eye asked for"),
        (("style", "x", "--out", "/nowhere/x.png"), 2, "give another --out"),
        (("style", "x", "--out", "x.png", "--dark", "#eeeeee"), 2, "contrast is too low"),
    ],
)
def test_wrong_use_is_one_line(arguments, code, words):
    result = _run(*arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.output
