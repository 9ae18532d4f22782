"""``make release KEY=...``: a signed release of device-agent, which a device installs beside the running one.

    python tools/build_release.py --key release.key [--architecture amd64 ...] [--out dist/release]
                                  [--downgrade]

It holds what the Debian package holds: the program and the pinned wheels of each Python. ``device-agent keys``
makes the key; devices trust its ``.pub`` file (docs/install.md, "Update"). The same commit gives the same bytes.

Exit codes: 0 built, 1 an architecture that was asked for has no wheels.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: E402

from agent.update.release import CONTENT, FORMAT, KIND, MANIFEST, SIGNATURE, parse_manifest  # noqa: E402
from tools.build_deb import (  # noqa: E402
    PACKAGES,
    PLATFORMS,
    WheelsMissing,
    commit_time,
    fill_library,
    program_members,
    version,
)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Build signed releases of device-agent.")
    parser.add_argument("--key", type=Path, required=True, help="the maker's private key (device-agent keys)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "release", help="folder for the files")
    parser.add_argument("--architecture", action="append", choices=PLATFORMS, help="one of them alone; can be repeated")
    parser.add_argument("--downgrade", action="store_true", help="devices that run a newer one take it")
    arguments = parser.parse_args()
    key = load_pem_private_key(arguments.key.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        parser.error(f"{arguments.key} is no Ed25519 key: make one with device-agent keys")
    os.umask(0o022)
    arguments.out.mkdir(parents=True, exist_ok=True)
    left_out = 0
    for architecture in arguments.architecture or PLATFORMS:
        with tempfile.TemporaryDirectory() as temporary:
            tree = Path(temporary, "tree")
            try:
                fill_library(PACKAGES[0], architecture, Path(temporary), tree)
            except WheelsMissing as error:
                print(f"left out: {architecture}: {error}")
                left_out += bool(arguments.architecture)
                continue
            says = {**program_members(architecture), "downgrade": arguments.downgrade}
            built = arguments.out / f"device-agent_{version()}_{architecture}.release"
            write_release(tree, built, key, says, epoch=commit_time())
            print(f"{built}  {built.stat().st_size / 1024 / 1024:.1f} MiB")
    return 1 if left_out else 0


def write_release(
    tree: Path, path: Path, key: Ed25519PrivateKey, members: Mapping[str, Any], *, epoch: int, preset: int = 9
) -> None:
    """Write a release.

    Args:
        tree: what it holds: ``common``, and a folder for each Python.
        path: the file.
        key: the maker's.
        members: of the manifest, beside its kind and what the tree says.
        epoch: the time of all files, seconds since the epoch.
        preset: of the compression, 0 to 9.
    """
    files = {each.relative_to(tree).as_posix(): each for each in sorted(tree.rglob("*")) if each.is_file()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for name, file in files.items():
            _add(tar, name, file.read_bytes(), epoch)
    content = lzma.compress(packed.getvalue(), preset=preset)
    says = {
        "kind": KIND,
        "format": FORMAT,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "unpacked_bytes": sum(file.stat().st_size for file in files.values()),
        **members,
    }
    manifest = json.dumps(says, indent=1, sort_keys=True).encode()
    if members.get("format", FORMAT) == FORMAT:
        parse_manifest(manifest)  # no device would take another one
    with tarfile.open(path, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for name, data in ((MANIFEST, manifest), (SIGNATURE, key.sign(manifest)), (CONTENT, content)):
            _add(tar, name, data, epoch)


def _add(tar: tarfile.TarFile, name: str, data: bytes, epoch: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), epoch, 0o644
    tar.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    sys.exit(main())
