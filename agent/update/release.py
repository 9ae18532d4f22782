"""A release as one file: a tar of the manifest, its signature and the archive of all files, in this order.

``manifest.json`` is signed as it is, byte for byte (Ed25519, RFC 8032): ``manifest.sig`` is the bare signature of 64
bytes, so openssl can check it. It has the digest of the archive. Nothing else is read before the signature holds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KIND: Final = "device-agent release"
FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
CONTENT: Final = "content.tar.xz"
MAX_BYTES: Final = 256 * 1024 * 1024
"""Of one file."""

_MOST_UNPACKED_BYTES: Final = 1024 * 1024 * 1024
_MOST_MANIFEST_BYTES: Final = 64 * 1024
_MOST_KEY_BYTES: Final = 4096
_SIGNATURE_BYTES: Final = 64
_CHUNK: Final = 256 * 1024
# Letters, digits and what file names of Python packages have; no step upwards, nothing compiled.
_PATH: Final = re.compile(r"(?!.*(^|/)(\.\.?|__pycache__)(/|$))[A-Za-z0-9_.+@ -]+(/[A-Za-z0-9_.+@ -]+)*")


_VERSION: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}")


class ReleaseRefused(Exception):
    """A release is not installed, and nothing was changed.

    Attributes:
        code: a stable snake_case word.
        message: what is wrong and what to do about it.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True, slots=True)
class Program:
    """A version of the agent that can run on this device.

    Attributes:
        version: numbers with dots.
        architecture: Debian's name of it.
        store_schema: of the store that it reads and writes.
    """

    version: str
    architecture: str
    store_schema: int


@dataclass(frozen=True, slots=True)
class Release:
    """A release whose signature holds; its content is not checked yet.

    Attributes:
        program: the version that it brings.
        downgrade: a device that runs a newer one takes it.
        size, sha256: of the archive.
        unpacked_bytes: the size of all files in it.
        offset: where the archive begins in the file.
    """

    program: Program
    downgrade: bool
    size: int
    sha256: str
    unpacked_bytes: int
    offset: int


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions: numbers from left to right, missing ones count as 0."""
    numbers = [int(each) for each in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def parse_manifest(text: bytes, offset: int = 0) -> Release:
    """The release that a manifest describes. Call it only for bytes whose signature holds.

    Args:
        text: the manifest.
        offset: where the archive begins in the file.

    Raises:
        ReleaseRefused: ``unknown_format`` or ``malformed``.
    """
    try:
        says = json.loads(text)
        if says["kind"] == KIND and says["format"] != FORMAT:
            fault = f"it has format {says['format']!r:.20}, and this device reads {FORMAT}"
            raise ReleaseRefused("unknown_format", f"{fault}: install a newer package by apt")
        program = Program(says["version"], says["architecture"], says["store_schema"])
        release = Release(program, says["downgrade"], says["size"], says["sha256"], says["unpacked_bytes"], offset)
        is_good = says["kind"] == KIND and _VERSION.fullmatch(program.version) is not None
        is_good = is_good and 0 < release.size <= MAX_BYTES and 0 < release.unpacked_bytes <= _MOST_UNPACKED_BYTES
    except (ValueError, KeyError, TypeError, RecursionError):
        is_good = False
    if not is_good:
        raise ReleaseRefused("malformed", f"its manifest is none of {KIND!r}, or is wrong: build it again")
    return release


def check_suits(release: Release, running: Program) -> None:
    """Whether a device that runs this program takes the release.

    Raises:
        ReleaseRefused: ``wrong_architecture``, ``downgrade`` or ``other_schema``.
    """
    new = release.program
    if new.architecture != running.architecture:
        text = f"it is for {new.architecture}, and this device is {running.architecture}"
        raise ReleaseRefused("wrong_architecture", f"{text}: take the file for {running.architecture}")
    if version_key(new.version) < version_key(running.version) and not release.downgrade:
        text = f"it is {new.version}, and {running.version} runs; its manifest allows no way back"
        raise ReleaseRefused("downgrade", f"{text}: build it with --downgrade, or take a newer one")
    if new.store_schema != running.store_schema:
        text = f"its store has schema {new.store_schema}, that of version {running.version} has {running.store_schema}"
        raise ReleaseRefused("other_schema", f"{text}, and none could go back: install the package by apt")


def open_plain(path: Path) -> IO[bytes]:
    """A regular file of whomever: no link is followed, and no FIFO or device is waited for.

    Raises:
        OSError: it cannot be opened, or is none.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def trusted_keys(folder: Path, owner_id: int) -> list[Ed25519PublicKey]:
    """The public keys of makers that root trusts.

    Args:
        folder: with one file for each, ``NAME.pub``.
        owner_id: must own them, and nobody else may write them.

    Raises:
        ReleaseRefused: ``no_key``, ``bad_key`` or ``no_library``, with what to do.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise ReleaseRefused("no_library", "the library cryptography is missing: install the package by apt") from error
    paths = sorted(folder.glob("*.pub"))
    if not paths:
        text = f"this device trusts no maker: put the maker's public key into {folder}/NAME.pub"
        raise ReleaseRefused("no_key", f"{text} (owner root, mode 644)")
    keys = []
    for path in [folder, *paths]:
        found = path.lstat()
        if found.st_uid != owner_id or found.st_mode & 0o022 or stat.S_ISLNK(found.st_mode):
            raise ReleaseRefused("bad_key", f"others than root may write {path}: chown root, chmod go-w")
    for path in paths:
        try:
            with open_plain(path) as file:
                key = load_pem_public_key(file.read(_MOST_KEY_BYTES))
        except (OSError, ValueError):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            text = f"{path} is no Ed25519 public key: take the .pub file of device-agent keys"
            raise ReleaseRefused("bad_key", text)
        keys.append(key)
    return keys


def read_release(file: IO[bytes], keys: Sequence[Ed25519PublicKey]) -> Release:
    """The release in a file, once the signature of a trusted key holds.

    Raises:
        ReleaseRefused: ``truncated``, ``wrong_signature``, ``unknown_format`` or ``malformed``.
    """
    truncated = ReleaseRefused("truncated", "the file is cut off, or is no release: transfer it again")
    most = {MANIFEST: _MOST_MANIFEST_BYTES, SIGNATURE: _SIGNATURE_BYTES, CONTENT: MAX_BYTES}
    whole = os.fstat(file.fileno()).st_size
    found: dict[str, tarfile.TarInfo] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for name, size in most.items():
                member = tar.next()
                if member is None or member.name != name or not member.isreg() or member.size > size:
                    raise truncated
                if member.offset_data + member.size > whole:
                    raise truncated
                found[name] = member
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise truncated from error
    text, signature = (_read_at(file, found[name]) for name in (MANIFEST, SIGNATURE))
    _check_signature(text, signature, keys)
    release = parse_manifest(text, found[CONTENT].offset_data)
    if found[CONTENT].size != release.size:
        raise truncated
    return release


def _read_at(file: IO[bytes], member: tarfile.TarInfo) -> bytes:
    file.seek(member.offset_data)
    return file.read(member.size)


def _check_signature(text: bytes, signature: bytes, keys: Sequence[Ed25519PublicKey]) -> None:
    from cryptography.exceptions import InvalidSignature

    for key in keys:
        try:
            key.verify(signature, text)
        except InvalidSignature:
            continue
        return
    raise ReleaseRefused(
        "wrong_signature", "no key that this device trusts has signed it: take the maker's own file, or add the key"
    )


def copy_content(file: IO[bytes], release: Release, copy: IO[bytes]) -> None:
    """Copy the archive out of a release; what the copy holds is good only when this returns.

    Raises:
        ReleaseRefused: ``damaged``: it is not the archive that the manifest says.
        OSError: the copy cannot be written.
    """
    hashed, left = hashlib.sha256(), release.size
    file.seek(release.offset)
    while left and (chunk := file.read(min(left, _CHUNK))):
        hashed.update(chunk)
        left -= len(chunk)
        copy.write(chunk)
    if left or hashed.hexdigest() != release.sha256:
        raise ReleaseRefused("damaged", "its content is not what the manifest says: transfer the file again")


def extract(archive: IO[bytes], most_bytes: int, folder: Path) -> None:
    """Take the files out of an archive that was compared; folders are made for them.

    Raises:
        ReleaseRefused: ``damaged``: it has something else than files, or more than so many bytes of them.
        OSError: the disk refuses.
    """
    left = most_bytes
    try:
        with tarfile.open(fileobj=archive, mode="r:xz") as tar:
            for member in tar:
                left -= member.size
                source = tar.extractfile(member) if member.isreg() else None
                if source is None or not _PATH.fullmatch(member.name) or left < 0:
                    raise ReleaseRefused("damaged", f"its archive has {member.name[:80]!r}: build it again")
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                with path.open("xb") as target:
                    shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise ReleaseRefused("damaged", "its archive cannot be unpacked: build it again") from error
