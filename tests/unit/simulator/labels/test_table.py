"""Devices out of CSV and YAML."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from simulator.labels import LabelError, make_labels, read_label_files
from simulator.labels.batch.rows import read_table, rows_sha256
from simulator.labels.cli import labels_command
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
        "sep=;\n" + PLAIN.replace(",", ";"),
        b"\xef\xbb\xbfsep=,\r\n" + PLAIN.encode(),
        "device_identifier,product_id,name\nA-1,p-1,Büro\nA-2\n",
        "device_identifier,product_id,name\nA-1,p-1,Büro,,\nA-2,,,,\n",
    ],
)
def test_every_common_dialect_gives_the_same_rows(tmp_path, data):
    table = _read(tmp_path, data)
    assert [row[1:] for row in _rows(table)] == [row[1:] for row in GOOD]
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
        (b"PK\x03\x04...", "d.xlsx", "save it there as 'CSV UTF-8'"),
        (b"\xd0\xcf\x11\xe0...", "d.xls", "save it there as 'CSV UTF-8'"),
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


def test_onboarding_takes_the_device_of_two_tables_once(tmp_path):
    for name, identifiers in (("a", ("A-1", "A-2")), ("b", ("A-2", "A-3"))):
        source = tmp_path / f"{name}.csv"
        source.write_text("device_identifier,product_id\n" + "".join(f"{one},p\n" for one in identifiers))
        make_labels(devices=source, out=tmp_path / "batches" / name, formats=["png"])
    folders = [tmp_path / "batches" / name for name in ("a", "b")]
    for pictures in (False, True):
        found = find_labels(folders, pictures=pictures)
        assert [one.device_identifier for one in found.subjects] == ["A-1", "A-2", "A-3"]
        assert found.copies == 1


def test_a_broken_yaml_entry_is_a_bad_row_with_its_line(tmp_path):
    table = _read(tmp_path, "- A-1\n- {device_identifier: [x]}\n- {name: only}\n", "d.yaml")
    assert [bad.line for bad in table.bad] == [2, 3]
    assert _rows(table) == [(1, "A-1", "p-0", "")]


def _make_from(tmp_path, data):
    """The command's result for a table, as a user has it."""
    source = tmp_path / "devices.csv"
    source.write_bytes(data)
    arguments = ["make", "--from", str(source), "--product-id", "p", "--out", str(tmp_path / "out"), "--formats", "png"]
    return CliRunner().invoke(labels_command, arguments)


def test_every_bad_row_is_named_with_its_line_and_nothing_is_made(tmp_path):
    refused = _make_from(
        tmp_path,
        b"device_identifier,product_id,name\nA-1,p,\n,p,\nA-1,p,\nA-2,p,x,y\nA-4,p,x\x07\n"
        + b"L" * 600
        + b",p,\nA-9,p,\n",
    )
    assert refused.exit_code == 2
    assert "5 bad row(s) beside 2 good one(s), nothing was made" in refused.stderr
    lines = dict(line.strip().removeprefix("line ").split(": ", 1) for line in refused.stderr.splitlines()[1:])
    assert list(lines) == ["3", "4", "5", "6", "7"]
    assert "no device_identifier" in lines["3"]
    assert "line 2 already" in lines["4"]
    assert "4 columns where the first line names 3" in lines["5"]
    assert "control characters" in lines["6"]
    assert "no label for product 'p'" in lines["7"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("8,68401E+14", "scientific notation"),
        ("3.59881E+14", "scientific notation"),
        ("1E+15", "scientific notation"),
        ('="0012345"', "a formula"),
        ("'0012346", "apostrophe"),
        ("#NV", "in place of a value"),
        ("#N/A", "in place of a value"),
        ("#DIV/0!", "in place of a value"),
        ("#NAME?", "in place of a value"),
        ("########", "in place of a value"),
        ("868401000000123.00", "formatted"),
        ("868.401.000.000.123", "formatted"),
        ("86840100000012300000", "rounded to 15 digits"),
        ("01.12.2026", "a date"),
        ("SN-\N{REPLACEMENT CHARACTER}-1", "lost a character"),
    ],
)
def test_what_a_spreadsheet_made_of_an_identifier_is_refused_with_row_and_reason(tmp_path, cell, word):
    refused = _make_from(tmp_path, f"device_identifier;name\nA-1;Hall 1\n{cell};Hall 2\n".encode("utf-8-sig"))
    assert refused.exit_code == 2
    assert re.search(f"line 3: .*{word}", refused.stderr), refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "cell",
    [
        "123E45",
        "1E5",
        "5E-0012",
        "868401000000123",
        "0012345",
        "#12",
        "10.100.200.100",
        "1.2.3",
        "A=1",
        "8684010000001230",
        "-1",
        "TRUE",
    ],
)
def test_an_identifier_that_only_resembles_one_of_these_is_a_label(tmp_path, cell):
    made = _make_from(tmp_path, f"device_identifier;name\n{cell};Hall 1\n".encode())
    assert made.exit_code == 0, made.stderr
    [read] = read_label_files(tmp_path / "out")
    assert read.label.device_identifier == cell


def test_a_table_in_windows_1252_is_read_with_a_note_and_no_identifier_is_guessed(tmp_path):
    made = _make_from(tmp_path, "device_identifier;name;colour\nA-1;Büro;red\n".encode("cp1252"))
    assert made.exit_code == 0, made.stderr
    told = made.stdout.replace("\n", " ")
    assert "devices.csv is no UTF-8 and was read as Windows-1252" in told
    assert "column(s) of devices.csv that mean nothing here: colour" in told
    refused = _make_from(tmp_path, "device_identifier\nGerät-1\n".encode("cp1252"))
    assert refused.exit_code == 2
    assert "line 2: 'Gerät-1': letters beyond ASCII in a table that is no UTF-8" in refused.stderr
