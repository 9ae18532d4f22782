"""Plug-ins of the Debian package: installed as wheels, and what each command says of them is what the agent says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.processes import run_module, run_program
from tests.support.releases import Maker, write_package
from tests.system.agent_bench import AgentBench, wait_until
from tools.build_deb import PACKAGES, launcher

_PACKAGE = next(each for each in PACKAGES if each.name == "device-agent")
_MODULE = """
from agent import Contract, Handler, Sensor
from {name}_needs import ANSWER


class Answer(Handler):
    name = "{name}"
    contract = Contract.IDEMPOTENT

    def handle(self, payload, context):
        return {{"version": "{version}", "answer": ANSWER}}


class Level(Sensor):
    type = "{name}"

    def read(self):
        return {{"level": 1.5}}
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = (), points="") -> Path:
    info = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {each}\n" for each in needs)
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for member, text in members.items():
            archive.writestr(member, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{member},sha256={digest},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


@dataclass
class Packaged:
    """The agent of the package below a folder, started by its launcher."""

    root: Path
    bench: AgentBench

    @property
    def folder(self) -> Path:
        return self.root / "usr/local/lib/device-agent/plugins"

    @property
    def program(self) -> str:
        return str(self.root / "usr/bin/device-agent")

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-I", self.program)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "DEVICE_AGENT_CONFIG": str(self.bench.config)}
        return run_program([*self.command, *words], env=environment)

    def tank(self, version: str, **files: str) -> Path:
        module = _MODULE.format(name="tank", version=version)
        points = "[agent.handlers]\ntank = tank:Answer\n\n[agent.sensors]\ntank = tank:Level\n"
        needs = ("device-agent>=0.1", "pydantic>=2", "tank_needs>=1")
        return wheel(self.root, "tank", version, {"tank.py": module, **files}, needs, points)

    def needs(self) -> Path:
        return wheel(self.root, "tank_needs", "1.5", {"tank_needs/__init__.py": "ANSWER = 42\n"})


@pytest.fixture
def packaged(bench, tmp_path) -> Packaged:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    write_package(root / "usr/lib/device-agent", Maker(tmp_path).program("1.0.0"), "1.0.0")
    start = "from agent.cli import main\n\nsys.exit(main())"
    made = Packaged(root, bench)
    Path(made.program).write_text(launcher(_PACKAGE, "device-agent", start, str(root)))
    config = yaml.safe_load(bench.config.read_text())
    config["sensors"] = [{"name": "level", "type": "tank", "interval_s": 1}]
    bench.config.write_text(yaml.safe_dump(config))
    return made


def listed(done: subprocess.CompletedProcess[str], key: str) -> dict[str, str]:
    return {each["name"]: each[key] for each in json.loads(done.stdout)["plugins"]}


def test_what_commands_say_of_plug_ins_is_what_the_agent_of_the_package_does(packaged, bench):
    first = packaged.tank("1.0", **{"tank_old.py": ""})
    assert packaged.run("plugins", "install", str(first), str(packaged.needs())).returncode == 0
    for runs in (False, True):
        states = listed(packaged.run("plugins", "list", "--json"), "status")
        assert (states["tank"], states["level"]) == ("ready", "ready"), runs
        checked = packaged.run("check")
        assert "tank is" not in checked.stdout
        assert "level reads level=1.5" in checked.stdout
        found = {each["id"]: each for each in json.loads(packaged.run("doctor", "--offline", "--json").stdout)}
        assert found["handlers"]["verdict"] == "ok", found["handlers"]
        assert "tank" in found["handlers"]["seen"]
        assert found["sensors"]["verdict"] == "ok", found["sensors"]
        assert packaged.run("diagnostics", "--dir", str(packaged.root)).returncode == 0
        if not runs:
            agent = bench.start(command=packaged.command)
            record = bench.wait_for(bench.send(command="tank"), "succeeded")
            assert record.result == {"version": "1.0", "answer": 42}
            wait_until(lambda: "level" in str(list(bench.client.sensor_data(bench.device_id))))
    # Another version replaces it, and the one that runs is shown.
    done = packaged.run("plugins", "install", str(packaged.tank("2.0")))
    assert "tank 2.0 is installed in place of 1.0" in done.stdout, done.stderr
    assert not (packaged.folder / "tank_old.py").exists()
    assert [path.name for path in packaged.folder.glob("tank-*")] == ["tank-2.0.dist-info"]
    origins = listed(packaged.run("plugins", "list", "--json"), "origin")
    assert origins["tank"] == "tank 2.0 (the running agent has 1.0: restart it)"
    agent.terminate()
    bench.start(command=packaged.command)
    assert bench.wait_for(bench.send(command="tank"), "succeeded").result == {"version": "2.0", "answer": 42}


def test_what_does_not_go_together_is_refused_by_name_and_nothing_is_changed(packaged):
    done = packaged.run("plugins", "install", str(packaged.tank("1.0")))
    assert "tank 1.0 needs tank_needs>=1, which is not here: give its wheel as well" in done.stderr
    hungry = wheel(packaged.root, "hungry", "1.0", {"hungry.py": ""}, ("pydantic<2", "httpx>=0.1"))
    done = packaged.run("plugins", "install", str(hungry))
    assert "hungry 1.0 needs pydantic<2, and here is 2." in done.stderr
    assert "httpx" not in done.stderr
    thief = wheel(packaged.root, "thief", "1.0", {"agent/__init__.py": ""})
    assert "a module agent, which the program has" in packaged.run("plugins", "install", str(thief)).stderr
    (packaged.root / "x-1.0-py3-none-any.whl").write_bytes(b"no zip")
    done = packaged.run("plugins", "install", str(packaged.root / "x-1.0-py3-none-any.whl"))
    assert "is no wheel that can be read" in done.stderr
    assert done.returncode == 2
    assert not packaged.folder.exists()
    assert packaged.run("plugins", "install", str(packaged.tank("1.0")), str(packaged.needs())).returncode == 0
    assert "tank 1.0 needs tank_needs>=1" in packaged.run("plugins", "remove", "tank-needs").stderr
    assert "there is tank, tank-needs" in packaged.run("plugins", "remove", "tonk").stderr
    assert packaged.run("plugins", "remove", "tank").returncode == 0
    assert not list(packaged.folder.glob("tank.py"))
    # Killed between the two renames: the next change begins with what was there.
    packaged.folder.rename(packaged.folder.with_name(".plugins.old"))
    assert packaged.run("plugins", "install", str(packaged.tank("1.0"))).returncode == 0
    assert (packaged.folder / "tank_needs").is_dir()
    own = wheel(packaged.root, "click", "1.0", {"click/__init__.py": ""})
    assert "comes with the program" in packaged.run("plugins", "install", str(own)).stdout


def test_another_installation_is_told_to_use_its_own_pip(bench):
    assert "--no-index" in run_module("agent.cli", "plugins", "remove", "tank", code=2).stderr
