"""A third-party package, built and installed as its user would, is found and run by an agent that never heard of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "handler_plugin"

PROGRAM = """
import json, logging, sys, threading
from pathlib import Path
from agent import CommandContext, HandlerRejected
from agent.config.model import HandlerConfig
from agent.config.model import SensorConfig
from agent.handlers.registry import read_payload
from agent.handlers.registry import HandlerRegistry
from agent.sensors.reader import SensorReader
from agent.sensors.reader import SensorRegistry

pin = sys.argv[1]
section = HandlerConfig(settings={"value_file": pin})
handlers = HandlerRegistry({"open_door": section})
settings = {"contact_file": pin, "inverted": True}
sensors = SensorRegistry({"front": SensorConfig(name="front", type="door", settings=settings)})
progress = []

def run(payload):
    handler = handlers.ready.get(payload["command"])
    model = read_payload(handler, {name: value for name, value in payload.items() if name != "command"})
    log = logging.LoggerAdapter(logging.getLogger("test"), {})
    return handler.handle(model, CommandContext("c1", "d1", 1, False, threading.Event(), log, None, progress.append))

def refused():
    try:
        read_payload(handlers.ready.get("open_door"), {"open_s": "long"})
    except HandlerRejected as refusal:
        return str(refusal)

print(json.dumps({
    "handlers": {info.name: [info.origin, str(info.status), info.contract] for info in handlers.listing},
    "sensors": {info.name: [info.origin, str(info.status)] for info in sensors.listing},
    "open_door": run({"command": "open_door", "open_s": 0.01}),
    "disk_free": sorted(run({"command": "disk_free"})),
    "refused": refused(),
    "front": dict(SensorReader(sensors.ready.values()).read()["front"].values),
    "progress": progress,
    "unconfigured": [str(i.status) for i in HandlerRegistry().listing if i.name == "open_door"],
}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a Python in which the example is installed, beside what is installed already."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "target"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".pytest_cache"))
    # No network: the package needs nothing that is not here, and hatchling is one of our development tools.
    command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--no-build-isolation"]
    command += ["--python", sys.executable, "--target", str(target), str(source)]
    clean = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": str(target)}


def test_the_installed_package_is_found_by_its_entry_points_and_runs(environment, tmp_path):
    pin = tmp_path / "pin"
    pin.write_text("0")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(pin)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["handlers"]["open_door"] == ["door-plugin 1.0.0", "ready", "once"]
    assert seen["handlers"]["disk_free"] == ["door-plugin 1.0.0", "ready", "idempotent"]
    assert seen["handlers"]["ping"] == ["built-in", "ready", "idempotent"]
    assert seen["sensors"] == {"front": ["door-plugin 1.0.0", "ready"]}
    assert seen["open_door"] == {"opened_s": 0.01}
    assert seen["progress"] == [{"door": "open"}]
    assert seen["disk_free"] == ["free_bytes", "path", "total_bytes"]
    assert seen["front"] == {"door_open": 1}
    assert "open_s must be a valid number" in seen["refused"]
    assert seen["unconfigured"] == ["invalid_settings"]
    assert pin.read_text() == "0"


def test_the_examples_own_tests_pass_where_it_is_installed(environment):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(EXAMPLE / "tests")],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
