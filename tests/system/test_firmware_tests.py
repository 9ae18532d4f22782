"""docs/testing.md and examples/firmware_tests run in a Python of their own, with the package installed as users do."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.conftest import require_program
from tests.support.processes import run_program

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "firmware_tests"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
INSTALL = """\
pip install -r /path/to/device-agent/requirements/simulator.txt    # of this repository: versions, by their hashes
pip install '/path/to/device-agent[simulator]' pytest
"""


class Installed:
    """A Python that has the package and the example, and sees what is installed beside this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv" / "bin"
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # No network: what they depend on is here already. The folder alone, without what its .pth files bring in.
        (packages / "beside.pth").write_text("\n".join(site.getsitepackages()) + "\n")
        source = folder / "source"
        shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".pytest_cache"))
        command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--no-build-isolation"]
        command += ["--python", str(self.bin / "python"), str(ROOT), str(source)]
        path = os.pathsep.join([str(self.bin), str(Path(sys.executable).parent), os.environ["PATH"]])
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST") and name != "PYTHONPATH"
        }
        self.environ = {**clean, "PATH": path, "UV_CACHE_DIR": str(folder / "cache")}
        self.environ["PYTEST_ADDOPTS"] = "-p no:schemathesis -p no:hypothesispytest"  # beside it, and slow to import
        run_program(command, code=0, env=self.environ, timeout=200)
        # The programs of a folder of its own go before those beside; pytest has none of its own there.
        (self.bin / "pytest").write_text(f"#!{self.bin / 'python'}\nimport pytest\nraise SystemExit(pytest.main())\n")
        (self.bin / "pytest").chmod(0o755)

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program with its folder first on the PATH."""
        return run_program(command, env=self.environ, cwd=cwd, timeout=250)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("firmware"))


def test_the_example_passes_where_it_is_installed(installed):
    found = installed.run(
        "python", "-c", "import simulator.pytest_plugin as p; print(p.__file__)", cwd=installed.folder
    )
    assert str(installed.folder) in found.stdout, found
    done = installed.run("pytest", "-q", "-p", "no:cacheprovider", cwd=installed.folder / "source")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


def test_the_example_fails_with_firmware_that_forgets_the_key(installed):
    broken = installed.folder / "broken"
    shutil.copytree(installed.folder / "source", broken)
    firmware = broken / "src" / "thermometer" / "firmware.py"
    text = firmware.read_text()
    assert '{"Idempotency-Key": str(uuid.uuid4())}' in text
    firmware.write_text(text.replace('{"Idempotency-Key": str(uuid.uuid4())}', "{}"))
    tests = ["pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=src", "-k", "stored_once"]
    done = installed.run(*tests, cwd=broken)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Left contains one more item: {'celsius': 21.5}" in done.stdout


def test_every_block_of_the_page_runs_and_the_first_test_fails_before_it_passes(installed):
    require_program("curl")
    folder = installed.folder / "page"
    folder.mkdir()
    codes, outputs = [], []
    assert BLOCKS[0] == ("sh", INSTALL)  # done by the fixture, without a network
    for kind, text in BLOCKS[1:]:
        if kind == "python":
            name = text.splitlines()[0].removeprefix("# ")
            assert re.fullmatch(r"\w+\.py", name), text
            (folder / name).write_text(text)
        else:
            assert kind == "sh", kind
            done = installed.run("sh", "-c", text, cwd=folder)
            codes.append(done.returncode)
            outputs.append(done.stdout + done.stderr)
    assert codes == [1, 0, 0, 0], "\n".join(outputs)
    assert "assert 2 == 1" in outputs[0]
    assert "4 passed" in outputs[2]
    assert '"holds":true' in outputs[3].replace(" ", "")
