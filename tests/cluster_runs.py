"""Runs on a cluster as their user starts them, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simulator.exit_codes import ExitCode
from simulator.keys import write_secret

API_KEY, SECRET_KEY = "mk_cluster", "msk_cluster_0123456789"
LEASE_S = 15
DEVICES = 40

SCENARIO: dict[str, Any] = {
    "scenario": "cluster",
    "seed": 7,
    "workers": 4,
    "target": {"transport": "http_poll", "pool": 16},
    "fleet": {
        "devices": DEVICES,
        "models": [
            {
                "name": "replayed",
                "telemetry": {"every_s": 1},
                "poll": {"every_s": 1},
                "signals": {"temperature": {"kind": "csv", "file": "day.csv", "column": "t", "every_s": 1}},
            }
        ],
    },
    "commands": [{"rate_per_s": 4, "payload": {"command": "ping"}}],
    "phases": [
        {"name": "ramp", "kind": "ramp", "duration_s": 3},
        {"name": "hold", "kind": "hold", "duration_s": 5},
    ],
    "thresholds": ["audit.lost == 0"],
}


def hold(seconds: float) -> list[dict[str, Any]]:
    """The phases of a load that stays the same."""
    return [{"name": "hold", "kind": "hold", "duration_s": seconds}]


@dataclass(frozen=True, slots=True)
class Program:
    """``fleet-simulator run`` under way.

    Attributes:
        folder: of the run.
    """

    process: subprocess.Popen[str]
    folder: Path

    def wait_for_load(self, seconds: int = 3) -> None:
        """Return when so many seconds of load are measured."""
        deadline_s = time.monotonic() + 120
        file = self.folder / "seconds.jsonl"
        while time.monotonic() < deadline_s and self.process.poll() is None:
            if file.exists() and len(file.read_text().splitlines()) >= seconds:
                return
            time.sleep(0.1)
        raise AssertionError(f"no load: {self.ended()}")

    def ended(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, record and standard error."""
        output, errors = self.process.communicate(timeout=300)
        assert output == "" or output.startswith("{"), output[:2000]
        return self.process.returncode, json.loads(output or "{}"), errors

    def ended_with(self, code: ExitCode) -> dict[str, Any]:
        """The record of a run that ended with this exit code."""
        found, record, errors = self.ended()
        assert found == code, (found, errors, record.get("verdict"))
        return record

    def ended_whole(self) -> dict[str, Any]:
        """The record of a run in which nothing was wrong, but that this machine may have been too busy."""
        code, record, errors = self.ended()
        busy = record["reasons"]["saturated"] if "reasons" in record else []
        assert code == ExitCode.GOOD or busy, (code, errors)
        assert record["gaps"] == []
        assert record["audit"]["complete"]
        assert code == ExitCode.GOOD or record["verdict"]["sentences"] == busy, record["verdict"]
        return record


def start_run(
    folder: Path,
    name: str,
    base_url: str,
    *,
    cluster: str | None,
    prefix: str,
    environment: Mapping[str, str] | None = None,
    more_keys: Mapping[str, str] | None = None,
    **changes: Any,
) -> Program:
    """Start a run.

    Args:
        folder: has the scenario, what it names, and afterwards the folder of the run.
        name: of both.
        base_url: of the service.
        cluster: its address; None for workers of this machine.
        prefix: of the devices' names.
        environment: of the program, beside this process's.
        more_keys: secret keys by API key, which the scenario has beside the key pair of the others.
        changes: of :data:`SCENARIO`.
    """
    pairs = {API_KEY: SECRET_KEY, **(more_keys or {})}
    for api_key, secret_key in pairs.items():
        write_secret(folder / api_key, secret_key)
    if not (folder / "day.csv").exists():
        (folder / "day.csv").write_text("t\n" + "\n".join(f"{value}.5" for value in range(60)))
    path = folder / f"{name}.yaml"
    document = {**SCENARIO, **changes}
    if more_keys:
        keys = [{"api_key": api_key, "secret_key_file": api_key} for api_key in pairs]
        document["target"] = {**document["target"], "keys": keys}
    document["fleet"] = {"identities": {"prefix": f"{prefix}-"}, **document["fleet"]}
    path.write_text(yaml.safe_dump(document))
    options = ["--base-url", base_url, "--i-own-this-target"]
    if not more_keys:
        options += ["--api-key", API_KEY, "--secret-key-file", str(folder / API_KEY)]
    if cluster is not None:
        options += ["--cluster", cluster]
    command = [sys.executable, "-m", "simulator.cli", "run", str(path), "--out", str(folder / name), "--json"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return Program(process, folder / name)


def worker_processes() -> set[int]:
    """The processes of workers that make load, on whichever node, of these tests."""
    own, found = f"TMPDIR={os.environ['TMPDIR']}".encode(), set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_worker = b"spawn_main" in (path / "cmdline").read_bytes()
            if is_worker and own in (path / "environ").read_bytes().split(b"\0"):
                found.add(int(path.name))
    return found


def _crew_folders() -> Iterator[Path]:
    return Path(os.environ["TMPDIR"]).glob("fleet-crew-*")


@contextlib.contextmanager
def nothing_left(within_s: float) -> Iterator[None]:
    """No process of a worker and no folder of files is there afterwards that was not there before."""
    folders, workers = set(_crew_folders()), worker_processes()
    yield
    deadline_s = time.monotonic() + within_s
    while left := {*(set(_crew_folders()) - folders), *(worker_processes() - workers)}:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)


@contextlib.contextmanager
def folders_cleared() -> Iterator[None]:
    """Take away the folders that a machine which lost its power leaves on its disk."""
    before = set(_crew_folders())
    yield
    for folder in set(_crew_folders()) - before:
        shutil.rmtree(folder)
