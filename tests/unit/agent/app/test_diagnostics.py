"""A bundle of diagnostics: what is in it, what is never in it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agent.app import diagnostics
from agent.app.diagnostics import collect
from agent.app.status import StatusFile
from agent.config import load_config
from agent.handlers.base import HandlerRejected
from agent.health import Part
from agent.wire.secret import MASK

SECRET = "msk_canary-one/two+three"
PASSWORD = 'hunter2-"canary'


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

    def collect(self) -> dict[str, Any]:
        """What is in the bundle that it writes."""
        parts = {"readings": Part("failing", 0.0, f"it said {SECRET}")}
        status = StatusFile("running", 1, "1.0", "d1", 0.0, 0.0, "boot", parts)
        result = collect(self.config, self.environ, status, lambda: self.lines)
        return json.loads(gzip.decompress(Path(result["path"]).read_bytes()))


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
    bundle = bench.collect()
    found = json.dumps(bundle)
    assert "canary" not in found
    assert "abc.def.ghi" not in found
    assert len([line for line in bundle["log"] if line.startswith("leaked=")]) == len(bench.lines) - 1
    assert bundle["log"][-1] == "leaked=TOKEN_FILE=/etc/not-a-secret"
    assert bundle["configuration"]["executables"]["door"]["environment"] == {"DOOR_TOKEN": MASK, "PIN": "4"}


def test_one_that_still_holds_a_secret_is_not_written(bench, monkeypatch):
    monkeypatch.setattr(diagnostics, "_masked", lambda value, _secrets: value)
    bench.lines.append(SECRET)
    with pytest.raises(HandlerRejected, match="secret_found"):
        bench.collect()
    assert not (bench.folder / diagnostics.FILE_NAME).exists()


def test_a_part_that_cannot_be_made_says_so_and_the_others_are_there(bench):
    (bench.folder / "starts.json").write_bytes(b"no JSON at all")
    bundle = bench.collect()
    assert bundle["starts"].startswith("could not be made: JSONDecodeError")
    assert bundle["log"] == bench.lines
