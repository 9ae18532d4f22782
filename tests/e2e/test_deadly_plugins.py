"""``doctor``, ``check`` and the listings with plug-ins that end whatever process loads them."""

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
GOOD = "from agent import handler\n\n@handler\ndef zeta():\n    pass\n"
HARD_EXIT = "import os\nos._exit(9)\n"
CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
SENSOR_THAT_EXITS = """
import os
from agent import Sensor

class Deadly(Sensor):
    type = "deadly"

    def {where}(self{more}):
        print("it says something first", flush=True)
        os._exit(9)
{rest}
"""

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


def run(bench, folder: Path, *words: str) -> tuple[int, str]:
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
    return done.returncode, done.stdout


def findings(bench, folder: Path) -> dict[str, dict[str, str]]:
    code, text = run(bench, folder, "doctor", "--offline", "--json")
    assert code in {0, 1}
    return {each["id"]: each for each in json.loads(text)}


@pytest.mark.parametrize(("text", "how"), [(EXIT, "SystemExit"), (HARD_EXIT, "exit code 9"), (CRASH, "SIGSEGV")])
def test_a_handler_that_ends_its_process_on_import_is_named_and_hides_no_other(bench, folder, text, how):
    install(folder, "agent.handlers", "doomed", "doomed", text)
    install(
        folder,
        "agent.handlers",
        "zeta",
        "zeta",
        "from agent import handler\n\n@handler\ndef zeta():\n    '''Good.'''\n",
    )
    found = findings(bench, folder)
    assert found["handlers"]["verdict"] == "warning"
    assert "not doomed" in found["handlers"]["seen"]
    assert "zeta" in found["handlers"]["seen"]
    assert "doomed-plugin 1.0" in found["handlers"]["cause"]
    assert how in found["handlers"]["cause"]
    assert "memory" in found  # and whatever else comes after it
    if how != "exit code 9":  # the other commands load plug-ins as the doctor does: one way to end is enough
        return
    code, text = run(bench, folder, "check")
    assert code == 1
    assert "doomed is not_loaded" in text
    assert "state_dir" in text
    code, text = run(bench, folder, "handlers")
    assert code == 1
    assert how in text


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


@pytest.mark.parametrize("where", ["__init__", "check", "read"])
def test_a_sensor_that_ends_its_process_is_named_and_hides_no_other(bench, folder, where):
    more, rest = (", settings=None", "") if where == "__init__" else ("", "")
    if where != "read":
        rest = "\n    def read(self):\n        return {}\n"
    install(folder, "agent.sensors", "deadly", "Deadly", SENSOR_THAT_EXITS.format(where=where, more=more, rest=rest))
    base_url = str(bench.client.connection.base_url)
    bench.write_config(base_url, more="sensors:\n  - {name: bad, type: deadly}\n  - {name: good, type: system}\n")
    found = findings(bench, folder)["sensors"]
    assert found["verdict"] == "failed"
    assert "sensor:bad" in found["seen"]
    assert "good" not in found["seen"]
    assert "exit code 9" in found["cause"]
    code, text = run(bench, folder, "sensors", "--json")
    assert code == 1
    states = {each["name"]: each["state"] for each in json.loads(text)["sensors"]}
    assert states == {"bad": "check_failed", "good": "ok"}
