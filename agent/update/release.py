"""A release as one file: a tar of the manifest, its signature and the archive of all files, in this order.

``manifest.json`` is signed as it is, byte for byte (Ed25519, RFC 8032): ``manifest.sig`` is the bare signature of 64
bytes, so openssl can check it. It has the digest of the archive. Nothing else is read before the signature holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KIND: Final = "device-agent release"
FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
CONTENT: Final = "content.tar.xz"
MAX_BYTES: Final = 256 * 1024 * 1024
"""Of one file."""

_MEMBERS: Final = frozenset(
    {"kind", "format", "version", "architecture", "store_schema", "downgrade", "size", "sha256", "unpacked_bytes"}
)
_VERSION: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Letters, digits and what file names of Python packages have; no step upwards, nothing compiled.
_PATH: Final = re.compile(r"(?!.*(^|/)(\.\.?|__pycache__)(/|$))[A-Za-z0-9_.+@ -]+(/[A-Za-z0-9_.+@ -]+)*")
_MOST_UNPACKED_BYTES: Final = 1024 * 1024 * 1024
_MOST_MANIFEST_BYTES: Final = 64 * 1024
_SIGNATURE_BYTES: Final = 64
_MOST_KEY_BYTES: Final = 4096
_CHUNK: Final = 256 * 1024


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
        digest: SHA-256 of the manifest, which is the identity of the release.
        offset: where the archive begins in the file.
    """

    program: Program
    downgrade: bool
    size: int
    sha256: str
    unpacked_bytes: int
    digest: str
    offset: int


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions: numbers from left to right, missing ones count as 0."""
    numbers = [int(each) for each in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def parse_program(members: Mapping[str, Any]) -> Program:
    """Version, architecture and schema out of a manifest, or out of the package's ``release.json``.

    Raises:
        ReleaseRefused: ``malformed``.
    """
    version, architecture, schema = (members.get(name) for name in ("version", "architecture", "store_schema"))
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise _malformed("'version' is no version such as 1.2.3")
    if not isinstance(architecture, str) or not architecture.isalnum():
        raise _malformed("'architecture' is no word")
    if type(schema) is not int or schema <= 0:
        raise _malformed("'store_schema' is no positive whole number")
    return Program(version, architecture, schema)


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


def trusted_keys(folder: Path, owner_id: int) -> list[Ed25519PublicKey]:
    """The public keys of makers that root trusts.

    Args:
        folder: with one file for each, ``NAME.pub``.
        owner_id: must own them.

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
    status = folder.stat()
    if status.st_uid != owner_id or status.st_mode & 0o022:
        raise ReleaseRefused("bad_key", f"others than root may write {folder}: chown root, chmod 755")
    found = []
    for path in paths:
        try:
            key = load_pem_public_key(_read_owned(path, owner_id))
        except (OSError, ValueError) as error:
            raise ReleaseRefused("bad_key", f"{path} is no public key in PEM: replace or remove it") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ReleaseRefused("bad_key", f"{path} is no Ed25519 key: take the .pub file of device-agent keys make")
        found.append(key)
    return found


def _read_owned(path: Path, owner_id: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner_id or found.st_mode & 0o022:
            raise ReleaseRefused("bad_key", f"{path} must be a file that root owns and nobody else may write")
        return file.read(_MOST_KEY_BYTES)


def open_file(path: Path) -> IO[bytes]:
    """A release's file, opened without following a link.

    Raises:
        ReleaseRefused: ``no_file`` or ``too_large``.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise ReleaseRefused("no_file", f"{path} cannot be opened: {error.strerror}") from error
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        file.close()
        raise ReleaseRefused("too_large", f"{path} is no file of at most {MAX_BYTES} bytes")
    return file


def read_release(file: IO[bytes], keys: Sequence[Ed25519PublicKey]) -> Release:
    """The release in a file, once the signature of a trusted key holds.

    Raises:
        ReleaseRefused: ``truncated``, ``wrong_signature``, ``unknown_format`` or ``malformed``.
    """
    most = {MANIFEST: _MOST_MANIFEST_BYTES, SIGNATURE: _SIGNATURE_BYTES, CONTENT: MAX_BYTES}
    found: dict[str, tarfile.TarInfo] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for name, size in most.items():
                member = tar.next()
                if member is None or member.name != name or not member.isreg() or member.size > size:
                    raise _truncated()
                found[name] = member
        text, signature = (_whole(file, found[name]) for name in (MANIFEST, SIGNATURE))
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise _truncated() from error
    _check_signature(text, signature, keys)
    release = parse_manifest(text, found[CONTENT].offset_data)
    size = found[CONTENT].size
    if size != release.size or release.offset + size > os.fstat(file.fileno()).st_size:
        raise _truncated()
    return release


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
    except (ValueError, RecursionError) as error:
        raise _malformed("it is no JSON text") from error
    if not isinstance(says, dict) or says.get("kind") != KIND:
        raise _malformed(f"its kind is not {KIND!r}")
    if says.get("format") != FORMAT:
        fault = f"it has format {says.get('format')!r:.20}, and this device reads {FORMAT}"
        raise ReleaseRefused("unknown_format", f"{fault}: install the newer package by apt")
    if set(says) != _MEMBERS:
        raise _malformed(f"the member {min(set(says) ^ _MEMBERS)[:40]!r} is missing or unknown")
    if not isinstance(says["downgrade"], bool):
        raise _malformed("'downgrade' is neither true nor false")
    if not isinstance(says["sha256"], str) or not _SHA256.fullmatch(says["sha256"]):
        raise _malformed("'sha256' is none")
    for name, most in (("size", MAX_BYTES), ("unpacked_bytes", _MOST_UNPACKED_BYTES)):
        if type(says[name]) is not int or not 0 < says[name] <= most:
            raise _malformed(f"{name!r} is no number of bytes")
    archive = (says["size"], says["sha256"], says["unpacked_bytes"])
    return Release(parse_program(says), says["downgrade"], *archive, hashlib.sha256(text).hexdigest(), offset)


def check_content(file: IO[bytes], release: Release, copy: IO[bytes] | None = None) -> None:
    """Compare the archive with the manifest, and copy it on the way.

    Args:
        file: of the release.
        release: read from it.
        copy: gets the bytes; what it holds is good only when this returns.

    Raises:
        ReleaseRefused: ``damaged``.
        OSError: the copy cannot be written.
    """
    hashed, left = hashlib.sha256(), release.size
    file.seek(release.offset)
    while left and (chunk := file.read(min(left, _CHUNK))):
        hashed.update(chunk)
        left -= len(chunk)
        if copy is not None:
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
                if not member.isreg() or not _PATH.fullmatch(member.name) or left < 0:
                    raise ReleaseRefused("damaged", f"its archive has {member.name[:80]!r}: build it again")
                source = tar.extractfile(member)
                assert source is not None  # noqa: S101 - of a regular file there is one
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                with path.open("xb") as target:
                    shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise ReleaseRefused("damaged", "its archive cannot be unpacked: build it again") from error


def _whole(file: IO[bytes], member: tarfile.TarInfo) -> bytes:
    file.seek(member.offset_data)
    data = file.read(member.size)
    if len(data) != member.size:
        raise _truncated()
    return data


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


def _truncated() -> ReleaseRefused:
    return ReleaseRefused("truncated", "the file is cut off, or is no release: transfer it again")


def _malformed(why: str) -> ReleaseRefused:
    return ReleaseRefused("malformed", f"its manifest cannot be read: {why}; build it again")
