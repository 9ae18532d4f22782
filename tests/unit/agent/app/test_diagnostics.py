"""A bundle of diagnostics: what is in it, what is never in it, and how much there may be of it."""

from __future__ import annotations

import base64
import os
import tarfile
from pathlib import Path

import pytest

from agent.app import diagnostics
from agent.app.diagnostics import collect, secrets_of
from agent.app.status_file import AgentView
from agent.config import load_config
from agent.handlers.upkeep import Bundle, UpkeepRefused
from agent.plugins import PluginInfo, PluginStatus
from agent.runtime.health import Part

SECRET = "msk_canary-one/two+three"
PASSWORD = "hunter2-canary"
BOUNDS = Bundle(max_bytes=1024 * 1024, keep=3, max_age_s=3600.0)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = ["level=info agent=ready"]
        self.environ: dict[str, str] = {"MY_PASSWORD": PASSWORD}
        for name, text in (("api_key", "mk_canary"), ("secret_key", SECRET)):
            (folder / name).write_text(text + "\n")
            (folder / name).chmod(0o600)
        (folder / "config.yaml").write_text(
            "service: {base_url: 'https://api.example.com'}\ndevice: {device_id: d1}\n"
            f"auth: {{allow_secret_key_on_device: true, api_key_file: '{folder}/api_key', "
            f"secret_key_file: '{folder}/secret_key'}}\nstate_dir: '{folder}'\n"
            f"executables: {{door: {{argv: [/bin/true], environment: {{DOOR_TOKEN: '{PASSWORD}-2', PIN: '4'}}}}}}\n"
        )
        self.config = load_config(folder / "config.yaml", {}).config

    def view(self) -> AgentView:
        return AgentView(
            path=self.folder / "config.yaml",
            environ=self.environ,
            config=lambda: self.config,
            parts=lambda: {"readings": Part("failing", 0.0, f"it said {SECRET}")},
            lines=lambda: self.lines,
            store=lambda: None,
            plugins=lambda: [PluginInfo("door", "handler", "x", PluginStatus.READY)],
            mode="normal",
        )

    def collect(self, bounds: Bundle = BOUNDS) -> dict:
        return collect(self.view(), bounds)

    def files(self, result: dict) -> dict[str, bytes]:
        with tarfile.open(result["path"]) as tar:
            return {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry)) is not None}


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


def test_no_secret_is_in_it_however_it_is_spelled(bench):
    spelled = [
        SECRET,
        SECRET.replace("/", "%2F").replace("+", "%2B"),
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        PASSWORD,
        f"{PASSWORD}-2",
        "mk_canary",
        "Authorization: Bearer abc.def.ghi",
    ]
    bench.lines += [f"leaked={text}" for text in spelled]
    found = b"".join(bench.files(bench.collect()).values())
    for text in spelled:
        assert text.encode() not in found
    assert b"canary" not in found
    assert b"abc.def.ghi" not in found
    assert found.count(b"leaked=") == len(spelled)


def test_credentials_of_systemd_are_secrets_too(bench, tmp_path):
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "token").write_text("dat_from-systemd-1234\n")
    bench.environ["CREDENTIALS_DIRECTORY"] = str(folder)
    assert b"dat_from-systemd-1234" in secrets_of(bench.config, bench.environ)


def test_one_that_still_holds_a_secret_is_not_written(bench, monkeypatch):
    monkeypatch.setattr(diagnostics, "_masked", lambda text, _secrets: text.encode())
    bench.lines.append(SECRET)
    with pytest.raises(UpkeepRefused, match="secret_found"):
        bench.collect()
    assert not list(bench.folder.glob("diagnostics/*"))


def test_a_part_that_cannot_be_made_says_so_and_the_others_are_there(bench):
    (bench.folder / "agent.db").write_bytes(b"no database at all" * 100)
    files = bench.files(bench.collect())
    assert b"cannot be read" in files["diagnostics/store.json"]
    assert b"agent=ready" in files["diagnostics/log.txt"]


def test_it_is_cut_to_its_bound_and_the_end_of_the_log_is_kept(bench):
    noise = [os.urandom(400).hex() for _ in range(400)]
    bench.lines = [*noise, "the=end"]
    result = bench.collect(Bundle(64 * 1024, 3, 3600.0))
    assert result["size_bytes"] <= 64 * 1024
    log = bench.files(result)["diagnostics/log.txt"]
    assert log.startswith(b"[cut]")
    assert b"the=end" in log


def test_only_so_many_are_kept_and_none_for_too_long(bench):
    names = [Path(bench.collect()["path"]).name for _ in range(5)]
    there = sorted(file.name for file in (bench.folder / "diagnostics").iterdir())
    assert there == names[-3:]
    for name in there:
        os.utime(bench.folder / "diagnostics" / name, (0, 0))
    last = Path(bench.collect()["path"])
    assert [file.name for file in last.parent.iterdir()] == [last.name]
