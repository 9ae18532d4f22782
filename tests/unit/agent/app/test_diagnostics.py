"""A bundle of diagnostics: what is in it, what is never in it, and how much there may be of it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from agent.app import diagnostics
from agent.app.diagnostics import collect
from agent.app.status_file import StatusFile
from agent.config import load_config
from agent.handlers.base import HandlerRejected
from agent.handlers.maintenance import CollectDiagnostics
from agent.runtime.health import Part

SECRET = "msk_canary-one/two+three"
PASSWORD = 'hunter2-"canary'
BOUNDS = CollectDiagnostics.Settings(max_bytes=1024 * 1024, keep=3)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = ["level=info agent=ready"]
        self.environ: dict[str, str] = {"MY_PASSWORD": PASSWORD, "TOKEN_FILE": "/etc/not-a-secret"}
        for name, text in (("api_key", "mk_canary"), ("secret_key", SECRET)):
            (folder / name).write_text(text + "\n")
            (folder / name).chmod(0o600)
        (folder / "config.yaml").write_text(
            "service: {base_url: 'https://api.example.com'}\ndevice: {device_id: d1}\n"
            f"auth: {{allow_secret_key_on_device: true, api_key_file: '{folder}/api_key', "
            f"secret_key_file: '{folder}/secret_key'}}\nstate_dir: '{folder}'\n"
            f"executables: {{door: {{argv: [/bin/true], environment: {{DOOR_TOKEN: 'door-canary', PIN: '4'}}}}}}\n"
        )
        self.config = load_config(folder / "config.yaml", {}).config

    def collect(self, bounds: CollectDiagnostics.Settings = BOUNDS) -> dict:
        parts = {"readings": Part("failing", 0.0, f"it said {SECRET}")}
        status = StatusFile("running", 1, "1.0", "d1", 0.0, 0.0, "boot", parts)
        return collect(self.config, self.environ, status, lambda: self.lines, bounds)

    def files(self, result: dict) -> dict[str, bytes]:
        with tarfile.open(result["path"]) as tar:
            return {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry)) is not None}


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


def test_no_secret_of_this_device_is_in_it(bench, tmp_path):
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "token").write_text("from-systemd-canary\n")
    bench.environ["CREDENTIALS_DIRECTORY"] = str(credentials)
    told = [SECRET, PASSWORD, PASSWORD.replace('"', '\\"'), "door-canary", "mk_canary", "from-systemd-canary"]
    bench.lines += [
        f"leaked={text}" for text in [*told, "Authorization: Bearer abc.def.ghi", "TOKEN_FILE=/etc/not-a-secret"]
    ]
    files = bench.files(bench.collect())
    found = b"".join(files.values())
    assert b"canary" not in found
    assert b"abc.def.ghi" not in found
    assert files["diagnostics/log.txt"].count(b"leaked=") == len(bench.lines) - 1
    assert b"/etc/not-a-secret" in files["diagnostics/log.txt"]
    assert b"PIN: '4'" in files["diagnostics/configuration.yaml"]


def test_one_that_still_holds_a_secret_is_not_written(bench, monkeypatch):
    monkeypatch.setattr(diagnostics, "_masked", lambda text, _secrets: text)
    bench.lines.append(SECRET)
    with pytest.raises(HandlerRejected, match="secret_found"):
        bench.collect()
    assert not list(bench.folder.glob("diagnostics/*"))


def test_a_part_that_cannot_be_made_says_so_and_the_others_are_there(bench):
    (bench.folder / "starts.json").write_bytes(b"no JSON at all")
    files = bench.files(bench.collect())
    assert b"could not be made: JSONDecodeError" in files["diagnostics/starts.json"]
    assert b"agent=ready" in files["diagnostics/log.txt"]


def test_it_is_cut_to_its_bound_and_the_end_of_the_log_is_kept(bench):
    bench.lines = [*(os.urandom(400).hex() for _ in range(400)), "the=end"]
    result = bench.collect(CollectDiagnostics.Settings(max_bytes=16 * 1024, keep=3))
    assert result["size_bytes"] <= 16 * 1024
    log = bench.files(result)["diagnostics/log.txt"]
    assert log.startswith(b"[cut]")
    assert b"the=end" in log


def test_only_so_many_are_kept(bench):
    names = [Path(bench.collect()["path"]).name for _ in range(5)]
    assert sorted(file.name for file in (bench.folder / "diagnostics").iterdir()) == names[-3:]
