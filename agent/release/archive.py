"""A release as one file: a tar of the manifest, its signature and the archive of all files, in this order.

``manifest.json`` is signed as it is, byte for byte (Ed25519, RFC 8032): ``manifest.sig`` is the bare signature of 64
bytes, so openssl can check it. Of the rest nothing is read before the signature holds.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from agent.release.manifest import Manifest, ReleaseRefused, parse_manifest
from agent.release.places import Places

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
CONTENT: Final = "content.tar.xz"
MEMBERS: Final = (MANIFEST, SIGNATURE, CONTENT)
MAX_BYTES: Final = 256 * 1024 * 1024
"""Of one file."""

_SIGNATURE_BYTES: Final = 64
_MOST_MANIFEST_BYTES: Final = 4 * 1024 * 1024
_MOST_KEY_BYTES: Final = 4096
_CHUNK: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Release:
    """A release whose signature holds; its content is not checked yet.

    Attributes:
        manifest: what it says.
        text: the manifest's bytes.
        digest: SHA-256 of them, which is the identity of the release.
        offset: where its content begins in the file.
    """

    manifest: Manifest
    text: bytes
    digest: str
    offset: int


def trusted_keys(places: Places) -> list[Ed25519PublicKey]:
    """The public keys of makers that root trusts.

    Raises:
        ReleaseRefused: ``no_key`` or ``bad_key``, with what to do.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise ReleaseRefused("no_library", "the library cryptography is missing: install the package by apt") from error
    found = []
    for path in _key_files(places):
        try:
            key = load_pem_public_key(_read_owned(path, places.owner_id))
        except (OSError, ValueError) as error:
            raise ReleaseRefused("bad_key", f"{path} is no public key in PEM: replace or remove it") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ReleaseRefused("bad_key", f"{path} is no Ed25519 key: take the .pub file of device-agent keys make")
        found.append(key)
    return found


def _key_files(places: Places) -> list[Path]:
    try:
        paths = sorted(places.keys.glob("*.pub"))
        status = places.keys.stat() if paths else None
    except OSError as error:
        raise ReleaseRefused("bad_key", f"{places.keys} cannot be read: {error.strerror}") from error
    if status is None:
        text = f"this device trusts no maker: put the maker's public key into {places.keys}/NAME.pub"
        raise ReleaseRefused("no_key", f"{text} (owner root, mode 644)")
    if status.st_uid != places.owner_id or status.st_mode & 0o022:
        raise ReleaseRefused("bad_key", f"others than root may write {places.keys}: chown root, chmod 755")
    return paths


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
        ReleaseRefused: ``truncated``, ``wrong_signature``, or what :func:`parse_manifest` says.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            found = [tar.next() for _ in MEMBERS]
            sizes = (_MOST_MANIFEST_BYTES, _SIGNATURE_BYTES, MAX_BYTES)
            for member, name, most in zip(found, MEMBERS, sizes, strict=True):
                if member is None or member.name != name or not member.isreg() or member.size > most:
                    raise _truncated()
            manifest, signature, content = (each for each in found if each is not None)
            text, seal = _whole(file, manifest), _whole(file, signature)
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise _truncated() from error
    _check_signature(text, seal, keys)
    parsed = parse_manifest(text)
    is_whole = content.offset_data + content.size <= os.fstat(file.fileno()).st_size
    if content.size != parsed.archive.size or not is_whole:
        raise _truncated()
    return Release(parsed, text, hashlib.sha256(text).hexdigest(), content.offset_data)


def check_content(file: IO[bytes], release: Release, copy: IO[bytes] | None = None) -> None:
    """Compare the content with the manifest, and copy it on the way.

    Args:
        file: of the release.
        release: read from it.
        copy: gets the bytes; what it holds is good only when this returns.

    Raises:
        ReleaseRefused: ``damaged``.
        OSError: the copy cannot be written.
    """
    wanted, hashed, left = release.manifest.archive, hashlib.sha256(), release.manifest.archive.size
    file.seek(release.offset)
    while left and (chunk := file.read(min(left, _CHUNK))):
        hashed.update(chunk)
        left -= len(chunk)
        if copy is not None:
            copy.write(chunk)
    if left or hashed.hexdigest() != wanted.sha256:
        raise ReleaseRefused("damaged", "its content is not what the manifest says: transfer the file again")


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
