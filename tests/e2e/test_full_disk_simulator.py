"""``fleet-simulator`` on a disk that is full, or read-only: one line, the documented code, and nothing half-written."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.cli import main
from simulator.fleet.report.making import make_reports
from simulator.fleet.report.writing import read_record
from simulator.keys import keep_keys
from simulator.labels.corpus.collection import collect
from simulator.labels.damage.making import damage_labels
from simulator.labels.payload import label_text
from simulator.labels.symbol.decoders import Zxing
from tests.conftest import ON_CI
from tests.service_running import running

pytestmark = pytest.mark.long

ROOMS = (0, 4096, 12_288, 28_672, 65_536)
RUN_RESERVES = 1024 * 1024
"""What a fleet run keeps for its record."""
"""Bytes that a disk still takes: at each, another write is the one that fails."""
SCENARIO = """
scenario: tiny
seed: 1
target: {base_url: "http://127.0.0.1:1", transport: http_poll}
fleet:
  product: climate-node
  devices: 1
  models:
    - name: climate
      signals: {temperature_celsius: {kind: random_walk, start: 21, step: 0.09}}
      telemetry: {every_s: 250ms}
phases:
  - {name: hold, kind: hold, duration_s: 1s}
"""


@pytest.fixture
def disk(tmp_path, require_program) -> Iterator[Path]:
    """A file system of its own, which is small and empty; only root may mount one."""
    mount, umount = require_program("mount"), require_program("umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        reason = f"no file system can be mounted here: {done.stderr.decode().strip()}"
        pytest.fail(reason) if ON_CI else pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run([umount, "--lazy", folder], check=True)


@pytest.fixture(scope="module", name="bench")
def _bench():
    with running() as bench:
        yield bench


@dataclass(frozen=True)
class Ended:
    code: int
    errors: list[str]
    """Lines on standard error, without those of progress."""


@pytest.fixture(name="play")
def _play(capsys) -> Callable[..., Ended]:
    def play(*arguments: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        lines = [line for line in told.err.splitlines() if line.strip() and " of " not in line]
        return Ended(int(end.value.code or 0), lines)

    return play


@pytest.fixture(name="keys")
def _keys(bench, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(bench.service.secret_key.reveal())
    secret.chmod(0o600)
    return ["--api-key", bench.service.api_key, "--secret-key-file", secret]


@pytest.fixture(name="label", scope="module")
def _label(tmp_path_factory):
    folder = tmp_path_factory.mktemp("label")
    with pytest.raises(SystemExit):
        main(["labels", "make", "--product-id", "p-1", "--count", "1", "--formats", "png", "--out", str(folder)])
    return folder / "SIM-000001.png"


def fill(disk: Path, room: int) -> Path:
    """Leave so many bytes; the file that takes the rest."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        file.truncate(file.tell() - room)
    return ballast


@pytest.fixture(name="commands")
def _commands(label, keys, bench, tmp_path):
    """Each command that writes files, with its files in a folder."""
    product_id = bench.product()
    onboarded = tmp_path / "onboarded"
    onboarded.mkdir()
    text = {"text": label_text(product_id, "SN-1"), "product_id": product_id, "identifier": "SN-1"}
    (onboarded / "manifest.json").write_text(json.dumps({"format": "device-agent/labels/1", "labels": [text]}))
    url = bench.service.base_url
    way = ["--base-url", url, *keys]
    labels = [onboarded, *way, "--user-id", "u-1"]
    one_case = [*way, "--only", "unregistered.scan"]
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(SCENARIO)
    make = ["labels", "make", "--product-id", "p-1", "--count", 3, "--jobs", 1]
    damage = ["labels", "damage", label, "--kinds", "blur", "--severities", "0.5", "--no-flip", "--jobs", 1]
    return {
        "labels make": lambda out: [*make, "--formats", "png,svg,pdf,zpl,html", "--out", out / "L"],
        "its ledger": lambda out: [*make, "--formats", "png", "--ledger", out / "x" / "led", "--out", tmp_path / "L"],
        "labels keygen": lambda out: ["labels", "keygen", "--out", out / "key"],
        "labels style": lambda out: ["labels", "style", "hello", "--out", out / "style.png"],
        "labels corpus": lambda out: ["labels", "corpus", "--out", out / "corpus", "--replace"],
        "labels damage": lambda out: [*damage, "--out", out / "damaged"],
        "must-fail": lambda out: [*damage, "--out", tmp_path / "damaged", "--must-fail", out / "unread"],
        "labels verify": lambda out: ["labels", "verify", label, "--annotate", out / "boxes", "--csv", out / "t.csv"],
        "init": lambda out: ["init", "--out", out / "s.yaml"],
        "probe": lambda out: ["probe", url, *keys, "--html", out / "probe.html"],
        "campaign": lambda out: ["onboard", "campaign", *labels, "--out", out / "campaign"],
        "onboard labels": lambda out: ["onboard", "labels", *labels, "--manifest", "--out", out / "labels"],
        "cases": lambda out: ["onboard", "cases", *one_case, "--out", out / "cases"],
        "profile": lambda out: ["onboard", "profile", out / "p.json", *one_case],
        "run": lambda out: ["run", scenario, *way, "--out", out / "run", "--quiet"],
        "demo": lambda out: ["demo", "--out", out / "demo"],
        "up": lambda out: ["up", "--port", 0, "--no-gateway", "--data", out / "data"],
        "service": lambda out: ["service", "--port", 0, "--data", out / "data"],
    }


AGAIN = (
    "labels make",
    "its ledger",
    "labels keygen",
    "labels style",
    "labels corpus",
    "labels damage",
    "must-fail",
    "labels verify",
    "init",
    "plan",
    "probe",
    "profile",
)
"""Those that can be given again as they were, once there is room."""


@pytest.fixture
def fewer(monkeypatch):
    """A corpus of a few payloads, and damage that zxing alone judges, in this process: the same files are written."""
    monkeypatch.setattr("simulator.labels.corpus.run.collect", lambda setting: collect(setting)[::20])
    monkeypatch.setattr("simulator.labels.damage.making.make_extra", lambda *_: ())
    alone = {"jobs": None, "decoders": [Zxing()]}
    monkeypatch.setattr(
        "simulator.labels.cli.damage.damage_labels",
        lambda labels, **options: damage_labels(labels, **options | alone),
    )


@pytest.mark.usefixtures("fewer")
@pytest.mark.parametrize("name", AGAIN)
def test_a_full_disk_is_one_line_and_with_room_the_same_command_makes_everything(name, commands, disk, play):
    command = commands[name]
    refused = 0
    for room in ROOMS:
        out = disk / str(room)
        out.mkdir()
        ballast = fill(disk, room)
        ended = play(*command(out))
        ballast.unlink()
        if ended.code:
            refused += 1
            assert ended.code == 2
            assert len(ended.errors) == 1, ended.errors
            assert "No space left on device; make room there, or give another --" in ended.errors[0]
            again = play(*command(out))
            assert again.code == 0, again.errors
        shutil.rmtree(out)
    assert refused


def check_full_run(folder: Path, code: int) -> None:
    """A disk that became full while the run went on: its record says what happened, and so does each later report."""
    record = read_record(folder)
    assert (record.ended_at != "", record.verdict.exit_code) == (True, 3)
    assert code == 3
    assert "seconds are missing in the run's folder" in " ".join(record.verdict.sentences)
    made = make_reports(folder)
    assert made.missing == ()
    assert made.record.verdict.sentences[: len(record.verdict.sentences)] == record.verdict.sentences


@pytest.mark.parametrize(("name", "code"), [("campaign", 2), ("onboard labels", 2), ("cases", 2), ("run", 2)])
def test_a_run_whose_disk_is_full_is_one_line_and_no_pass(name, code, commands, disk, play):
    refused = 0
    for room in (0, 12_288, RUN_RESERVES + 12_288) if name == "run" else ROOMS:
        out = disk / str(room)
        out.mkdir()
        ballast = fill(disk, room)
        ended = play(*commands[name](out))
        ballast.unlink()
        if room == 0:
            assert ended.code == 2, "nothing was sent"
        if ended.errors:
            refused += 1
            assert ended.code in {2, code}
            assert len(ended.errors) == 1, ended.errors
            assert "No space left on device" in ended.errors[0]
        made = {path.name for path in out.rglob("*")}
        assert ended.code or {"report.html", "junit.xml"} < made
        if room > RUN_RESERVES:
            check_full_run(next(out.rglob("run.json")).parent, ended.code)
        shutil.rmtree(out)
    assert refused


@pytest.mark.parametrize("name", ["demo", "up", "service"])
def test_a_full_disk_when_it_starts_is_one_line(name, commands, disk, play):
    fill(disk, 0)
    ended = play(*commands[name](disk))
    assert ended.code == 2
    assert len(ended.errors) == 1, ended.errors
    assert "No space left on device" in ended.errors[0] or "disk is full" in ended.errors[0]


def test_keys_that_a_full_disk_refused_are_not_taken_for_keys(commands, disk):
    ballast = fill(disk, 4096)
    with pytest.raises(ConfigurationError, match="another --data"):
        keep_keys(disk / "keys")
    ballast.unlink()
    keys = keep_keys(disk / "keys")
    assert keys.api_key.startswith("mk_")
    assert keys.secret_key.reveal().startswith("msk_")
    assert keep_keys(disk / "keys") == keys


@pytest.mark.parametrize("name", [*AGAIN, "campaign", "onboard labels", "cases", "run", "demo", "up", "service"])
@pytest.mark.parametrize("where", ["read-only", "no folder"])
def test_a_folder_that_cannot_be_written_is_one_line(name, where, commands, disk, play):
    if where == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        out = disk
    else:
        out = disk / "file"
        out.write_text("no folder")
    ended = play(*commands[name](out))
    assert ended.code == 2 or (name, ended.code) == ("run", 5)
    assert len(ended.errors) == 1, ended.errors
    assert any(word in ended.errors[0] for word in ("Read-only file system", "Not a directory", "File exists"))
