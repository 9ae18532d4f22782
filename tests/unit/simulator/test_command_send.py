"""``fleet-simulator command send``: the counter, the signature, and what it says when something is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from agent.wire.signed import make_key_pair, read_trusted_keys
from simulator.cli import program
from simulator.command import CounterFile, KeySigner, read_payload
from tests.support.service_running import running

NOW_NS = 1_767_225_600_000_000_000


def test_a_counter_follows_the_clock_and_grows_also_when_the_clock_goes_back(tmp_path):
    times = iter([NOW_NS, NOW_NS, NOW_NS - 10**18, NOW_NS + 5])
    counter = CounterFile(tmp_path / "counter", lambda: next(times))
    assert [counter.take() for _ in range(4)] == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 5]


def test_a_counter_survives_its_process_and_its_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "counter"
    assert CounterFile(path, lambda: 100).take() == 100
    assert CounterFile(path, lambda: 1).take() == 101
    assert path.read_text() == "101\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_counters_taken_at_the_same_time_differ(tmp_path):
    taken = []

    def take() -> None:
        counter = CounterFile(tmp_path / "counter", lambda: 1)
        taken.extend(counter.take() for _ in range(20))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 81))


@pytest.mark.parametrize("content", ["", "many", "-1", "9" * 40, "\xff"])
def test_a_file_that_holds_no_counter_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "counter"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigurationError, match="--counter-file"):
        CounterFile(path, lambda: 1).take()
    assert path.read_text(encoding="latin-1") == content


def test_a_counter_at_its_end_says_so(tmp_path):
    (tmp_path / "counter").write_text(str(2**63 - 1))
    with pytest.raises(ConfigurationError, match="new key"):
        CounterFile(tmp_path / "counter", lambda: 1).take()


def test_a_counter_that_cannot_be_kept_is_not_given_out(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        CounterFile(tmp_path / "none" / "counter", lambda: 1).take()


def test_a_signer_signs_for_the_device_and_counts(tmp_path):
    make_key_pair(tmp_path / "k")
    signer = KeySigner(tmp_path / "k.key", CounterFile(tmp_path / "counter", lambda: 7), 60.0)
    trusted = read_trusted_keys([tmp_path / "k.pub"])
    opened = [trusted.open(signer.sign("d1", {"command": "ping"})) for _ in range(2)]
    assert [(each.device_id, each.counter, each.payload) for each in opened] == [
        ("d1", 7, {"command": "ping"}),
        ("d1", 8, {"command": "ping"}),
    ]
    assert opened[0].id != opened[1].id


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
        return CliRunner().invoke(
            program, [*words, "--payload", payload, *more], auto_envvar_prefix="FLEET_SIMULATOR", standalone_mode=False
        )

    def test_an_unsigned_command_is_sent_as_it_is(self, bench, tmp_path):
        done = self.send(bench, tmp_path, "--json", "--ttl", "60")
        record = json.loads(done.output)
        assert record["command_payload"] == {"command": "ping"}
        assert record["status"] == "queued"

    def test_a_signed_command_is_sent_in_its_envelope(self, bench, tmp_path):
        make_key_pair(tmp_path / "k")
        done = self.send(bench, tmp_path, "--json", "--sign", str(tmp_path / "k.key"), "--lifetime", "5")
        record = json.loads(done.output)
        opened = read_trusted_keys([tmp_path / "k.pub"]).open(record["command_payload"])
        assert opened.device_id == record["device_id"]
        assert opened.payload == {"command": "ping"}
        assert (tmp_path / "k.key.counter").read_text() == f"{opened.counter}\n"

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
        "from simulator.command import KeySigner\n"
        "try:\n    KeySigner(Path('k'), None, 1).sign('d', {})\n"
        "except Exception as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install '.[device]' in a clone of device-agent" in done.stdout
