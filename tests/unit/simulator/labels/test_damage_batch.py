"""labels damage: pictures and manifests."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess

import pytest
from click.testing import CliRunner
from PIL import Image

from simulator.labels import make_labels
from simulator.labels.cli import labels_command
from simulator.labels.damage.making import damage_labels
from simulator.labels.errors import LabelError, LabelsExist
from simulator.labels.symbol.decoders import Zxing, panel
from simulator.labels.symbol.pictures import load_picture
from tests.conftest import require_program

pytestmark = pytest.mark.long

PANEL = panel()


@pytest.fixture(name="labels", scope="module")
def _labels(tmp_path_factory):
    return make_labels(product_id="press-7", count=2, out=tmp_path_factory.mktemp("labels"), formats=["png"])


@pytest.fixture(name="batch", scope="module")
def _batch(labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    return damage_labels(
        [labels.labels[0].png],
        out=folder / "out",
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
        assert image.shape == (picture["height"], picture["width"])
        assert hashlib.sha256(image.tobytes()).hexdigest() == picture["pixels_sha256"]
        for decoder in PANEL:
            found = set(decoder.read(image))
            expected = picture["text"]
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


def test_the_same_again_gives_the_same_files_and_another_run_leaves_nothing_of_the_one_before(labels, tmp_path):
    def make(**options):
        damage_labels([labels.folder], out=tmp_path, severities=[0.5], flips=False, decoders=[Zxing()], **options)
        return _tree(tmp_path)

    first = make(kinds=["dirt", "glare"])
    assert make(kinds=["dirt", "glare"]) == first
    assert {name.split("/")[0] for name in first} == {
        "dirt",
        "glare",
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


def test_processes_give_the_same_files_as_this_one(labels, tmp_path):
    for name, jobs in (("here", 1), ("there", 2)):
        damage_labels([labels.folder], out=tmp_path / name, kinds=["blur"], severities=[0.3], flips=False, jobs=jobs)
    assert _tree(tmp_path / "here") == _tree(tmp_path / "there")


# --- the command ------------------------------------------------------------------------------------------------


def test_the_command_prints_where_decoders_lose_the_label(labels, tmp_path):
    result = _run(labels.labels[0].png, "--out", tmp_path, "--kinds", "Blur, rotation", "--severities", "1")
    assert result.exit_code == 0, result.output
    assert "2 pictures of 1 label(s)" in result.stdout
    assert "1.3 modules of standard deviation" in result.stdout
    assert "never" in result.stdout


def test_json_is_one_object(labels, tmp_path):
    options = ("--kinds", "blur", "--no-flip", "--severities", "0.1,1", "--json")
    result = _run(labels.folder, "--out", tmp_path / "a", *options)
    answer = json.loads(result.stdout)
    assert (answer["labels"], answer["pictures"]) == (2, 4)
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["flips"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kinds", "blur,fire"), "fire asked for; give one or more of blur, motion_blur"),
        (("--kinds", ","), "none asked for"),
        (("--severities", "0"), "give numbers above 0, up to 1"),
        (("--severities", "nan"), "give numbers above 0, up to 1"),
        (("--severities", "mild"), "not numbers"),
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
