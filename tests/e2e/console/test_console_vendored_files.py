"""The vendored files are those of their packages, and all files together are small."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

from tests.console_pages import PACKAGES
from tests.node_packages import node_with

pytestmark = pytest.mark.long

VENDOR = files("simulator.console") / "static" / "vendor"
REPORTS = files("simulator.report_parts") / "static"
FROM_PACKAGES = {
    "preact.module.js": "preact/dist/preact.module.js",
    "hooks.module.js": "preact/hooks/dist/hooks.module.js",
    "preact.LICENSE.txt": "preact/LICENSE",
    "htm.module.js": "htm/dist/htm.module.js",
    "htm.LICENSE.txt": "htm/LICENSE",
}
OF_REPORTS = {
    "uPlot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
    "uPlot.LICENSE.txt": "uplot/LICENSE",
}


@pytest.fixture(scope="module", autouse=True)
def _packages():
    node_with(PACKAGES)


@pytest.mark.parametrize(("name", "source"), FROM_PACKAGES.items())
def test_a_vendored_file_is_its_packages_own(name, source):
    assert (VENDOR / name).read_bytes() == (PACKAGES / "node_modules" / source).read_bytes()


@pytest.mark.parametrize(("name", "source"), OF_REPORTS.items())
def test_the_reports_plots_are_the_packages_own(name, source):
    assert (REPORTS / name).read_bytes() == (PACKAGES / "node_modules" / source).read_bytes()


def test_every_vendored_file_is_compared_and_its_version_is_written_down():
    names = {entry.name for entry in VENDOR.iterdir()}
    assert names == {*FROM_PACKAGES, "versions.txt"}
    pinned = json.loads((PACKAGES / "package.json").read_text(encoding="utf-8"))["dependencies"]
    text = (VENDOR / "versions.txt").read_text(encoding="utf-8")
    said = dict(re.findall(r"^(\w+) (\d+\.\d+\.\d+) ", text, re.MULTILINE))
    assert {name.lower(): version for name, version in said.items()} == {
        name: version for name, version in pinned.items() if name != "axe-core"
    }
