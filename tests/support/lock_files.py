"""What pyproject.toml asks for, what the lock files pin, and whether the one is enough for the other."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
APART = "cluster"
"""The set that only the environment of ``make cluster-test`` has beside dev."""
LOCK_FILES = sorted((ROOT / "requirements").glob("*.txt"))


def direct_requirements(lock_file: str) -> list[Requirement]:
    """What pyproject.toml asks for in the set that a lock file pins; extras of our own name are followed."""
    if lock_file == "build":
        return [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    texts = list(PROJECT["project"]["dependencies"])
    waiting = [] if lock_file == "base" else [lock_file]
    while waiting:
        for text in EXTRAS[waiting.pop()]:
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == PROJECT["project"]["name"]:
                waiting += sorted(requirement.extras)
            else:
                texts.append(text)
    return [Requirement(text) for text in texts]


def pins(path: Path) -> dict[str, Version]:
    """What a lock file pins: canonical name -> version."""
    pin = r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)"
    found = re.findall(pin, path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


def check_dependencies(path: Path) -> None:
    """Followed through the metadata of what is installed, with this machine's markers."""
    pinned = pins(path)
    waiting = direct_requirements(path.stem)
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({**default_environment(), "extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is missing: make lock"
        for extra in ["", *sorted(requirement.extras)]:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += dependencies_of(name, extra)


def dependencies_of(name: str, extra: str) -> list[Requirement]:
    try:
        texts = requires(name) or []
    except PackageNotFoundError:
        pytest.fail(f"{name} is pinned and not installed: make setup")
    found = []
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({**default_environment(), "extra": extra}):
            requirement.marker = None
            found.append(requirement)
    return found
