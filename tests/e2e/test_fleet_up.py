"""``fleet-simulator up`` as its users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx

UP = [str(Path(sys.executable).with_name("fleet-simulator")), "up", "--port=0", "--json"]


def run_program(program: list[str] | str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program, check=False, capture_output=True, text=True, **options)


def start(*options: str) -> tuple[subprocess.Popen[str], dict]:
    process = subprocess.Popen(
        [*UP, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, json.loads(line)


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    return process.returncode


def devices_of(told: dict) -> list[dict]:
    headers = {"x-api-key": told["api_key"], "x-secret-key": told["secret_key"]}
    answer = httpx.get(f"{told['base_url']}/devices", headers=headers, trust_env=False)
    assert answer.status_code == 200
    return answer.json()["data"]


def test_up_brings_a_service_and_devices_and_ctrl_c_ends_both():
    process, told = start("--devices=3")
    try:
        assert {device["device_id"] for device in devices_of(told)} == set(told["device_ids"])
        assert len(told["device_ids"]) == 3
    finally:
        code = end(process)
    assert code == 0


def test_a_data_folder_keeps_keys_and_devices_over_two_starts(tmp_path):
    process, first = start("--devices=2", f"--data={tmp_path / 'data'}")
    assert end(process) == 0
    process, second = start("--devices=2", f"--data={tmp_path / 'data'}")
    try:
        assert second["device_ids"] == first["device_ids"]
        assert second["secret_key"] == first["secret_key"]
        assert len(devices_of(second)) == 2
    finally:
        end(process)
    assert (tmp_path / "data" / "keys" / "secret_key").stat().st_mode & 0o077 == 0


def refused(*options: str) -> str:
    done = run_program([*UP, *options], timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_settings_that_cannot_be_used_are_refused_with_2_and_the_fix(tmp_path):
    assert "give --devices too" in refused("--product=x.yaml")
    (tmp_path / "p.yaml").write_text("category: x")
    assert "name: Field required" in refused("--devices=1", f"--product={tmp_path / 'p.yaml'}")
    (tmp_path / "file").write_text("")
    assert "file" in refused(f"--data={tmp_path / 'file' / 'data'}")
