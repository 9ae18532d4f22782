"""Plug-ins that end whatever process loads them, and payloads that end or hang their validation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.wire.commands import CommandRecord

pytestmark = pytest.mark.long

EXIT = "raise SystemExit(3)\n"
HARD_EXIT = "import os\nos._exit(9)\n"
CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"

PAYLOADS = """
import threading
from pydantic import BaseModel, field_validator
from agent import Handler

class Door(Handler):
    name = "door"
    description = "Has a payload that judges itself."
    timeout_s = 2.0

    class Payload(BaseModel):
        how: str

        @field_validator("how")
        @classmethod
        def judge(cls, how):
            if how == "slow":
                threading.Event().wait(600)
            if how == "exits":
                raise SystemExit(3)
            if how == "raises":
                raise ZeroDivisionError("of no use")
            return how

    def handle(self, payload, context):
        return {"how": payload.how}
"""


@pytest.fixture
def folder(bench) -> Path:
    return bench.folder / "site"


def install(folder: Path, group: str, name: str, value: str, text: str) -> None:
    info = folder / f"{name}_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}_plugin.py").write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}_plugin:{value}\n")


def run(bench, folder: Path, *words: str) -> tuple[int, str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", *words, "--config", str(bench.config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("text", [HARD_EXIT, CRASH])
@pytest.mark.parametrize("command", ["handlers", "check", "doctor --offline"])
def test_a_handler_that_ends_the_command_that_loads_it_is_named_last(bench, folder, text, command):
    install(folder, "agent.handlers", "doomed", "doomed", text)
    install(folder, "agent.handlers", "able", "able", "able = None\n")
    code, _, errors = run(bench, folder, *command.split())
    assert code not in {0, 1}
    assert errors.splitlines()[-1] == "loading doomed_plugin:doomed from doomed-plugin 1.0"


def test_a_handler_that_exits_in_order_is_listed_and_hides_no_other(bench, folder):
    install(folder, "agent.handlers", "doomed", "doomed", EXIT)
    code, text, _ = run(bench, folder, "handlers", "--json")
    assert code == 1
    states = {each["name"]: each for each in json.loads(text)}
    assert "doomed-plugin 1.0 could not be imported: SystemExit" in states["doomed"]["reason"]
    assert states["ping"]["status"] == "ready"


def test_a_payload_whose_validator_exits_raises_or_hangs_harms_its_own_command_alone(bench, folder):
    install(folder, "agent.handlers", "door", "Door", PAYLOADS)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    agent = bench.start(PYTHONPATH=path)
    exits, raises, good = (bench.send(command="door", how=how) for how in ("exits", "raises", "good"))
    assert "invalid_payload: payload of 'door': SystemExit" in said(bench.wait_for(exits, "rejected"))
    assert "invalid_payload: payload of 'door': ZeroDivisionError: of no use" in said(bench.wait_for(raises))
    assert bench.wait_for(good, "succeeded").result == {"how": "good"}
    slow = bench.send(command="door", how="slow")
    agent.wait_for(f"command={slow} handler=door state=started")
    assert bench.wait_for(bench.send(command="ping"), "succeeded")
    assert "timeout: 'door' ran longer than 2 s" in said(bench.wait_for(slow, "failed"))
    assert bench.wait_for(bench.send(command="ping"), "succeeded")
    assert agent.terminate()[0] == 0
    assert not [line for line in agent.lines if "store=" in line]


def said(record: CommandRecord) -> str:
    return record.status_reason or record.error or ""
