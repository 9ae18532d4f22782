"""Batches of labels: identifiers, folders, serials, sheets."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET

import pytest
import zxingcpp
from click.testing import CliRunner
from PIL import Image

from simulator.cli import program
from simulator.labels.errors import LabelError
from simulator.labels.identifiers import IdentifierTemplate, check_character
from simulator.labels.make import make_labels
from simulator.labels.payload import Payload, open_payload
from simulator.labels.reading import read_codes, read_labels
from simulator.labels.symbol import png_of, svg_of
from simulator.wire.qr import parse_label
from simulator.wire.qr.keys import LabelKey

PRODUCT = "0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11"


def _make(out, **options):
    return make_labels(**{"product_id": PRODUCT, "count": 3, "out": out, "formats": ["png"], **options})


def _run(*arguments):
    return CliRunner().invoke(program, ["labels", "make", *map(str, arguments)])


def _files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# --- identifiers and texts -----------------------------------------------------------------------------------------


def test_check_characters_are_those_of_the_published_examples():
    # The Global Release Identifier's example, whose check character is ISO 7064 MOD 37,36.
    assert check_character("A1-2425G-ABC1234002") == check_character("a12425gabc1234002") == "M"
    assert check_character("572", "damm") == "4"
    assert check_character("7", "luhn") == "M"  # 14 is 14, and 14 + 22 is a multiple of 36
    assert IdentifierTemplate("A1-2425G-ABC{serial:07d}-{check}").identifier(1234002) == "A1-2425G-ABC1234002-M"
    assert IdentifierTemplate("{{x}}{serial:X}{check:luhn}").identifier(255).startswith("{x}FF")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{other}", "only {serial}"),
        ("{serial:s}", "only {serial}"),
        ("{serial", "twice"),
        ("{check}{serial}", "behind it"),
        ("{serial}{check}{check}", "once"),
        ("{serial}{check:crc}", "no check character 'crc': there is iso7064, luhn, damm"),
        ("AB{serial}{check:damm}", "digits only: use iso7064 or luhn"),
        ("fixed", "same identifier"),
    ],
)
def test_a_template_that_cannot_be_is_one_line_that_names_the_fix(tmp_path, pattern, words):
    refused = _run("--product-id", "p", "--count", 2, "--template", pattern, "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("profile", ["json", "compact", "link:onboard.example.com"])
@pytest.mark.parametrize("kind", ["ed25519", "hmac-sha256"])
def test_signed_labels_hold_for_their_key_and_no_secret_is_printed(tmp_path, profile, kind):
    key = tmp_path / "key"
    made = CliRunner().invoke(program, ["labels", "keygen", "--out", str(key), "--kind", kind, "--json"])
    told = json.loads(made.stdout)
    text = _make(tmp_path / "out", payload=open_payload(profile, key)).labels[0].order.text
    label_key = key.read_text().strip() if kind == "hmac-sha256" else told["label_key"]
    LabelKey(label_key).check(parse_label(text))
    manifest = (tmp_path / "out" / "manifest.json").read_text()
    assert told["shown_as"] in manifest
    if kind == "hmac-sha256":
        assert label_key not in made.stdout + manifest
    again = CliRunner().invoke(program, ["labels", "keygen", "--out", str(key)])
    assert again.exit_code == 2
    assert key.stat().st_mode & 0o077 == 0
    key.unlink()


@pytest.mark.parametrize(
    ("profile", "words"),
    [("qr", "no payload profile"), ("link", "needs the host"), ("json:h", "has no host"), ("link:a b", "link:HOST")],
)
def test_a_profile_that_cannot_be_is_refused(profile, words):
    with pytest.raises(LabelError, match=words):
        open_payload(profile)


# --- codes ---------------------------------------------------------------------------------------------------------


def test_any_text_is_drawn_for_a_screen_and_nothing_that_readers_guess_at():
    svg = ET.fromstring(svg_of("HTTPS://EXAMPLE.COM/?a=<&>"))
    assert svg.attrib["viewBox"].startswith("0 0 ")
    assert read_codes(png_of("https://example.com/")) == ["https://example.com/"]
    for refused in ("Gerät", "x" * 3000):
        with pytest.raises(LabelError):
            svg_of(refused)


def test_the_pictures_of_a_label_show_the_same_code_in_its_true_size(tmp_path):
    made = _make(tmp_path, count=1, formats=["png", "svg"], size_mm=20, dpi=600).labels[0]
    with Image.open(made.png) as picture:
        picture.load()
    assert picture.info["dpi"] == pytest.approx((600, 600), abs=0.1)
    assert picture.width / 600 * 25.4 == pytest.approx(made.symbol.edge_mm)
    assert 18 < made.symbol.edge_mm <= 20
    drawn = ET.parse(made.files["svg"]).getroot()
    assert drawn.attrib["width"] == f"{made.symbol.edge_mm:.4f}mm"
    edge = int(drawn.attrib["viewBox"].split()[-1])
    pixels = Image.new("L", (edge, edge), 255)
    for run in drawn[-1].attrib["d"].split("M")[1:]:
        x, y, length = int(run.split()[0]), int(run.split()[1].split("h")[0]), int(run.split("h")[1].split("v")[0])
        pixels.paste(0, (x, y, x + length, y + 1))
    large = pixels.resize((edge * 4, edge * 4), Image.Resampling.NEAREST)
    assert [code.text for code in zxingcpp.read_barcodes(large)] == [made.order.text]


def test_a_code_that_is_not_read_back_is_never_written(tmp_path, monkeypatch):
    monkeypatch.setattr(zxingcpp, "read_barcodes", lambda *_, **__: [])
    with pytest.raises(LabelError, match="zxing-cpp read no code"):
        _make(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_text_too_long_for_its_size_names_sizes_that_do(tmp_path):
    refused = _run("--product-id", PRODUCT, "--size-mm", 6, "--out", tmp_path / "out")
    assert refused.exit_code == 2
    size = refused.stderr.partition("give --size-mm ")[2].split()[0]
    assert _run("--product-id", PRODUCT, "--size-mm", size, "--out", tmp_path / "out").exit_code == 0


# --- folders -------------------------------------------------------------------------------------------------------


def test_equal_arguments_give_equal_files_and_the_manifest_names_them(tmp_path):
    every = {"formats": ["zpl", "pdf", "png", "svg"], "count": 5}
    first, again = _make(tmp_path / "a", **every), _make(tmp_path / "b", **every)
    assert _files(first.folder) == _files(again.folder) == _files(_make(tmp_path / "a", **every).folder)
    document = json.loads((first.folder / "manifest.json").read_text())
    rows = list(csv.DictReader((first.folder / "manifest.csv").read_text().splitlines()))
    assert [row["text"] for row in rows] == [label["text"] for label in document["labels"]]
    named = {label[kind] for label in document["labels"] for kind in ("png", "svg")} | set(document["files"].values())
    assert named | {"manifest.json", "manifest.csv"} == set(_files(first.folder))


def test_identifiers_that_file_systems_take_for_one_or_keep_for_themselves_get_files_of_their_own(tmp_path):
    table = tmp_path / "d.csv"
    names = ["SN-a", "SN-A", "CON", "nul", "a/b", "..", "x" * 300, "x" * 299 + "y", "ü 器"]
    table.write_text("device_identifier\n" + "\n".join(names))
    made = _make(tmp_path / "out", devices=table, size_mm=60)
    stems = [label.png.name.lower() for label in made.labels]
    assert len(set(stems)) == len(names)
    assert all(stem[0].isdigit() and len(stem) < 120 and stem.isascii() for stem in stems)
    assert [read.label.device_identifier for read in read_labels([made.folder])] == names


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    before = _files(_make(tmp_path).folder)
    for other in ({"count": 4}, {"size_mm": 30}, {"payload": Payload("compact")}, {"product_id": "p"}):
        with pytest.raises(LabelError, match="something else than this batch"):
            _make(tmp_path, **other)
    assert _files(tmp_path) == before
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.png").write_bytes(b"x")
    with pytest.raises(LabelError, match="something else"):
        _make(tmp_path / "photos")
    assert list(_files(tmp_path / "photos")) == ["holiday.png"]


def test_what_was_ended_early_is_completed_by_the_same_command_alone(tmp_path):
    def stop(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _make(tmp_path / "out", on_progress=stop)
    assert not (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(LabelError, match="something else"):
        _make(tmp_path / "out", count=4)
    _make(tmp_path / "out")
    assert _files(tmp_path / "out") == _files(_make(tmp_path / "whole").folder)


# --- serials -------------------------------------------------------------------------------------------------------


def _serials(batch):
    return [label.order.serial for label in batch.labels]


def test_a_ledger_hands_out_no_serial_twice_and_a_batch_gets_its_own_again(tmp_path):
    ledger = tmp_path / "serials.db"
    assert _serials(_make(tmp_path / "a", ledger=ledger)) == [1, 2, 3]
    assert _serials(_make(tmp_path / "b", ledger=ledger)) == [4, 5, 6]
    again = _make(tmp_path / "a", ledger=ledger)
    assert _serials(again) == [1, 2, 3]
    assert again.notes == ("serials 1 to 3 were reserved for this folder already",)
    assert _serials(_make(tmp_path / "c", ledger=ledger, product_id="other")) == [1, 2, 3]
    assert _serials(_make(tmp_path / "d", ledger=ledger, template="T{serial}")) == [1, 2, 3]
    with pytest.raises(LabelError, match=r"serials 4 to 6 are taken .*give 7 or more"):
        _make(tmp_path / "e", ledger=ledger, first_serial=6)
    assert _serials(_make(tmp_path / "e", ledger=ledger, first_serial=100)) == [100, 101, 102]
    assert _serials(_make(tmp_path / "f", ledger=ledger)) == [103, 104, 105]


def test_an_interrupted_batch_gets_its_serials_back_and_one_that_cannot_be_made_takes_none(tmp_path):
    ledger = tmp_path / "serials.db"

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(LabelError, match="does not fit"):
        _make(tmp_path / "a", ledger=ledger, size_mm=5)
    with pytest.raises(KeyboardInterrupt):
        _make(tmp_path / "a", ledger=ledger, on_progress=stop)
    assert _serials(_make(tmp_path / "b", ledger=ledger)) == [4, 5, 6]
    assert _serials(_make(tmp_path / "a", ledger=ledger)) == [1, 2, 3]


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path):
    (tmp_path / "l").write_text("not a database, and long enough to be taken for one" * 10)
    before = (tmp_path / "l").read_bytes()
    with pytest.raises(LabelError, match="another --ledger"):
        _make(tmp_path / "out", ledger=tmp_path / "l")
    assert (tmp_path / "l").read_bytes() == before
    with pytest.raises(LabelError, match="no serial to keep"):
        _make(tmp_path / "out", ledger=tmp_path / "m", count=1, template="one")


# --- sheets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "must be an object"),
        ("columns: 3\nrows: 7\nlabel_width_mm: 60\nlabel_heigt_mm: 30", "label_heigt_mm"),
        ("columns: 3\nrows: 7\nlabel_width_mm: 60", "label_height_mm"),
        ("columns: 3\nrows: 7\nlabel_width_mm: wide\nlabel_height_mm: 30", "label_width_mm"),
        ("columns: 3\nrows: 7\nlabel_width_mm: .nan\nlabel_height_mm: 30", "label_width_mm"),
        ("columns: 4\nrows: 7\nlabel_width_mm: 60\nlabel_height_mm: 30", "width of 210 mm"),
        ("columns: 3\nrows: 10\nlabel_width_mm: 60\nlabel_height_mm: 30", "height of 297 mm"),
        ("columns: 3\nrows: 7\nlabel_width_mm: 60\nlabel_height_mm: 30\npitch_y_mm: 29", "pitch_y_mm"),
        ("columns: 3\nrows: 7\nlabel_width_mm: 60\nlabel_height_mm: 20", None),
        ("{", "no YAML"),
    ],
)
def test_a_sheet_that_cannot_be_names_its_key(tmp_path, content, words):
    (tmp_path / "sheet.yaml").write_text(content)
    made = _run("--product-id", "p", "--sheet", tmp_path / "sheet.yaml", "--formats", "pdf", "--out", tmp_path / "out")
    assert made.exit_code == (2 if words else 0), made.stderr
    assert (words or "") in made.stderr
    assert "\n" not in made.stderr.strip()


def test_what_does_not_fit_a_label_is_refused_with_what_would(tmp_path):
    for options, words in (
        (["--size-mm", "30", "--sheet", "50x25"], "at most --size-mm 23"),
        (["--sheet", "nowhere"], "give a4, letter"),
        (["--size-mm", "400"], "does not fit on a4"),
        (["--template", "X" * 300 + "{serial}", "--sheet", "30x20"], "smaller --size-mm"),
        (["--dpi", "123", "--formats", "zpl"], "203, 300, 600"),
        (["--formats", "png,brother"], "there is png, svg, pdf, zpl"),
        (["--count", "0"], "give 1 or more"),
    ):
        refused = _run("--product-id", "p", "--out", tmp_path / "out", *options)
        assert refused.exit_code == 2
        assert words in refused.stderr, refused.stderr
        assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    refused = _run("--product-id", "p", "--out", tmp_path / "file" / "out")
    assert refused.exit_code == 2
    assert "give another --out" in refused.stderr
