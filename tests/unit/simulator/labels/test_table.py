"""Devices out of CSV and YAML."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from simulator.labels import LabelError, make_labels, read_label_files
from simulator.labels.batch.rows import read_table, rows_sha256
from simulator.labels.cli import labels_command
from simulator.labels.errors import BadRows
from simulator.onboarding.sources import find_labels

PLAIN = "device_identifier,product_id,name\nA-1,p-1,Büro\nA-2,,\n"


def _read(tmp_path, data, name="devices.csv", product_id="p-0"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(path, product_id=product_id, check=lambda product, identifier: None)


def _rows(table):
    return [(row.line, row.device_identifier, row.product_id, row.name) for row in table.rows]


GOOD = [(2, "A-1", "p-1", "Büro"), (3, "A-2", "p-0", "")]


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        PLAIN.encode("utf-8-sig"),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.rstrip("\n"),
        PLAIN + "\n,,\n\n",
        'Device_Identifier , "product_id",NAME\n"A-1",p-1,"Büro"\n A-2 ,,\n',
        PLAIN.encode("utf-16"),
    ],
)
def test_every_common_dialect_gives_the_same_rows(tmp_path, data):
    table = _read(tmp_path, data)
    assert _rows(table) == GOOD
    assert table.bad == ()
    assert rows_sha256(table.rows) == rows_sha256(_read(tmp_path, PLAIN).rows)


def test_a_quoted_cell_may_hold_delimiters_and_line_breaks_and_lines_are_still_counted_right(tmp_path):
    table = _read(tmp_path, 'device_identifier,product_id,name\n"A,1","p\n1",\nA-2,,\n\nA-2,,\n')
    assert [row.device_identifier for row in table.rows] == ["A,1", "A-2"]
    assert [(bad.line, bad.problem) for bad in table.bad] == [(6, "'A-2' stands in line 4 already")]


def test_yaml_is_a_list_or_devices_with_a_list(tmp_path):
    listed = "- {device_identifier: A-1, product_id: p-1, name: Büro}\n- device_identifier: A-2\n"
    rows = [(1, "A-1", "p-1", "Büro"), (2, "A-2", "p-0", "")]
    assert _rows(_read(tmp_path, listed, "d.yaml")) == rows
    assert _rows(_read(tmp_path, "devices:\n" + listed, "d.yml"))[0][1:] == rows[0][1:]
    assert _rows(_read(tmp_path, "[0012, B]", "d.yaml"))[0][1] == "0012"  # a text, not the number ten


def test_every_bad_row_is_named_with_its_line_and_nothing_is_made(tmp_path):
    source = tmp_path / "devices.csv"
    source.write_bytes(
        b"device_identifier,product_id,name\nA-1,p,\n,p,\nA-1,p,\nA-2,p\nA-3,,\nA-4,p,x\x07\n\xff\xfe,p,\n"
        + b"L" * 400
        + b",p,\nA-9,p,\n"
    )
    with pytest.raises(BadRows) as caught:
        make_labels(devices=source, out=tmp_path / "out", decoders=["zxing"], size_mm=9)
    message = str(caught.value)
    assert "7 bad row(s), nothing was made" in message
    lines = dict(line.strip().removeprefix("line ").split(": ", 1) for line in message.splitlines()[1:])
    assert list(lines) == ["3", "4", "5", "6", "7", "8", "9"]
    assert "no device_identifier" in lines["3"]
    assert "line 2 already" in lines["4"]
    assert "2 columns where the first line names 3" in lines["5"]
    assert "has no product_id" in lines["6"]
    assert "control characters" in lines["7"]
    assert "not UTF-8" in lines["8"]
    assert "do not fit into 9 mm" in lines["9"]
    assert not (tmp_path / "out").exists()
    batch = make_labels(
        devices=source, out=tmp_path / "out", decoders=["zxing"], formats=["png"], size_mm=9, skip_bad=True
    )
    assert [label.identifier for label in batch.labels] == ["A-1", "A-9"]
    assert any("7 bad row(s) of devices.csv left out: line 3, 4, 5, 6, 7, 8, 9" in note for note in batch.warnings)
    assert {read.label.device_identifier for read in read_label_files(tmp_path / "out")} == {"A-1", "A-9"}


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        ("", "d.csv", "names no column device_identifier"),
        ("a,b\n1,2\n", "d.csv", "names no column device_identifier"),
        ("name,name,device_identifier\n", "d.csv", "twice"),
        ("just text", "d.yaml", "give a list of devices"),
        ("other: 1", "d.yaml", "give a list of devices"),
        ("{", "d.yaml", "is no YAML"),
        ("", "d.yaml", "give a list of devices"),
        (b"\xff\xfea", "d.csv", "UTF-16"),
    ],
)
def test_a_file_that_is_no_table_is_one_line_that_names_the_fix(tmp_path, data, name, words):
    with pytest.raises(LabelError, match=words) as caught:
        _read(tmp_path, data, name)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_there_or_has_no_row_is_refused(tmp_path):
    with pytest.raises(LabelError, match="give a CSV or YAML file to --from"):
        make_labels(devices=tmp_path / "nowhere.csv", out=tmp_path / "out")
    (tmp_path / "empty.csv").write_text("device_identifier\n")
    with pytest.raises(LabelError, match="no row that a label can be made of"):
        make_labels(devices=tmp_path / "empty.csv", out=tmp_path / "out")
    (tmp_path / "one.csv").write_text("device_identifier\nA\n")
    with pytest.raises(LabelError, match="--ledger or --from, not both"):
        make_labels(devices=tmp_path / "one.csv", product_id="p", out=tmp_path / "out", ledger=tmp_path / "l")


def _made(tmp_path, name, *identifiers, **options):
    """Make a batch from a table, or a counted one without identifiers; what is said about it."""
    if identifiers:
        source = tmp_path / f"{name}.csv"
        source.write_text("device_identifier,product_id\n" + "".join(f"{one},p\n" for one in identifiers))
        options["devices"] = source
    made = make_labels(out=tmp_path / "batches" / name, formats=["png"], decoders=["zxing"], **options)
    return [warning for warning in made.warnings if "one decoder" not in warning]


def test_a_table_with_devices_of_a_batch_beside_it_names_that_one_and_the_way_out(tmp_path):
    batches = tmp_path / "batches"
    assert _made(tmp_path, "a", "A-1", "A-2") == []
    assert _made(tmp_path, "b", "A-3") == []
    (said,) = _made(tmp_path, "c", "A-2", "A-4")
    assert said == (
        f"{batches / 'a'} has labels of the same devices, A-2: take those rows out of the table, or remove those labels"
    )
    (said,) = _made(tmp_path, "d", "A-1", "A-2", "A-3", "A-4")
    assert said.startswith(f"{batches / 'a'} has labels of the same devices, A-1, A-2: "), "the one with the most"
    (said,) = _made(tmp_path, "e", "A-4", "A-3", "A-2", "A-1", "A-0")
    assert "A-4, A-3, A-2 and 1 more" in said
    assert _made(tmp_path, "b", "A-3"), "said as often as it is made"


def test_a_table_and_counted_labels_are_compared_both_ways(tmp_path):
    batches = tmp_path / "batches"
    assert _made(tmp_path, "counted", product_id="p", count=3) == []
    (said,) = _made(tmp_path, "table", "SIM-000002", "SIM-000004")
    assert said.startswith(f"{batches / 'counted'} has labels of the same devices, SIM-000002: take those rows out")
    (said,) = _made(tmp_path, "more", product_id="p", count=1, first_serial=4)
    assert said == (
        f"{batches / 'table'} has labels of the same devices, SIM-000004: give another --template or --first-serial, "
        "or remove those labels"
    )
    assert _made(tmp_path, "other-product", product_id="q", count=9) == []


def test_onboarding_takes_the_device_of_two_tables_once(tmp_path):
    for name, identifiers in (("a", ("A-1", "A-2")), ("b", ("A-2", "A-3"))):
        _made(tmp_path, name, *identifiers)
    folders = [tmp_path / "batches" / name for name in ("a", "b")]
    for pictures in (False, True):
        found = find_labels(folders, pictures=pictures)
        assert [one.device_identifier for one in found.subjects] == ["A-1", "A-2", "A-3"]
        assert found.copies == 1


def test_a_batch_beside_that_cannot_be_read_to_its_end_is_said(tmp_path):
    _made(tmp_path, "a", "A-1", "A-2")
    manifest = tmp_path / "batches" / "a" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-8])
    (said,) = _made(tmp_path, "b", "A-3")
    assert said == f"1 batch(es) beside it, such as {manifest.parent}, could not be compared to their end"


def test_a_broken_yaml_entry_is_a_bad_row_with_its_line(tmp_path):
    table = _read(tmp_path, "- A-1\n- {device_identifier: [x]}\n- {name: only}\n", "d.yaml")
    assert [bad.line for bad in table.bad] == [2, 3]
    assert _rows(table) == [(1, "A-1", "p-0", "")]


def test_columns_that_mean_nothing_are_said(tmp_path):
    assert _read(tmp_path, "device_identifier,colour\nA,red\n").ignored_columns == ("colour",)


def test_the_command_takes_a_table_and_lists_bad_rows_on_standard_error(tmp_path):
    source = tmp_path / "devices.csv"
    source.write_text("device_identifier;name\nA-1;Hall 1\nA-1;Hall 2\n")
    arguments = ["make", "--from", str(source), "--product-id", "p", "--out", str(tmp_path / "out"), "--jobs", "1"]
    refused = CliRunner().invoke(labels_command, [*arguments, "--decoders", "zxing"])
    assert refused.exit_code == 2
    assert "line 3: 'A-1' stands in line 2 already" in refused.stderr
    made = CliRunner().invoke(labels_command, [*arguments, "--decoders", "zxing", "--skip-bad"])
    assert made.exit_code == 0, made.stderr
    assert "left out: line 3" in made.stdout.replace("\n", " ")
