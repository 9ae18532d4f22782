from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from simulator.labels.cli import labels_command
from simulator.labels.reading import read_label_files


def _run(*arguments, env=None):
    return CliRunner().invoke(labels_command, [str(argument) for argument in arguments], env=env or {})


def test_make_prints_where_the_labels_are_and_how_they_were_proven(tmp_path):
    result = _run("make", "--product-id", "p-1", "--count", 2, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "2 labels" in result.stdout
    assert "SIM-000001 to SIM-000002" in result.stdout
    assert "zxing" in result.stdout
    assert "labels: 2 of 2" in result.stderr


def test_json_is_one_object_on_standard_output_and_nothing_else(tmp_path):
    result = _run("make", "--product-id", "p-1", "--count", 2, "--out", tmp_path, "--formats", "png", "--json")
    answer = json.loads(result.stdout)
    assert answer["labels"] == 2
    assert answer["files"] == {}
    assert json.loads((tmp_path / "manifest.json").read_text())["batch"]["decoders"] == answer["decoders"]


def test_every_option_reaches_the_manifest(tmp_path):
    (tmp_path / "grid.yaml").write_text("{columns: 2, rows: 3, label_width_mm: 90, label_height_mm: 60}")
    result = _run(
        *("make", "--product-id", "p-9", "--count", 2, "--out", tmp_path / "out", "--template", "ACME-{serial:06d}"),
        *("--first-serial", 8, "--size-mm", 40, "--dpi", 203, "--formats", "png, PDF", "--paper", "letter"),
        *("--label-mm", "60x45", "--grid", tmp_path / "grid.yaml", "--profile", "link", "--link-host", "A.example"),
    )
    assert result.exit_code == 0, result.stderr
    batch = json.loads((tmp_path / "out" / "manifest.json").read_text())["batch"]
    assert (batch.pop("grid")["columns"], batch.pop("decoders")[0]) == (2, "zxing")
    assert batch.pop("encoder").startswith("zxing-cpp ")
    assert batch == {
        "product_id": "p-9",
        "count": 2,
        "template": "ACME-{serial:06d}",
        "first_serial": 8,
        "profile": "link",
        "link_host": "a.example",
        "size_mm": 40.0,
        "dpi": 203,
        "formats": ["png", "pdf"],
        "paper": "letter",
        "label_mm": [60.0, 45.0],
    }


def test_options_come_from_the_environment_too(tmp_path):
    environment = {
        "FLEET_SIMULATOR_LABELS_MAKE_PRODUCT_ID": "p-env",
        "FLEET_SIMULATOR_LABELS_MAKE_OUT": str(tmp_path),
        "FLEET_SIMULATOR_LABELS_MAKE_TEMPLATE": "E{serial}",
        "FLEET_SIMULATOR_LABELS_MAKE_JSON": "1",
    }
    result = _run("make", env=environment)
    assert json.loads(result.stdout)["first"] == "E1"
    assert read_label_files(tmp_path)[0].label.product_id == "p-env"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--count", "0"), "count is 0: give 1 or more"),
        (("--count", "x"), "x"),
        (("--template", "{nope}"), "only {serial}"),
        (("--formats", "png,bmp"), "bmp asked for"),
        (("--size-mm", "3"), "would fit"),
    ],
)
def test_wrong_use_ends_with_code_2_and_one_line(tmp_path, arguments, words):
    result = _run("make", "--product-id", "p", "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_another_batch_in_the_folder_ends_with_code_2_unless_replaced(tmp_path):
    assert _run("make", "--product-id", "a", "--out", tmp_path).exit_code == 0
    refused = _run("make", "--product-id", "b", "--out", tmp_path)
    assert refused.exit_code == 2
    assert "--replace" in refused.stderr
    assert _run("make", "--product-id", "b", "--out", tmp_path, "--replace").exit_code == 0


def test_every_option_of_make_has_a_help_text_and_an_environment_variable():
    command = labels_command.commands["make"]
    result = _run("make", "--help")
    for parameter in command.params:
        assert parameter.help
    assert " ".join(result.output.split()).count("env var: FLEET_SIMULATOR_LABELS_MAKE_") == len(command.params)
