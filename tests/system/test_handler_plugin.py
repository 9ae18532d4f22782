"""A third-party package, built and installed as its user would, is found and run by an agent that never heard of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_module, run_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "handler_plugin"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a Python in which the example is installed, beside what is installed already."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "target"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".pytest_cache"))
    # No network: the package needs nothing that is not here, and hatchling is one of our development tools.
    command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--no-build-isolation"]
    command += ["--python", sys.executable, "--target", str(target), str(source)]
    run_program(command, code=0, environ={"UV_CACHE_DIR": str(folder / "cache")})
    return {"PYTHONPATH": str(target)}


def test_the_installed_package_is_found_by_its_entry_points_and_loaded(environment, tmp_path):
    pin, config = tmp_path / "pin", tmp_path / "config.yaml"
    pin.write_text("0")

    def listed(handler_settings: dict[str, str]) -> tuple[dict[str, list[str]], dict[str, str]]:
        values = {
            "service": {"base_url": "http://127.0.0.1:9"},
            "device": {"device_id": "d1"},
            "auth": {"mode": "bearer", "token_file": str(tmp_path / "token")},
            "state_dir": str(tmp_path / "state"),
            "commands": {"handlers": {"open_door": {"settings": handler_settings}}},
            "sensors": [{"name": "front", "type": "door", "settings": {"contact_file": str(pin), "inverted": True}}],
        }
        config.write_text(json.dumps(values))
        done = run_module("agent.cli", "plugins", "list", "--json", "--config", config, environ=environment)
        found = {each["name"]: each for each in json.loads(done.stdout)["plugins"]}
        return {name: [each["origin"], each["status"], each["contract"]] for name, each in found.items()}, found[
            "front"
        ]

    states, front = listed({"value_file": str(pin)})
    assert states["open_door"] == ["door-plugin 1.0.0", "ready", "once"]
    assert states["disk_free"] == ["door-plugin 1.0.0", "ready", "idempotent"]
    assert states["ping"] == ["built-in", "ready", "idempotent"]
    assert (front["origin"], front["status"], front["description"]) == ("door-plugin 1.0.0", "ready", "door_open=1")
    states, _ = listed({})
    assert states["open_door"][1] == "invalid_settings"


def test_the_examples_own_tests_pass_where_it_is_installed(environment):
    words = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, EXAMPLE / "tests")
    run_module("pytest", *words, code=0, environ={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, cwd=EXAMPLE)
