"""Tests for what is read out of photographs."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
import zxingcpp
from PIL import Image

from simulator.console.labels.decoding import decode_picture
from simulator.console.labels.photograph import open_photograph
from simulator.labels.payload import label_text
from simulator.labels.pictures import PictureError
from tests.label_pictures import as_bytes, draw_code, photograph

TEXTS = tuple(label_text("p-1", f"SIM-00000{number}") for number in range(1, 6))


def decode(data: bytes, *, quick: bool = False) -> dict[str, object]:
    return decode_picture(data, quick=quick, patience_s=30)


def texts(found: dict[str, object]) -> list[str]:
    return [code["text"] for code in found["codes"]]  # type: ignore[attr-defined, index]


def test_a_label_says_its_product_its_identifier_and_who_reads_it() -> None:
    found = decode(as_bytes(photograph(TEXTS[:1]), "JPEG"))

    assert texts(found) == [TEXTS[0]]
    code = found["codes"][0]  # type: ignore[index]
    assert code["label"] == {
        "product_id": "p-1",
        "device_identifier": "SIM-000001",
        "profile": "json",
        "host": None,
        "signed": False,
    }
    assert code["problem"] is None
    assert found["advice"] is None


def test_five_labels_come_in_the_order_of_reading() -> None:
    found = decode(as_bytes(photograph(TEXTS), "PNG"))

    assert texts(found) == list(TEXTS)
    assert found["unread"] == []


def test_a_picture_that_its_exif_turns_is_read_upright_and_its_corners_lie_in_it() -> None:
    picture = photograph(TEXTS[:2])
    turned = picture.rotate(90, expand=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer turns it by 90 degrees clockwise
    buffer = io.BytesIO()
    turned.save(buffer, "JPEG", exif=exif, quality=95)

    found = decode(buffer.getvalue())

    assert found["picture"] == {"format": "JPEG", "width": picture.width, "height": picture.height}
    assert texts(found) == list(TEXTS[:2])
    assert all(
        0 <= x <= picture.width and 0 <= y <= picture.height
        for code in found["codes"]  # type: ignore[attr-defined]
        for x, y in code["corners"]
    )


def test_the_corners_of_a_large_photograph_are_in_its_own_pixels() -> None:
    large = Image.new("L", (5200, 5200), 200)
    large.paste(draw_code(TEXTS[0], 20), (3000, 3500))

    found = decode(as_bytes(large, "JPEG"))

    (corner, *_) = found["codes"][0]["corners"]  # type: ignore[index]
    assert corner == pytest.approx([3080, 3580], abs=40)
    assert found["picture"] == {"format": "JPEG", "width": 5200, "height": 5200}


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_usual_formats_are_read(kind: str) -> None:
    assert texts(decode(as_bytes(photograph(TEXTS[:1]), kind))) == [TEXTS[0]]


def test_what_is_transparent_counts_as_white() -> None:
    code = draw_code(TEXTS[0], 8)
    clear = Image.new("RGBA", code.size, (0, 0, 0, 0))
    clear.paste((0, 0, 0, 255), mask=code.point(lambda value: 255 - value))

    assert texts(decode(as_bytes(clear, "PNG"))) == [TEXTS[0]]


def test_sixteen_bits_per_pixel_are_read() -> None:
    deep = draw_code(TEXTS[0], 8).convert("I").point(lambda value: value * 200)

    assert texts(decode(as_bytes(deep.convert("I;16"), "PNG"))) == [TEXTS[0]]


def test_a_code_that_is_no_label_says_why() -> None:
    found = decode(as_bytes(photograph(["https://www.example.com/"]), "PNG"))

    (code,) = found["codes"]  # type: ignore[misc]
    assert code["label"] is None
    assert code["problem"]["reason"] == "not_a_link"
    assert code["text"] == "https://www.example.com/"


def test_a_picture_without_a_code_comes_with_what_to_do() -> None:
    found = decode(as_bytes(Image.new("L", (400, 300), 120), "PNG"))

    assert found["codes"] == []
    assert "no QR code in this picture" in str(found["advice"])


def test_another_symbol_is_named() -> None:
    barcode = zxingcpp.create_barcode("4006381333931", zxingcpp.BarcodeFormat.DataMatrix)
    drawn = Image.fromarray(zxingcpp.write_barcode_to_image(barcode, scale=8))

    assert "but DataMatrix: device labels are QR codes" in str(decode(as_bytes(drawn, "PNG"))["advice"])


def test_a_frame_of_a_camera_without_a_code_gets_no_advice() -> None:
    assert decode(as_bytes(Image.new("L", (400, 300), 120), "JPEG"), quick=True)["advice"] is None


def test_a_code_that_nobody_reads_has_a_place_and_advice() -> None:
    code = draw_code(TEXTS[0], 8)
    code.paste(128, (90, 90, code.width - 90, code.height - 90))

    found = decode(as_bytes(code, "PNG"))

    assert found["codes"] == []
    if found["unread"]:
        assert "nearer and sharper" in str(found["advice"])
    else:
        assert "no QR code" in str(found["advice"])


def png_of(width: int, height: int) -> bytes:
    """A PNG whose head says this size, with next to nothing behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(8_001, 8_000), (50_000, 50_000), (1_000_000, 1_000_000)])
def test_a_picture_with_too_many_pixels_is_refused_by_its_head(width: int, height: int) -> None:
    with pytest.raises(PictureError, match="50 million pixels; scale") as refused:
        open_photograph(png_of(width, height))
    assert refused.value.word == "too_many_pixels"


CUT = as_bytes(photograph(TEXTS[:1]), "JPEG")[:600]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty; send"),
        (b"hello", "not a whole picture"),
        (CUT, "not a whole picture"),
        (b"%PDF-1.7 ...", "a PDF document"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "save or share it as JPEG"),
        (png_of(100, 100), "not a whole picture"),
    ],
    ids=["empty", "text", "cut", "pdf", "heic", "png without pixels"],
)
def test_what_is_no_picture_says_what_to_send(data: bytes, words: str) -> None:
    with pytest.raises(PictureError, match=words) as refused:
        open_photograph(data)
    assert refused.value.word == "not_a_picture"
