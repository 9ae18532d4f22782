"""labels damage: pictures, manifests, contact sheets, labels that must not scan."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.labels import make_labels
from simulator.labels.cli import labels_command
from simulator.labels.damage.flip import FlipOutcome
from simulator.labels.damage.making import damage_labels
from simulator.labels.damage.workers import Measuring, Task, run_in_processes
from simulator.labels.errors import LabelError, LabelsExist
from simulator.labels.symbol.decoders import Zxing, panel
from simulator.labels.symbol.pictures import load_picture
from simulator.labels.verify.finding import CodeSearch
from tests.conftest import require_program
from tests.unit.simulator.labels import decoders_that_end

pytestmark = pytest.mark.long

# The quick ones: what is proven here does not depend on how many there are.
PANEL = [decoder for decoder in panel() if decoder.name in {"zxing", "zbar"}]


@pytest.fixture(name="labels", scope="module")
def _labels(tmp_path_factory):
    return make_labels(product_id="press-7", count=2, out=tmp_path_factory.mktemp("labels"), formats=["png"])


@pytest.fixture(name="batch", scope="module")
def _batch(labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    return damage_labels(
        [labels.labels[0].png],
        out=folder / "out",
        must_fail=folder / "must-fail",
        kinds=["blur", "inverted", "rotation", "several_codes", "partial_print"],
        severities=[0.3, 1.0],
        decoders=PANEL,
    )


def _run(*arguments):
    return CliRunner().invoke(labels_command, ["damage", *map(str, arguments)])


def _tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_manifest_says_of_each_picture_what_every_decoder_says_to_it(batch):
    manifest = json.loads((batch.folder / "manifest.json").read_text())
    assert len(manifest["pictures"]) == 10
    for picture in manifest["pictures"]:
        image = load_picture(batch.folder / picture["file"])
        assert (image.width, image.height) == (picture["width"], picture["height"])
        assert hashlib.sha256(image.pixels).hexdigest() == picture["pixels_sha256"]
        for decoder in PANEL:
            found = set(decoder.read(image))
            expected = picture["text"].encode()
            verdict = "not_found" if not found else "misread" if expected not in found else "read"
            assert picture["verdicts"][decoder.name] == ("several" if verdict == "read" and len(found) > 1 else verdict)


def test_a_strangers_scanner_agrees_with_the_verdicts(batch):
    zbarimg = require_program("zbarimg", "zbar-tools")
    manifest = json.loads((batch.folder / "manifest.json").read_text())
    for picture in manifest["pictures"]:
        command = [zbarimg, "--nodbus", "--quiet", "--raw", "-Sdisable", "-Sqrcode.enable", picture["file"]]
        done = subprocess.run(command, capture_output=True, cwd=batch.folder, timeout=120, check=False)
        legible = picture["text"].encode() in done.stdout.splitlines()
        assert legible == (picture["verdicts"]["zbar"] in {"read", "several"}), picture["file"]


def test_flips_are_written_per_label_kind_and_decoder(batch):
    rows = list(csv.DictReader(io.StringIO((batch.folder / "flips.csv").read_text())))
    assert len(rows) == 5 * len(PANEL)
    of_zxing = {row["kind"]: row for row in rows if row["decoder"] == "zxing"}
    assert of_zxing["rotation"]["outcome"] == "never"
    assert of_zxing["rotation"]["first_lost"] == ""
    assert of_zxing["blur"]["outcome"] == "flips"
    assert 0.2 < float(of_zxing["blur"]["last_legible"]) < float(of_zxing["blur"]["first_lost"]) < 0.6
    assert float(of_zxing["blur"]["first_lost_measure"]) == pytest.approx(1.3 * float(of_zxing["blur"]["first_lost"]))


def test_what_must_fail_is_the_mildest_picture_that_nothing_finds(batch):
    manifest = json.loads((batch.must_fail / "manifest.json").read_text())
    kinds = {picture["kind"] for picture in manifest["pictures"]}
    assert {"blur", "partial_print"} <= kinds
    assert {"label": "SIM-000001", "kind": "rotation"} in manifest["without"]
    for picture in manifest["pictures"]:
        assert set(picture["verdicts"].values()) == {"not_found"}
        image = load_picture(batch.must_fail / picture["file"])
        assert not any(decoder.read(image) for decoder in PANEL)
        search = CodeSearch(np.frombuffer(image.pixels, np.uint8).reshape(image.height, image.width), PANEL)
        search.look()
        search.search_thoroughly(lambda search=search: bool(search.found))
        assert not search.found, "smoothed or smaller it reads"
    blur = next(finding for finding in batch.findings if finding.kind == "blur")
    assert max(flip.first_lost for flip in blur.flips) <= blur.must_fail.severity <= 1.0


def test_the_contact_sheet_shows_the_label(batch):
    with Image.open(batch.folder / "contact" / "SIM-000001.png") as sheet:
        assert sheet.width > 300
        assert sheet.height > 5 * 80
        colours = {colour for _, colour in sheet.convert("RGB").getcolors(1 << 20)}
    assert any(green > 100 > red for red, green, _ in colours)
    assert any(red > 150 and green < 80 for red, green, _ in colours)


def test_the_same_again_gives_the_same_files_and_another_run_leaves_nothing_of_the_one_before(labels, tmp_path):
    def make(**options):
        damage_labels([labels.folder], out=tmp_path, severities=[0.5], flips=False, decoders=[Zxing()], **options)
        return _tree(tmp_path)

    first = make(kinds=["dirt", "glare"])
    assert make(kinds=["dirt", "glare"]) == first
    assert {name.split("/")[0] for name in first} == {
        "dirt",
        "glare",
        "contact",
        "manifest.json",
        "manifest.csv",
        "flips.csv",
    }
    assert first["flips.csv"] == b""
    other = make(kinds=["dirt"], seed=2)
    assert not any(name.startswith("glare/") for name in other)
    assert other["dirt/SIM-000001-1.png"] != first["dirt/SIM-000001-1.png"]


def test_a_folder_with_other_files_is_left_alone(labels, tmp_path):
    with pytest.raises(LabelsExist, match="choose another --out"):
        damage_labels([labels.folder], out=labels.folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(LabelsExist, match="--must-fail"):
        damage_labels([labels.folder], out=tmp_path / "out", must_fail=tmp_path)


def test_processes_give_the_same_as_this_one_and_a_decoder_that_ends_its_process_is_written_down(labels, tmp_path):
    def make(name, **options):
        return damage_labels(
            [labels.labels[0].png], out=tmp_path / name, kinds=["blur"], severities=[0.3, 1.0], **options
        )

    make("here", decoders=[Zxing()], flips=False)
    ended = damage_labels(
        [labels.labels[0].png],
        out=tmp_path / "ended",
        must_fail=tmp_path / "must-fail",
        kinds=["blur"],
        severities=[0.3, 1.0],
        jobs=1,
        make_panel=decoders_that_end.make_panel,
    )
    (finding,) = ended.findings
    assert [sample.verdicts for sample in finding.samples] == [("read", "crashed"), ("not_found", "crashed")]
    assert finding.flips[0].outcome is FlipOutcome.FLIPS
    assert finding.must_fail is None
    for number in (1, 2):
        name = f"blur/SIM-000001-{number}.png"
        assert np.array_equal(Image.open(tmp_path / "here" / name), Image.open(tmp_path / "ended" / name))


def test_a_decoder_that_never_answers_is_written_down_and_its_label_is_none_that_must_fail(labels, tmp_path):
    batch = damage_labels(
        [labels.labels[0].png],
        out=tmp_path / "out",
        must_fail=tmp_path / "must-fail",
        kinds=["blur"],
        severities=[0.3, 1.0],
        flips=False,
        jobs=1,
        make_panel=decoders_that_end.make_hanging_panel,
        answer_s=1.0,
    )
    (finding,) = batch.findings
    assert [sample.verdicts for sample in finding.samples] == [("read", "timed_out"), ("not_found", "timed_out")]
    assert finding.must_fail is None
    pictures = json.loads((tmp_path / "out" / "manifest.json").read_text())["pictures"]
    assert {picture["verdicts"]["hanging"] for picture in pictures} == {"timed_out"}


def test_a_decoder_beside_the_panel_that_never_answers_has_not_said_that_it_does_not_read(labels):
    task = Task(labels.labels[0].png, "blur", (1.0,), 1, False, True, ("zxing",), ("hanging",))
    work = Measuring(decoders_that_end.make_zxing, decoders_that_end.make_hanging_extra)
    (without,) = run_in_processes([replace(task, extra=())], work, jobs=1, answer_s=1.0)
    assert without.must_fail
    assert without.no_answer == ()
    (finding,) = run_in_processes([task], work, jobs=1, answer_s=1.0)
    assert finding.must_fail is None
    assert finding.no_answer == ("hanging",)
    assert [sample.verdicts for sample in finding.samples] == [("not_found",)]


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_prints_where_decoders_lose_the_label(labels, tmp_path):
    result = _run(
        labels.labels[0].png, "--out", tmp_path, "--kinds", "Blur, rotation", "--severities", "1", "--jobs", 1
    )
    assert result.exit_code == 0, result.output
    assert "2 pictures of 1 label(s)" in result.stdout
    assert "1.3 modules of standard deviation" in result.stdout
    assert "never" in result.stdout


def test_what_must_fail_is_said_of_the_decoders_that_were_tried(labels, tmp_path):
    result = _run(
        *(labels.labels[0].png, "--out", tmp_path / "a", "--must-fail", tmp_path / "b", "--kinds", "blur", "--no-flip"),
        *("--severities", "1", "--jobs", 1),
    )
    asked = json.loads((tmp_path / "b" / "manifest.json").read_text())["judged_by"]
    assert asked[0].startswith("zxing-cpp ")
    assert f": not read by {', '.join(asked)}; another decoder may read them" in result.stdout.replace("\n", "")
    assert "not asked  jsQR: npm install jsqr, and --jsqr" in result.stdout


def test_json_is_one_object(labels, tmp_path):
    result = _run(
        *(labels.folder, "--out", tmp_path / "a", "--must-fail", tmp_path / "b", "--kinds", "blur", "--no-flip"),
        *("--severities", "0.1,1", "--jobs", 1, "--json"),
    )
    answer = json.loads(result.stdout)
    assert (answer["labels"], answer["pictures"], answer["must_fail_pictures"]) == (2, 4, 2)
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["flips"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kinds", "blur,fire"), "fire asked for; give one or more of blur, motion_blur"),
        (("--kinds", ","), "none asked for"),
        (("--severities", "0"), "give numbers above 0, up to 1"),
        (("--severities", "nan"), "give numbers above 0, up to 1"),
        (("--severities", "mild"), "not numbers"),
        (("--jobs", "0"), "jobs is 0: give 1 or more"),
    ],
)
def test_wrong_use_ends_with_code_2_and_one_line(labels, tmp_path, arguments, words):
    result = _run(labels.folder, "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_a_picture_that_is_no_clean_label_ends_with_code_2(tmp_path):
    Image.new("L", (50, 50), 255).save(tmp_path / "blank.png")
    result = _run(tmp_path / "blank.png", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "damage begins with labels that read" in result.stderr


def test_wrong_arguments_from_python_are_refused(labels, tmp_path):
    with pytest.raises(LabelError, match="no decoder"):
        damage_labels([labels.folder], out=tmp_path / "out", decoders=[])
