"""A verified release becomes a folder beside the running one, whole and on the disk, or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, Final

from agent.release.archive import CONTENT, MANIFEST, Release, check_content
from agent.release.manifest import Manifest, ReleaseRefused
from agent.release.places import Places

INCOMING: Final = "incoming"
_TREE: Final = "tree"
_COMPILE_S: Final = 600.0
# What is compiled takes about as much again; the rest stays free for readings.
_COMPILED_SHARE: Final = 2
_RESERVE_BYTES: Final = 16 * 1024 * 1024


def python_folder() -> str:
    """The folder of the libraries for this Python."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def unpack(file: IO[bytes], release: Release, places: Places) -> Path:
    """Unpack it, with what is compiled of it, into a folder that is on the disk on return.

    Args:
        file: of the release.
        release: read from it.
        places: where it goes.

    Returns:
        The folder, which :func:`put_in_place` gives its name.

    Raises:
        ReleaseRefused: ``damaged``, ``not_enough_disk``, ``noexec`` or ``wrong_python``.
        OSError: the disk refuses.
    """
    manifest = release.manifest
    _check_room(manifest, places)
    if not any(path.startswith(f"{python_folder()}/") for path in manifest.files):
        text = f"it has no libraries for Python {sys.version_info.major}.{sys.version_info.minor}"
        raise ReleaseRefused("wrong_python", f"{text}: take a release that has them")
    incoming = places.releases / INCOMING
    shutil.rmtree(incoming, ignore_errors=True)
    try:
        _unpack_into(incoming, file, release)
    except BaseException:
        shutil.rmtree(incoming, ignore_errors=True)
        raise
    return incoming / _TREE


def _unpack_into(incoming: Path, file: IO[bytes], release: Release) -> None:
    tree = incoming / _TREE
    tree.mkdir(parents=True, mode=0o755)
    with (incoming / CONTENT).open("w+b") as copy:
        # From here on only root's own copy counts.
        check_content(file, release, copy)
        copy.seek(0)
        _extract(copy, release.manifest, tree)
    _check_tree(release.manifest, tree)
    (tree / MANIFEST).write_bytes(release.text)
    _compile(tree)
    os.sync()


def put_in_place(tree: Path, version: str, places: Places) -> None:
    """Give an unpacked release its name; what had that name goes first.

    Raises:
        OSError: the disk refuses.
    """
    target = places.releases / version
    shutil.rmtree(target, ignore_errors=True)
    tree.rename(target)
    sync_folder(places.releases)
    shutil.rmtree(places.releases / INCOMING, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk on return."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_room(manifest: Manifest, places: Places) -> None:
    found = os.statvfs(places.releases)
    if found.f_flag & os.ST_NOEXEC:
        raise ReleaseRefused("noexec", f"{places.releases} is mounted noexec: mount it with exec, or update by apt")
    needed = manifest.archive.size + _COMPILED_SHARE * manifest.unpacked_bytes + _RESERVE_BYTES
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise not_enough_disk(places.releases, needed, free)


def not_enough_disk(folder: Path, needed: int, free: int) -> ReleaseRefused:
    """The refusal of a disk that is too small.

    Args:
        folder: where it would go.
        needed: bytes.
        free: bytes.
    """
    mb = 1_000_000
    text = f"{folder} has {free / mb:.0f} MB free, and the update needs {needed / mb:.0f} MB: free some"
    return ReleaseRefused("not_enough_disk", text)


def _extract(copy: IO[bytes], manifest: Manifest, tree: Path) -> None:
    """Files alone, of names and sizes that the manifest has; folders are made for them."""
    try:
        with tarfile.open(fileobj=copy, mode="r:xz") as tar:
            for member in tar:
                wanted = manifest.files.get(member.name)
                if wanted is None or not member.isreg() or member.size != wanted.size:
                    raise ReleaseRefused("damaged", f"its archive has {member.name[:80]!r}, unlike its manifest")
                source = tar.extractfile(member)
                assert source is not None  # noqa: S101 - of a regular file there is one
                path = tree / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                with path.open("xb") as target:
                    shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise ReleaseRefused("damaged", "its archive cannot be unpacked: build it again") from error


def _check_tree(manifest: Manifest, tree: Path) -> None:
    for path, wanted in manifest.files.items():
        try:
            with (tree / path).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            found = ""
        if found != wanted.sha256:
            raise ReleaseRefused("damaged", f"{path[:80]!r} is not what the manifest says: build it again")


def _compile(tree: Path) -> None:
    """Compiled modules make the start quick; a module that cannot be compiled shows in the trial."""
    folders = [str(tree / name) for name in ("common", python_folder())]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            (sys.executable, "-I", "-m", "compileall", "-q", *folders),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_S,
            check=False,
        )
