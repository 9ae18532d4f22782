"""Pictures that are none, or larger than they look: over HTTP to a service, and by the command.

A photograph comes from anywhere. It must start no program, and cost no more memory than a large photograph does.
"""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import zlib
from pathlib import Path

import httpx
import pytest
from PIL import Image

from simulator.labels.payload import label_text
from tests.support.label_pictures import as_bytes, photograph

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "simulator.cli")
MEMORY_KB = 1_200_000
POSTSCRIPT = b"%!PS\n%%BoundingBox: 0 0 100 100\n(/tmp) (r) file pop showpage\n"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n"
DOS_EPS = b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 32, len(EPS)) + bytes(20) + EPS


def _png(width: int, height: int, colour: int = 0, channels: int = 1) -> bytes:
    """A picture of one colour: some kilobytes, whatever its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pack = zlib.compressobj(9)
    lines = [pack.compress(bytes(1 + width * channels)) for _ in range(height)]
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", b"".join(lines) + pack.flush()) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _saved(size: tuple[int, int], kind: str, mode: str = "L", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


def _second_page_is_large() -> bytes:
    buffer = io.BytesIO()
    pages = [Image.new("1", (100, 100)), Image.new("1", (9000, 9000))]
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:], compression="group4")
    return buffer.getvalue()


def _pdf(media_box: str, crop_box: str = "") -> bytes:
    """A PDF of one empty page."""
    page = f"<</Type/Page/Parent 2 0 R/MediaBox[{media_box}]{f'/CropBox[{crop_box}]' if crop_box else ''}>>"
    objects = ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>", page]
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj{text}endobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF"
    return body + f"xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode()


NO_PICTURES = {"postscript": POSTSCRIPT, "eps": EPS, "eps of dos": DOS_EPS}
TOO_LARGE = {
    "png": _png(9000, 9000),
    "png in colour": _png(7500, 7500, colour=6, channels=4),
    "gif": _saved((9000, 9000), "GIF"),
    "tiff": _saved((9000, 9000), "TIFF", compression="tiff_deflate"),
    "webp": _saved((12_000, 12_000), "WEBP", "RGBA", lossless=True, quality=0, method=0),
    "bmp": _saved((9000, 6000), "BMP")[:100] + bytes(100),
}
AS_LARGE_AS_MAY_BE = {
    "webp": _saved((7000, 7000), "WEBP", "RGBA", lossless=True, quality=0, method=0),
    "tiff of 32 bits": _saved((7000, 7000), "TIFF", "F", compression="tiff_deflate"),
}


@pytest.fixture(name="environment")
def _environment(tmp_path):
    """An environment whose Ghostscript notes that it was started."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("gs", "gswin64c"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ghostscript-was-started\ncat >/dev/null\n")
        (programs / name).chmod(0o755)
    yield {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    assert not (tmp_path / "ghostscript-was-started").exists()


def _peak_kb(pid: int) -> int:
    """The most memory that a running process, or one of its children, has had; 0 for one that ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return max([*own, *(_peak_kb(int(child)) for child in children)], default=0)


def test_a_service_refuses_what_is_no_picture_or_too_large_and_reads_what_is_one(environment, tmp_path):
    command = [*PROGRAM, "up", "--port", "0", "--no-gateway", "--json"]
    service = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    try:
        told = json.loads(service.stdout.readline())
        with httpx.Client(base_url=told["base_url"], trust_env=False, timeout=120) as http:

            def decode(picture: bytes) -> httpx.Response:
                kind = {"content-type": "application/octet-stream"}
                return http.post("/_emulator/labels/read", content=picture, headers=kind)

            for name, picture in NO_PICTURES.items():
                answer = decode(picture)
                assert (answer.status_code, answer.json()["error"]) == (400, "not_a_picture"), name
            for name, picture in TOO_LARGE.items():
                answer = decode(picture)
                assert (answer.status_code, answer.json()["error"]) == (400, "too_many_pixels"), name
            for name, picture in AS_LARGE_AS_MAY_BE.items():
                answer = decode(picture)
                assert (answer.status_code, answer.json()["codes"]) == (200, []), (name, answer.text)
            answer = decode(as_bytes(photograph([label_text("p-1", "SIM-1")]), "JPEG"))
            assert answer.json()["codes"] == [label_text("p-1", "SIM-1")]
            assert 0 < _peak_kb(service.pid) < MEMORY_KB
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=60)


def _verify(environment, *paths: Path) -> tuple[dict, int]:
    command = [*PROGRAM, "labels", "verify", "--json", *map(str, paths)]
    peak_kb = 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            peak_kb = max(peak_kb, _peak_kb(process.pid))
            time.sleep(0.01)
        assert process.returncode == 1
        said.seek(0)
        return json.loads(said.read()), peak_kb


def test_the_command_refuses_what_is_no_picture_or_too_large(environment, tmp_path):
    refused = {**NO_PICTURES, **TOO_LARGE, "two pages": _second_page_is_large()}
    paths = [tmp_path / f"{name}.jpg" for name in refused]
    for path, picture in zip(paths, refused.values(), strict=True):
        path.write_bytes(picture)
    report, peak_kb = _verify(environment, *paths)
    told = {problem.partition(".jpg: ")[0].rpartition("/")[2]: problem for problem in report["problems"]}
    assert set(told) == set(refused)
    assert all("not a whole picture" in told[name] for name in NO_PICTURES)
    assert all("more than 50 million pixels" in told[name] for name in [*TOO_LARGE, "two pages"])
    assert peak_kb < MEMORY_KB


@pytest.mark.parametrize(
    ("pages", "is_drawn"),
    [
        (_pdf("0 0 14400 14400"), True),
        (_pdf("0 0 2000000 2000000"), False),
        (_pdf("0 0 14400 14400", "0 0 10 10"), True),
    ],
    ids=["large page", "giant page", "giant page around a small crop box"],
)
def test_a_document_with_a_giant_page_costs_no_more_than_a_picture(environment, tmp_path, pages, is_drawn):
    (tmp_path / "giant.pdf").write_bytes(pages)
    report, peak_kb = _verify(environment, tmp_path / "giant.pdf")
    assert report["pages"] == int(is_drawn)
    assert bool(report["problems"]) != is_drawn
    assert peak_kb < MEMORY_KB


ENDLESS = """
    import os, sys, time
    os.set_inheritable(1, True)
    sys.stdout.buffer.write(b"3\\n")
    sys.stdout.flush()
    time.sleep(1000)
"""


def test_a_document_that_is_not_drawn_in_time_ends_the_process_that_draws_it(tmp_path, monkeypatch):
    from simulator.labels import pages
    from simulator.labels.errors import LabelError

    started = []

    class Endless(subprocess.Popen):
        def __init__(self, _command, **options):
            super().__init__([sys.executable, "-c", textwrap.dedent(ENDLESS)], **options)
            started.append(self)

    monkeypatch.setattr(pages.subprocess, "Popen", Endless)
    monkeypatch.setattr(pages, "_PAGE_TIMEOUT_S", 0.5)
    (tmp_path / "endless.pdf").write_bytes(_pdf("0 0 100 100"))
    with pytest.raises(LabelError, match=r"not drawn within 0.5 s"):
        list(pages.open_pages(tmp_path / "endless.pdf", dpi=300))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_pictures_are_opened_in_one_place_only():
    """Pillow's own choice of formats includes those that start programs."""
    found = []
    for package in ("agent", "gateway", "simulator"):
        for module in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr == "open"
                    and ast.unparse(node.value).endswith("Image")
                ):
                    found.append(module.relative_to(ROOT).as_posix())
                if isinstance(node, ast.ImportFrom) and node.module == "PIL.Image":
                    found.append(module.relative_to(ROOT).as_posix())
    assert found == ["simulator/labels/pictures.py"]
