"""Labels read back: out of pictures of all kinds, and compared with a manifest."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.cli import program
from simulator.labels.errors import LabelError
from simulator.labels.finding import CodeSearch
from simulator.labels.make import make_labels
from simulator.labels.manifest import read_manifest
from simulator.labels.payload import label_text
from simulator.labels.pictures import PictureError, load_picture
from simulator.labels.reading import read_codes, read_labels
from simulator.labels.verify import State, verify_labels
from tests.support.label_pictures import as_bytes, draw_code, photograph

COUNT = 5
PITCH = 260


@pytest.fixture(name="batch", scope="module")
def _batch(tmp_path_factory):
    return make_labels(product_id="p-1", count=COUNT, out=tmp_path_factory.mktemp("labels"), formats=["png"])


@pytest.fixture(name="texts", scope="module")
def _texts(batch):
    return [label.order.text for label in batch.labels]


def _sheet(texts, columns=3):
    """A white page with the codes of these texts row by row; None leaves a gap, pictures are pasted as they are."""
    rows = -(-len(texts) // columns)
    page = Image.new("L", (columns * PITCH + 40, rows * PITCH + 40), 255)
    for number, text in enumerate(texts):
        if text is not None:
            code = draw_code(text, 4) if isinstance(text, str) else text
            page.paste(code, (20 + number % columns * PITCH, 20 + number // columns * PITCH))
    return page


def _save(page, path, **options):
    page.save(path, **options)
    return path


def _spoiled(text):
    """A code whose middle nobody reads."""
    code = draw_code(text, 4)
    code.paste(128, (50, 50, code.width - 50, code.height - 50))
    return code


def _states(report):
    return sorted((line.state.value, line.identifier) for line in report.lines if line.state is not State.READ)


# --- pictures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_the_usual_formats_are_read_in_reading_order(texts, kind):
    assert read_codes(as_bytes(photograph(texts), kind)) == texts


@pytest.mark.parametrize("mode", ["1", "I;16", "I", "RGBA", "P", "CMYK"])
def test_pixels_of_any_depth_are_read(texts, mode):
    page = _sheet(texts[:1], columns=1)
    if mode == "I;16":
        page = Image.fromarray(np.asarray(page).astype(np.uint16) * 257)
    elif mode == "I":
        page = page.convert("I").point(lambda value: value * 200)
    elif mode == "RGBA":  # what is transparent counts as white
        clear = Image.new("L", page.size, 0)
        page = Image.merge("RGBA", [clear, clear, clear, page.point(lambda value: 255 - value)])
    else:
        page = page.convert(mode)
    assert read_codes(as_bytes(page, "TIFF" if mode in {"CMYK", "I"} else "PNG")) == texts[:1]


def test_a_photograph_is_turned_upright_as_its_exif_data_says(texts):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise to see it upright
    buffer = io.BytesIO()
    _sheet(texts).transpose(Image.Transpose.ROTATE_90).save(buffer, "JPEG", exif=exif, quality=90)
    assert load_picture(buffer.getvalue()).shape == (2 * PITCH + 40, 3 * PITCH + 40)
    assert read_codes(buffer.getvalue()) == texts


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty; send"),
        (b"hello", "not a whole picture"),
        (as_bytes(photograph(["x"]), "JPEG")[:600], "not a whole picture"),
        (b"%PDF-1.7 ...", "a PDF document"),
        (b"%!PS\nshowpage", "not a whole picture"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "save or share it as JPEG"),
        (as_bytes(Image.new("1", (9000, 9000)), "PNG"), "more than 50 million pixels"),
    ],
    ids=["empty", "text", "cut", "pdf", "postscript", "heic", "large"],
)
def test_what_is_no_picture_says_what_to_send(data, words):
    with pytest.raises(PictureError, match=words):
        read_codes(data)


def test_noise_that_hides_a_label_from_the_quick_look_is_smoothed_away(texts):
    code = np.asarray(draw_code(texts[4], 8), np.float32)
    noise = np.random.default_rng(1).normal(0, 130, code.shape)
    noisy = np.clip(code + noise, 0, 255).astype(np.uint8)
    quick = CodeSearch(noisy)
    quick.look()
    assert quick.found == []
    assert read_codes(as_bytes(Image.fromarray(noisy), "PNG")) == [texts[4]]


def test_a_small_code_on_a_large_scan_is_placed_on_the_page(texts):
    page = Image.new("L", (2600, 2000), 255)
    page.paste(draw_code(texts[0], 2), (2400, 1800))
    search = CodeSearch(np.asarray(page))
    search.search(lambda: False)
    (found,) = search.found
    assert min(x for x, _ in found.corners) == pytest.approx(2408, abs=3)
    assert min(y for _, y in found.corners) == pytest.approx(1808, abs=3)


def test_every_label_of_every_file_is_an_entry_and_what_is_none_has_its_problem(texts, tmp_path):
    _save(_sheet([*texts[:2], "https://example.test/menu"]), tmp_path / "a.png")
    _save(Image.new("L", (300, 300), 120), tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"no picture")
    labels = list(read_labels([tmp_path]))
    assert [label.label and label.label.device_identifier for label in labels] == [
        "SIM-000001",
        "SIM-000002",
        None,
        None,
        None,
    ]
    problems = [label.problem for label in labels if label.label is None]
    for problem, words in zip(problems, ("link", "no QR code", "not a whole picture"), strict=True):
        assert words in problem


# --- against a manifest --------------------------------------------------------------------------------------------


def test_a_sheet_with_every_label_is_good(batch, texts, tmp_path):
    report = verify_labels([_save(_sheet(texts), tmp_path / "a.png")], manifest=batch.folder)
    assert report.good
    assert report.count(State.READ) == report.expected == COUNT
    assert [line.text for line in report.lines] == texts


def test_what_is_missing_double_foreign_or_no_label_is_named(batch, texts, tmp_path):
    other = texts[3].replace("SIM-000004", "SIM-900004")
    forged = texts[2].replace('"p-1"', '"p-2"')
    page = _sheet([texts[0], None, texts[2], texts[3], other, texts[0], "https://example.test/menu", forged])
    report = verify_labels([_save(page, tmp_path / "a.png")], manifest=batch.folder / "manifest.csv")
    assert not report.good
    assert _states(report) == [
        ("double", "SIM-000001"),
        ("double", "SIM-000001"),
        ("foreign", ""),
        ("foreign", "SIM-000003"),
        ("foreign", "SIM-900004"),
        ("missing", "SIM-000002"),
        ("missing", "SIM-000005"),
    ]
    notes = {line.text: line.note for line in report.lines}
    assert notes[other] == "not in the manifest"
    assert notes[forged] == "this identifier, but another text"
    assert "no device label" in notes["https://example.test/menu"]


def test_a_code_that_is_there_and_does_not_read_is_unread_in_its_place(batch, texts, tmp_path):
    page = _sheet([*texts[:4], _spoiled(texts[4])])
    report = verify_labels([_save(page, tmp_path / "a.png")], manifest=batch.folder)
    assert _states(report) == [("missing", "SIM-000005"), ("unread", "")]
    (unread,) = [line for line in report.lines if line.state is State.UNREAD]
    x, y = map(int, unread.place.split(","))
    assert 20 + PITCH < x < 20 + 2 * PITCH
    assert 20 + PITCH < y < 20 + 2 * PITCH


def test_without_a_manifest_every_label_is_accepted_once_and_an_empty_picture_is_not(texts, tmp_path):
    report = verify_labels([_save(_sheet(texts[:2]), tmp_path / "a.png")])
    assert (report.good, report.expected, report.count(State.READ)) == (True, None, 2)
    report = verify_labels([_save(_sheet([texts[0], texts[0], "x"]), tmp_path / "a.png")])
    assert (report.count(State.DOUBLE), report.count(State.FOREIGN)) == (2, 1)
    empty = _save(Image.new("L", (300, 300), 255), tmp_path / "b.png")
    assert not verify_labels([_save(_sheet(texts[:2]), tmp_path / "a.png"), empty]).good


def test_photographs_that_overlap_show_a_label_twice_without_harm(batch, texts, tmp_path):
    files = [_save(_sheet(texts[:3]), tmp_path / "a.png"), _save(_sheet(texts[2:]), tmp_path / "b.png")]
    assert verify_labels(files, manifest=batch.folder).count(State.DOUBLE) == 2
    assert verify_labels(files, manifest=batch.folder, overlap=True).good


def test_every_page_of_a_scan_is_looked_at(batch, texts, tmp_path):
    pages = [_sheet(part, columns=2) for part in (texts[:2], texts[2:4], texts[4:])]
    pages[0].save(tmp_path / "scan.tiff", save_all=True, append_images=pages[1:])
    report = verify_labels([tmp_path / "scan.tiff"], manifest=batch.folder)
    assert report.good
    assert [line.picture.rpartition(" ")[2] for line in report.lines] == ["1", "1", "2", "2", "3"]


def test_a_document_is_read_and_one_that_is_none_is_a_problem_beside_the_others(tmp_path):
    batch = make_labels(product_id="p-1", count=30, out=tmp_path / "labels", formats=["pdf"])
    (tmp_path / "none.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    report = verify_labels([batch.sheet, tmp_path / "none.pdf"], manifest=batch.folder, dpi=150)
    assert (report.count(State.READ), report.pages) == (30, 2)
    assert "none.pdf: not a PDF document" in report.problems[0]
    assert not report.good
    assert verify_labels([batch.sheet], manifest=batch.folder).good


def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_read(batch, texts, tmp_path):
    _save(_sheet(texts), tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:3000])
    report = verify_labels([tmp_path], manifest=batch.folder)
    assert report.count(State.READ) == COUNT
    assert not report.good
    assert ["bad.png" in problem for problem in sorted(report.problems)] == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("manifest.json", "", "no manifest of labels"),
        ("manifest.json", "[]", "no manifest of labels"),
        ("manifest.json", '{"labels": []}', "no manifest of labels"),
        ("manifest.json", '{"labels": [{"text": "t"}]}', "no manifest of labels"),
        ("manifest.csv", "identifier,product_id,text\na,p,t\na,p,t\n", "names a twice"),
        ("manifest.json", None, "cannot read"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(LabelError, match=words):
        read_manifest(tmp_path / name)


def _run(*arguments):
    return CliRunner().invoke(program, ["labels", "verify", *map(str, arguments)])


def test_the_command_ends_with_0_when_all_is_well_and_json_and_csv_tell_the_same(batch, texts, tmp_path):
    assert _run(batch.folder, "--manifest", batch.folder).exit_code == 0
    page = _save(_sheet([*texts[:4], texts[0]]), tmp_path / "a.png")
    result = _run(page, "--manifest", batch.folder)
    assert result.exit_code == 1
    assert "SIM-000005" in result.stdout
    result = _run(page, "--manifest", batch.folder, "--json", "--csv", tmp_path / "a.csv")
    answer = json.loads(result.stdout)
    assert answer["counts"] == {"read": 3, "double": 2, "foreign": 0, "unread": 0, "missing": 1}
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == [label["state"] for label in answer["labels"]]


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


def test_a_folders_pdf_documents_are_left_out(batch, tmp_path):
    (tmp_path / "sheet.pdf").write_bytes(b"")
    with pytest.raises(LabelError, match="holds no picture"):
        list(read_labels([tmp_path]))
    assert [read.text for read in read_labels([batch.labels[0].png])] == [label_text("p-1", "SIM-000001")]
