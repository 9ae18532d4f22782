"""labels verify: what is there, missing, double, foreign or unread, in pictures made for it."""

from __future__ import annotations

import csv
import io
import json
import struct
import zlib

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.labels import make_labels
from simulator.labels.cli import labels_command
from simulator.labels.damage.kinds import KINDS
from simulator.labels.damage.label import draw_label
from simulator.labels.damage.measuring import damage
from simulator.labels.errors import LabelError
from simulator.labels.symbol.encoding import Candidate, encode
from simulator.labels.verify.expected import load_expected
from simulator.labels.verify.finding import CodeSearch
from simulator.labels.verify.pages import list_files, open_pages
from simulator.labels.verify.report import State
from simulator.labels.verify.verifying import verify_labels

COUNT = 5
PITCH = 240


@pytest.fixture(name="batch", scope="module")
def _batch(tmp_path_factory):
    return make_labels(product_id="p-1", count=COUNT, out=tmp_path_factory.mktemp("labels"), formats=["png"])


def _drawn(text, dots=4):
    return draw_label("a", text, encode(text, Candidate(0, "M", None)), module_px=dots)


def _sheet(texts, columns=3):
    """A white page with the codes of these texts row by row; None leaves a gap, pixels are pasted as they are."""
    rows = -(-len(texts) // columns)
    page = np.full((rows * PITCH + 40, columns * PITCH + 40), 255, np.uint8)
    for number, text in enumerate(texts):
        if text is None:
            continue
        code = text if isinstance(text, np.ndarray) else _drawn(text).pixels
        top, left = 20 + number // columns * PITCH, 20 + number % columns * PITCH
        page[top : top + code.shape[0], left : left + code.shape[1]] = code
    return page


def _save(page, path, **options):
    Image.fromarray(page).save(path, **options)
    return path


def _png_head(width, height):
    """A PNG file that says it has this size, and ends before its pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I4s", 0, b"IDAT") + struct.pack(">I", zlib.crc32(b"IDAT"))


def _states(report):
    return sorted((line.state.value, line.identifier) for line in report.lines if line.state is not State.READ)


def _texts(batch):
    return [label.text for label in batch.labels]


def test_a_sheet_with_every_label_is_good(batch, tmp_path):
    report = verify_labels([_save(_sheet(_texts(batch)), tmp_path / "a.png")], manifest=batch.manifest_json)
    assert report.good
    assert report.count(State.READ) == report.expected == COUNT
    assert [line.identifier for line in report.lines] == [label.identifier for label in batch.labels]


def test_what_is_missing_double_foreign_or_no_label_is_named(batch, tmp_path):
    texts = _texts(batch)
    other = texts[3].replace("SIM-000004", "SIM-900004")
    page = _sheet([texts[0], None, texts[2], texts[3], other, texts[0], "https://example.test/menu"])
    report = verify_labels([_save(page, tmp_path / "a.png")], manifest=batch.manifest_csv)
    assert not report.good
    assert _states(report) == [
        ("double", "SIM-000001"),
        ("double", "SIM-000001"),
        ("foreign", ""),
        ("foreign", "SIM-900004"),
        ("missing", "SIM-000002"),
        ("missing", "SIM-000005"),
    ]
    notes = {line.identifier: line.note for line in report.lines}
    assert notes["SIM-900004"] == "not in the manifest"
    assert "no device label" in notes[""]


def test_a_label_with_a_known_identifier_and_another_text_says_so(batch, tmp_path):
    forged = _texts(batch)[0].replace('"p-1"', '"p-2"')
    page = _sheet([*_texts(batch), forged])
    report = verify_labels([_save(page, tmp_path / "a.png")], manifest=batch.folder)
    (foreign,) = [line for line in report.lines if line.state is State.FOREIGN]
    assert (foreign.identifier, foreign.note) == ("SIM-000001", "this identifier, but another text")


def test_a_code_that_is_there_and_does_not_read_is_unread_in_its_place(batch, tmp_path):
    texts = _texts(batch)
    spoiled = damage(_drawn(texts[4]), KINDS["dead_dots"], 1.0, 3)
    page = _sheet([*texts[:4], spoiled])
    report = verify_labels([_save(page, tmp_path / "a.png")], manifest=batch.manifest_json)
    assert _states(report) == [("missing", "SIM-000005"), ("unread", "")]
    (unread,) = [line for line in report.lines if line.state is State.UNREAD]
    xs, ys = [x for x, _ in unread.corners], [y for _, y in unread.corners]
    assert 20 + PITCH < min(xs) < max(xs) < 20 + 2 * PITCH
    assert 20 + PITCH < min(ys) < max(ys) < 20 + 2 * PITCH


def test_without_a_manifest_every_label_is_accepted_once(batch, tmp_path):
    texts = _texts(batch)
    report = verify_labels([_save(_sheet(texts[:2]), tmp_path / "a.png")])
    assert (report.good, report.expected, report.count(State.READ)) == (True, None, 2)
    report = verify_labels([_save(_sheet([texts[0], texts[0], "x"]), tmp_path / "a.png")])
    assert (report.count(State.DOUBLE), report.count(State.FOREIGN)) == (2, 1)


def test_photographs_that_overlap_show_a_label_twice_without_harm(batch, tmp_path):
    texts = _texts(batch)
    files = [_save(_sheet(texts[:3]), tmp_path / "a.png"), _save(_sheet(texts[2:]), tmp_path / "b.png")]
    apart = verify_labels(files, manifest=batch.manifest_json)
    assert apart.count(State.DOUBLE) == 2
    together = verify_labels(files, manifest=batch.manifest_json, overlap=True)
    assert together.good


def test_noise_that_hides_a_label_from_the_quick_look_is_smoothed_away(batch, tmp_path):
    texts = _texts(batch)
    noisy = damage(_drawn(texts[4], dots=6), KINDS["noise"], 0.6, 1)
    page = np.full((700, 700), 255, np.uint8)
    page[100 : 100 + noisy.shape[0], 100 : 100 + noisy.shape[1]] = noisy
    quick = CodeSearch(page)
    quick.look()
    assert not quick.found
    report = verify_labels([_save(page, tmp_path / "a.png")])
    assert [line.identifier for line in report.lines if line.state is State.READ] == ["SIM-000005"]


def test_a_small_code_on_a_large_scan_is_found_in_its_tile_and_placed_on_the_page(batch):
    page = np.full((2000, 2600), 255, np.uint8)
    code = _drawn(_texts(batch)[0], dots=2).pixels
    page[1800 : 1800 + len(code), 2400 : 2400 + len(code)] = code
    search = CodeSearch(page)
    looks = iter([False] * 2 + [False] * 12)
    search.search_thoroughly(lambda: next(looks, True))
    (found,) = search.found
    assert min(x for x, _ in found.corners) == pytest.approx(2408, abs=3)
    assert min(y for _, y in found.corners) == pytest.approx(1808, abs=3)


# --- files ------------------------------------------------------------------------------------------------------


def test_a_photograph_is_turned_upright_as_its_exif_data_says(batch, tmp_path):
    page = Image.fromarray(_sheet(_texts(batch)))
    turned = page.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it upright
    turned.save(tmp_path / "a.jpg", exif=exif, quality=90)
    (opened,) = open_pages(tmp_path / "a.jpg", dpi=300)
    assert opened.pixels.shape == (page.height, page.width)
    report = verify_labels([tmp_path / "a.jpg"], manifest=batch.manifest_json)
    assert report.good
    assert [line.identifier for line in report.lines] == [label.identifier for label in batch.labels]


def test_every_page_of_a_scan_is_looked_at(batch, tmp_path):
    texts = _texts(batch)
    pages = [Image.fromarray(_sheet(part, columns=2)) for part in (texts[:2], texts[2:4], texts[4:])]
    pages[0].save(tmp_path / "scan.tiff", save_all=True, append_images=pages[1:])
    report = verify_labels([tmp_path / "scan.tiff"], manifest=batch.manifest_json)
    assert report.good
    assert [line.page for line in report.lines] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("mode", ["1", "I;16", "RGBA", "P"])
def test_pixels_of_any_depth_are_read(batch, tmp_path, mode):
    page = _sheet(_texts(batch)[:1], columns=1)
    if mode == "I;16":
        picture = Image.fromarray(page.astype(np.uint16) * 257)
    elif mode == "RGBA":
        picture = Image.merge("RGBA", [Image.new("L", page.shape[::-1], 0)] * 3 + [Image.fromarray(255 - page)])
    else:
        picture = Image.fromarray(page).convert(mode)
    picture.save(tmp_path / "a.png")
    assert verify_labels([tmp_path / "a.png"]).good


def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_read(batch, tmp_path):
    _save(_sheet(_texts(batch)), tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:3000])
    (tmp_path / "huge.png").write_bytes(_png_head(13_000, 13_000))
    report = verify_labels([tmp_path], manifest=batch.manifest_json)
    assert not report.good
    assert report.count(State.READ) == COUNT
    bad, cut, huge = sorted(report.problems)
    assert "bad.png: not a whole picture" in bad
    assert "cut.png" in cut
    assert "huge.png: more than 50 million pixels" in huge


def test_a_pdf_without_poppler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4")
    report = verify_labels([tmp_path / "a.pdf"])
    assert "apt-get install poppler-utils" in report.problems[0]


def test_a_folders_pdf_documents_are_left_out_and_paths_that_are_nothing_refused(batch, tmp_path):
    (tmp_path / "sheet.pdf").write_bytes(b"")
    with pytest.raises(LabelError, match="holds no picture"):
        list_files([tmp_path])
    _save(_sheet(["x"]), tmp_path / "a.png")
    assert list_files([tmp_path]) == [tmp_path / "a.png"]
    with pytest.raises(LabelError, match="does not exist: give"):
        list_files([tmp_path / "nowhere"])


@pytest.mark.parametrize("content", ["", "[]", '{"labels": []}', '{"labels": [{"text": 1, "identifier": "a"}]}', "{"])
def test_a_manifest_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(LabelError, match="no manifest of labels"):
        load_expected(tmp_path)


def test_a_manifest_that_is_not_there_or_names_a_label_twice_is_refused(tmp_path):
    with pytest.raises(LabelError, match="cannot read"):
        load_expected(tmp_path / "nothing.json")
    (tmp_path / "m.csv").write_text("identifier,text\na,t\na,t\n")
    with pytest.raises(LabelError, match="names a twice"):
        load_expected(tmp_path / "m.csv")


# --- the command ------------------------------------------------------------------------------------------------


def _run(*arguments):
    return CliRunner().invoke(labels_command, ["verify", *map(str, arguments)])


def test_the_command_ends_with_0_when_all_is_well_and_with_1_when_it_is_not(batch, tmp_path):
    assert _run(batch.folder, "--manifest", batch.manifest_json).exit_code == 0
    page = _save(_sheet(_texts(batch)[:4]), tmp_path / "a.png")
    result = _run(page, "--manifest", batch.manifest_json)
    assert result.exit_code == 1
    assert "4 read, 1 missing of 5 expected, on 1 page(s)" in result.stdout
    assert "SIM-000005" in result.stdout


def test_json_and_csv_tell_the_same(batch, tmp_path):
    texts = _texts(batch)
    page = _save(_sheet([*texts[:4], texts[0]]), tmp_path / "a.png")
    result = _run(
        *(page, "--manifest", batch.manifest_json, "--json", "--csv", tmp_path / "t" / "a.csv"),
    )
    answer = json.loads(result.stdout)
    assert answer["counts"] == {"read": 3, "double": 2, "foreign": 0, "unread": 0, "missing": 1}
    assert not answer["good"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t" / "a.csv").read_text())))
    assert [row["state"] for row in rows] == [label["state"] for label in answer["labels"]]
    assert [int(rows[0][side]) for side in ("left", "top", "right", "bottom")] == answer["labels"][0]["box"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.png",), "does not exist"),
        ((".", "--dpi", "5"), "give 20 to 2400"),
        ((".", "--manifest", "nothing.json"), "cannot read nothing.json"),
    ],
)
def test_wrong_use_ends_with_code_2_and_one_line(arguments, words):
    result = _run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
