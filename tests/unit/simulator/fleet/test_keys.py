from __future__ import annotations

import subprocess

import pytest

from agent.errors import ConfigurationError
from agent.wire.secret import KeyPair
from simulator.keys import curl_line, keep_keys


def test_made_keys_are_good_for_the_client_and_never_the_same(tmp_path):
    first, second = keep_keys(tmp_path / "one"), keep_keys(tmp_path / "two")
    KeyPair(first.api_key, first.secret_key)
    assert first.secret_key != second.secret_key
    assert first.secret_path == tmp_path / "one" / "secret_key"


def test_keys_are_kept_over_two_starts_in_files_of_mode_600(tmp_path):
    first = keep_keys(tmp_path / "keys")
    second = keep_keys(tmp_path / "keys")
    assert (first.api_key, first.secret_key) == (second.api_key, second.secret_key)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "keys").iterdir())


def test_a_place_that_cannot_keep_keys_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"):
        keep_keys(tmp_path / "file" / "keys")


def test_a_curl_line_reads_the_secret_from_its_file(tmp_path):
    keys = keep_keys(tmp_path)
    line = curl_line("http://127.0.0.1:1", keys, "/products", '{"name": "x"}')
    assert keys.secret_key.reveal() not in line
    printed = tmp_path / "secret"
    with printed.open("wb") as words_file:
        subprocess.run(["sh", "-c", line.replace("curl", "printf '%s\\n'", 1)], check=True, stdout=words_file)
    words = printed.read_text().splitlines()
    assert f"x-secret-key: {keys.secret_key.reveal()}" in words
    assert '{"name": "x"}' in words
    assert words[-1] == "http://127.0.0.1:1/products"
