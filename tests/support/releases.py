"""Small releases for tests: the real program of this checkout under another version, signed by the test's own maker."""

from __future__ import annotations

import compileall
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.store.sqlite import VERSION
from tools.build_release import write_release

REPOSITORY = Path(__file__).parents[2]
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
ARCHITECTURE = "amd64"
EPOCH = 1_700_000_000


class Maker:
    """Makes releases.

    Args:
        folder: for the files, and for one whole compiled program of each version, which the releases lead to: a release
            of a test has a few files only.
        is_real: its releases can run; else they say so only.
    """

    def __init__(self, folder: Path, *, is_real: bool = True) -> None:
        self.folder = folder
        self._is_real = is_real
        self.key = Ed25519PrivateKey.generate()

    @property
    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def release(
        self,
        version: str,
        *,
        name: str = "",
        change: Callable[[Path], object] | None = None,
        key: Ed25519PrivateKey | None = None,
        **members: Any,
    ) -> Path:
        """A release's file.

        Args:
            version: of it.
            name: tells two of one version apart.
            change: changes what is in it before it is packed.
            key: signs it in place of the maker's.
            members: of the manifest, in place of the usual ones.
        """
        tree = self.folder / f"tree-{name or version}"
        shutil.rmtree(tree, ignore_errors=True)
        fill(tree, self.program(version))
        if change is not None:
            change(tree)
        path = self.folder / f"{name or version}.release"
        says = {**program_members(version), "downgrade": False, **members}
        write_release(tree, path, key or self.key, says, epoch=EPOCH)
        return path

    def program(self, version: str) -> Path:
        """The whole program of this checkout with another version, compiled."""
        if not self._is_real:
            return REPOSITORY / "agent"
        whole = self.folder / f"program-{version}" / "agent"
        if not whole.exists():
            shutil.copytree(REPOSITORY / "agent", whole, ignore=shutil.ignore_patterns("__pycache__"))
            text = (whole / "app/version.py").read_text()
            (whole / "app/version.py").write_text(text.replace('"0.1.0"', f'"{version}"'))
            assert f'"{version}"' in (whole / "app/version.py").read_text()
            compileall.compile_dir(whole, quiet=1)
        return whole


def program_members(version: str) -> dict[str, Any]:
    """What says which program it is."""
    return {"version": version, "architecture": ARCHITECTURE, "store_schema": VERSION}


def fill(tree: Path, program: Path) -> None:
    """What a package and a release hold: here a package ``agent`` whose modules are elsewhere."""
    package = tree / "common/agent"
    package.mkdir(parents=True)
    text = (program / "__init__.py").read_text()
    (package / "__init__.py").write_text(f"{text}\n__path__ = [{str(program)!r}]\n")
    (tree / TAG).mkdir()
    for number in range(3):
        (tree / TAG / f"library_{number}.py").write_text(f"number = {number}\n")


def write_package(base: Path, program: Path, version: str, members: Mapping[str, Any] | None = None) -> None:
    """The libraries of the Debian package."""
    fill(base, program)
    compileall.compile_dir(base, quiet=1)
    (base / "release.json").write_text(json.dumps({**program_members(version), **(members or {})}))
