"""The project keeps its own rules: lock files, imports, version, and what must never be in the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.lock_files import (
    APART,
    EXTRAS,
    LOCK_FILES,
    PROJECT,
    ROOT,
    check_dependencies,
    direct_requirements,
    pins,
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- dependencies and lock files --------------------------------------------------------------------------------


def test_the_agent_has_exactly_its_five_base_dependencies():
    names = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    assert names == {"httpx", "paho-mqtt", "pydantic", "pyyaml", "click"}


def test_there_is_a_lock_file_for_each_set_of_dependencies():
    assert [path.stem for path in LOCK_FILES] == sorted({"base", "build", *EXTRAS})


def test_the_build_group_is_what_the_build_system_requires():
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_pins_every_dependency_at_an_allowed_version(path):
    pinned = pins(path)
    for requirement in direct_requirements(path.stem):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is missing: make lock"
        assert requirement.specifier.contains(pinned[name], prereleases=True), f"{name} {pinned[name]}: make lock"


@pytest.mark.parametrize("path", [path for path in LOCK_FILES if path.stem != APART], ids=lambda path: path.stem)
def test_a_lock_file_pins_what_its_dependencies_depend_on(path):
    check_dependencies(path)


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_holds_only_exact_pins_with_hashes(path):
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    statements = [line for line in text.replace("\\\n", "").splitlines() if line]
    assert statements
    for statement in statements:
        assert re.match(r"[A-Za-z0-9_.-]+(\[[^\]]*\])?==\S+", statement), statement
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", statement), statement


@pytest.mark.parametrize("path", LOCK_FILES, ids=lambda path: path.stem)
def test_a_lock_file_names_no_index_and_no_address(path):
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|://| @ ", path.read_text(encoding="utf-8"))


def test_all_lock_files_pin_the_same_versions():
    widest = pins(ROOT / "requirements" / "dev.txt")
    for path in LOCK_FILES:
        both = {name: version for name, version in pins(path).items() if path.stem != APART or name in widest}
        differing = {name for name, version in both.items() if widest.get(name) != version}
        assert not differing, f"{path.name}: {sorted(differing)}: make lock"


# --- imports and types ------------------------------------------------------------------------------------------


def test_the_three_walls_between_packages_stand():
    """The contracts of [tool.importlinter]."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-logo"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_ships_its_types():
    for package in ("agent", "gateway", "simulator"):
        assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing"


# --- what must never be in the tree -----------------------------------------------------------------------------

TEXT_FILES = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".service", ".conf", ".sh", ".cfg", ".html", ""}
LEAVE_OUT = {"build", "dist", "demo-output", ".locust", "node_modules", "__pycache__"}


def project_files() -> list[Path]:
    """The text files of the project: what git would take, found without git."""
    found = []
    for top in sorted(ROOT.iterdir()):
        if top.name in LEAVE_OUT or (top.name.startswith(".") and top.name not in {".ci", ".gitignore"}):
            continue
        inside = [top] if top.is_file() else sorted(top.rglob("*"))
        found += [p for p in inside if p.is_file() and p.suffix in TEXT_FILES and not LEAVE_OUT & set(p.parts)]
    return found


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(?<![\w.])/(?:root|work|opt/pypi|home/[a-z]+|Users/[A-Za-z]+)/[\w.]", "a path of one machine"),
        (r"\bmsk_live_\w+|-----BEGIN [A-Z ]*PRIVATE KEY-----", "a secret"),
        (r"(?i)\b(?:pypi|npm|registry)\.[a-z0-9.-]+\.(?:internal|corp|local)\b", "the address of a private registry"),
    ],
)
def test_the_tree_holds_nothing_of_one_machine(pattern, what):
    files = project_files()
    assert len(files) > len(LOCK_FILES)
    hits = [
        f"{name_of(path)}: {match[0]}"
        for path in files
        if path != Path(__file__)
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"))
    ]
    assert not hits, f"{what}: {hits}"


# --- releases ---------------------------------------------------------------------------------------------------


def test_the_changelog_has_this_version_on_top():
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[:1] == [PROJECT["project"]["version"]]
