"""``fleet-simulator command send``: the counter, the signature, and what it says when something is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from agent.wire.signed import make_key_pair, read_trusted_keys
from simulator.cli import program
from simulator.command import read_payload, take_counter
from tests.support.service_running import running

NOW_NS = 1_767_225_600_000_000_000


def test_a_counter_follows_the_clock_and_grows_also_when_the_clock_goes_back(tmp_path):
    path = tmp_path / "counter"
    times = [NOW_NS, NOW_NS, NOW_NS - 10**18, NOW_NS + 5]
    assert [take_counter(path, now_ns) for now_ns in times] == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 5]
    assert path.read_text() == f"{NOW_NS + 5}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_counters_taken_at_the_same_time_differ(tmp_path):
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda _: take_counter(tmp_path / "counter", 1), range(80)))
    assert sorted(taken) == list(range(1, 81))


@pytest.mark.parametrize("content", ["", "many", "-1", "9" * 40, "\xff", str(2**63 - 1)])
def test_a_file_that_holds_no_counter_or_the_last_one_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "counter"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigurationError, match="new key" if content == str(2**63 - 1) else "--counter-file"):
        take_counter(path, 1)
    assert path.read_text(encoding="latin-1") == content


def test_a_counter_that_cannot_be_kept_is_not_given_out(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        take_counter(tmp_path / "none" / "counter", 1)


@pytest.mark.parametrize("text", ["", "[]", "{", "1", '{"a":1,"a":2}', "\udc80"])
def test_a_payload_that_is_no_object_is_refused(text):
    with pytest.raises(ConfigurationError, match="--payload"):
        read_payload(text, Path.read_bytes)


def test_a_payload_comes_from_a_file_too():
    assert read_payload("@-", lambda name: b'{"command":"x"}' if name == "-" else b"") == {"command": "x"}


class TestTheCommand:
    @pytest.fixture
    def bench(self):
        with running() as bench:
            yield bench

    def send(self, bench, folder: Path, *more: str, payload: str = '{"command":"ping"}', device: str | None = None):
        (folder / "secret").write_text(bench.service.secret_key.reveal())
        words = ["command", "send", "--base-url", bench.service.base_url, "--api-key", bench.service.api_key]
        words += ["--secret-key-file", str(folder / "secret"), "--device", device or bench.device()]
        return CliRunner().invoke(program, [*words, "--payload", payload, *more], standalone_mode=False)

    def test_an_unsigned_command_is_sent_as_it_is(self, bench, tmp_path):
        done = self.send(bench, tmp_path, "--json", "--ttl", "60")
        record = json.loads(done.output)
        assert record["command_payload"] == {"command": "ping"}
        assert record["status"] == "queued"

    def test_a_signed_command_is_sent_in_its_envelope(self, bench, tmp_path):
        make_key_pair(tmp_path / "k")
        signed = ("--json", "--sign", str(tmp_path / "k.key"), "--lifetime", "5")
        records = [json.loads(self.send(bench, tmp_path, *signed).output) for _ in range(2)]
        trusted = read_trusted_keys([tmp_path / "k.pub"])
        first, second = (trusted.open(record["command_payload"]) for record in records)
        assert (first.device_id, first.payload) == (records[0]["device_id"], {"command": "ping"})
        assert first.id != second.id
        assert first.counter < second.counter
        assert (tmp_path / "k.key.counter").read_text() == f"{second.counter}\n"

    def test_a_command_that_does_not_end_in_time_is_a_failed_check(self, bench, tmp_path):
        done = self.send(bench, tmp_path, "--wait", "0.01")
        assert done.return_value == 1
        assert "queued" in done.output

    @pytest.mark.parametrize(
        ("more", "code", "words"),
        [
            (["--counter-file", "c"], 2, "--sign"),
            (["--lifetime", "5"], 2, "--sign"),
            (["--sign", "/none/k.key"], 2, "cannot be read"),
            (["--token-file", "t"], 2, "--token-file alone"),
            (["--device", "nobody"], 1, "device_not_found"),
            (["--payload", "{"], 2, "JSON"),
            (["--secret-key-file", "/none"], 2, "--secret-key-file"),
            (["--base-url", "http://127.0.0.1:1"], 5, "127.0.0.1"),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line(self, bench, tmp_path, more, code, words):
        done = self.send(bench, tmp_path, *more)
        assert done.return_value == code, done.output
        assert words in done.output
        assert len(done.output.strip().splitlines()) == 1


def test_without_the_extra_the_fix_is_named(tmp_path):
    missing = tmp_path / "cryptography"
    missing.mkdir()
    (missing / "__init__.py").write_text("raise ModuleNotFoundError('not here', name='cryptography')\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from simulator.command import sign_payload\n"
        "try:\n    sign_payload(Path('k'), Path('c'), 1, 'd', {})\n"
        "except Exception as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install '.[device]' in a clone of device-agent" in done.stdout
