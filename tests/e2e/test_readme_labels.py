"""What the README shows of labels and onboarding runs as it stands there, against the service that it starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("fleet-simulator")
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def test_the_lines_about_labels_and_onboarding_run_as_they_are_shown(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^    (fleet-simulator up [^\n]*--data try.*?)\n\n", readme, re.MULTILINE | re.DOTALL)
    start, *lines = [line.strip() for line in shown.splitlines()]
    port = free_port()
    environment = {
        **os.environ,
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "FLEET_SIMULATOR_UP_PORT": str(port),
        "FLEET_SIMULATOR_UP_GATEWAY_PORT": "0",
        "FLEET_SIMULATOR_UP_RATE_LIMIT": "0",  # else the cases wait for the next minute
        "FLEET_SIMULATOR_UP_JSON": "1",
    }
    up = subprocess.Popen(start.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        told = json.loads(up.stdout.readline())
        headers = {"x-api-key": told["api_key"], "x-secret-key": told["secret_key"]}
        products = httpx.get(f"{told['base_url']}/products", headers=headers, trust_env=False).json()["data"]
        script = (
            "\n".join(lines)
            .replace("127.0.0.1:8080", f"127.0.0.1:{port}")
            .replace(" ID ", f" {products[0]['product_id']} ")
        )
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 of 24 labels went the whole way for user me" in done.stdout
    report = json.loads((tmp_path / "cases" / "report.json").read_text())
    assert report["passed"]
    assert report["counts"]["skipped"] == 0, "the second account plays the cases with strangers"
    assert report["counts"]["failed"] == 0
