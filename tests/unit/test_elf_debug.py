"""Compiled libraries without their debugging information, judged by binutils and by what they do."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require_program
from tools.elf_debug import without_debug

LIBRARIES = ("httptools.parser.url_parser", "yaml._yaml", "uvloop.loop", "_cffi_backend")


def compiled(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def loaded_parts(readelf: str, path: Path) -> list[bytes]:
    """What the kernel maps of it, by readelf's list of its segments."""
    shown = subprocess.run((readelf, "--segments", "--wide", path), capture_output=True, text=True, check=True).stdout
    data = path.read_bytes()
    spans = re.findall(r"^\s+(?:LOAD|DYNAMIC)\s+(0x\w+) 0x\w+ 0x\w+ (0x\w+)", shown, re.MULTILINE)
    return [data[int(offset, 16) : int(offset, 16) + int(size, 16)] for offset, size in spans]


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_loaded_stays_and_the_debugging_information_is_gone(name, tmp_path):
    readelf = require_program("readelf", "binutils")
    original, cut = compiled(name), tmp_path / compiled(name).name
    cut.write_bytes(without_debug(original.read_bytes()))
    shown = subprocess.run(
        (readelf, "--sections", "--symbols", "--wide", cut), capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    sizes = re.findall(r"\.z?debug_\w+\s+\w+\s+\w+ \w+ (\w+)", shown.stdout)
    assert all(int(size, 16) == 0 for size in sizes)
    # The header itself names the place of the section table, and nothing else differs in what is mapped.
    ours, theirs = loaded_parts(readelf, cut), loaded_parts(readelf, original)
    assert [part[64:] if part.startswith(b"\x7fELF") else part for part in ours] == [
        part[64:] if part.startswith(b"\x7fELF") else part for part in theirs
    ]
    assert without_debug(cut.read_bytes()) == without_debug(without_debug(cut.read_bytes()))
    symbols = subprocess.run((readelf, "--symbols", "--wide", original), capture_output=True, text=True, check=True)
    assert shown.stdout.count(" FUNC ") == symbols.stdout.count(" FUNC ")


def test_a_library_without_it_is_imported(tmp_path):
    original = compiled("yaml._yaml")
    cut = tmp_path / original.name
    cut.write_bytes(without_debug(original.read_bytes()))
    assert cut.stat().st_size < original.stat().st_size / 2
    load = "spec = importlib.util.spec_from_file_location('yaml._yaml', sys.argv[1])"
    use = "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)"
    program = f"import importlib.util, sys; {load}; {use}; print(module.get_version_string())"
    done = subprocess.run((sys.executable, "-c", program, str(cut)), capture_output=True, text=True, check=False)
    assert re.fullmatch(r"\d+\.\d+\.\d+", done.stdout.strip()), done.stderr


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(80)])
def test_what_is_no_such_library_stays_as_it_is(data):
    assert without_debug(data) == data
