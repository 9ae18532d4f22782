"""Labels out of CSV as people export it."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from simulator.cli import program
from simulator.labels.errors import LabelError
from simulator.labels.payload import Payload
from simulator.labels.reading import read_labels
from simulator.labels.table import read_table

PLAIN = "device_identifier,product_id,name\nA-1,p-1,Büro\nA-2,,\n"


def _read(tmp_path, data, name="devices.csv"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(path, product_id="p-0", payload=Payload())


def _make_from(tmp_path, data):
    """The command's result for a table, as a user has it."""
    source = tmp_path / "devices.csv"
    source.write_bytes(data)
    arguments = ["make", "--from", str(source), "--product-id", "p", "--out", str(tmp_path / "out"), "--formats", "png"]
    return CliRunner().invoke(program, ["labels", *arguments])


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
    orders, notes = _read(tmp_path, data)
    rows = [(order.serial, order.identifier, order.product_id, order.name) for order in orders]
    assert rows == [(1, "A-1", "p-1", "Büro"), (2, "A-2", "p-0", "")]
    assert notes == []


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        ("", "d.csv", "names no column device_identifier"),
        ("a,b\n1,2\n", "d.csv", "names no column device_identifier"),
        ("name,name,device_identifier\n", "d.csv", "twice"),
        ("device_identifier\n", "d.csv", "no row that a label can be made of"),
        ('"device_identifier\n', "d.csv", "check the quotes"),
        (b"\xff\xfea", "d.csv", "UTF-16"),
        (b"PK\x03\x04...", "d.xlsx", "save it there as 'CSV UTF-8'"),
        (b"\xd0\xcf\x11\xe0...", "d.xls", "save it there as 'CSV UTF-8'"),
    ],
)
def test_a_file_that_is_no_table_is_one_line_that_names_the_fix(tmp_path, data, name, words):
    with pytest.raises(LabelError, match=words) as caught:
        _read(tmp_path, data, name)
    assert "\n" not in str(caught.value)


def test_every_bad_row_is_named_with_its_line_and_nothing_is_made(tmp_path):
    refused = _make_from(
        tmp_path,
        b'device_identifier,product_id,name\nA-1,p,"two\nlines"\nA-3,p,\n,p,x\nA-3,p,\nA-2,p,x,y\nA-4,p,x\x07\n'
        + b"L" * 600
        + b',p,\nA-9,p,\nA-"5"x,p,\n"A"6,p,\n',
    )
    assert refused.exit_code == 2
    assert "7 bad row(s) beside 3 good one(s), nothing was made" in refused.stderr
    lines = dict(line.strip().removeprefix("line ").split(": ", 1) for line in refused.stderr.splitlines()[1:])
    assert list(lines) == ["2", "5", "6", "7", "8", "9", "12"]
    assert "control characters" in lines["2"]
    assert "no device_identifier" in lines["5"]
    assert "line 4 already" in lines["6"]
    assert "4 columns where the first line names 3" in lines["7"]
    assert "control characters" in lines["8"]
    assert "no label for product 'p'" in lines["9"]
    assert "check the quotes" in lines["12"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("8,68401E+14", "scientific notation"),
        ("3.59881E+14", "scientific notation"),
        ("1E+05", "scientific notation"),
        ('="0012345"', "a formula"),
        ("'0012346", "apostrophe"),
        ("#NV", "in place of a value"),
        ("#DIV/0!", "in place of a value"),
        ("########", "in place of a value"),
        ("868401000000123.00", "formatted"),
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


@pytest.mark.parametrize("cell", ["123E45", "5E-0012", "0012345", "#12", "10.100.200.100", "A=1", "-1", "TRUE"])
def test_an_identifier_that_only_resembles_one_of_these_is_a_label(tmp_path, cell):
    made = _make_from(tmp_path, f"device_identifier;name\n{cell};Hall 1\n".encode())
    assert made.exit_code == 0, made.stderr
    [read] = read_labels([tmp_path / "out"])
    assert read.label.device_identifier == cell


def test_a_table_in_windows_1252_is_read_with_a_note_and_no_identifier_is_guessed(tmp_path):
    made = _make_from(tmp_path, "device_identifier;name;colour\nA-1;Büro;red\n".encode("cp1252"))
    assert made.exit_code == 0, made.stderr
    assert "devices.csv is no UTF-8 and was read as Windows-1252" in made.stdout
    assert "mean nothing here: colour" in made.stdout
    refused = _make_from(tmp_path, "device_identifier\nGerät-1\n".encode("cp1252"))
    assert refused.exit_code == 2
    assert "line 2: 'Gerät-1': letters beyond ASCII in a table that is no UTF-8" in refused.stderr


def test_a_table_and_a_count_of_serials_do_not_go_together(tmp_path):
    source = tmp_path / "d.csv"
    source.write_text("device_identifier\nA-1\n")
    for arguments, words in (
        (["--from", str(source), "--product-id", "p", "--ledger", str(tmp_path / "l")], "not both"),
        (["--from", str(source)], "line 2: 'A-1' has no product_id"),
        (["--from", str(tmp_path / "nowhere.csv")], "give a CSV file to --from"),
        ([], "give --product-id"),
    ):
        refused = CliRunner().invoke(program, ["labels", "make", "--out", str(tmp_path / "out"), *arguments])
        assert refused.exit_code == 2
        assert words in refused.stderr
