"""The manifest of a release: what it says, whether this device takes it, and why not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

KIND: Final = "device-agent release"
FORMAT: Final = 1
PRODUCT: Final = "device-agent"

_MEMBERS: Final = frozenset(
    {
        "kind",
        "format",
        "product",
        "version",
        "minimum_version",
        "architecture",
        "downgrade",
        "schema",
        "content",
        "files",
    }
)
_VERSION: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Letters, digits and what file names of Python packages have; no step upwards, nothing compiled.
_PATH: Final = re.compile(r"(?!.*(^|/)(\.\.?|__pycache__)(/|$))[A-Za-z0-9_.+@ -]+(/[A-Za-z0-9_.+@ -]+)*")
_MOST_FILES: Final = 20_000
_MOST_BYTES: Final = 1024 * 1024 * 1024


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
class Content:
    """One file of a release, or the archive of all of them.

    Attributes:
        size: bytes.
        sha256: hexadecimal.
    """

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Program:
    """A version of the agent that can run on this device.

    Attributes:
        version: numbers with dots.
        architecture: Debian's name of it.
        schema: of the store that it writes.
        schema_readable_by: the lowest schema whose programs can use that store.
    """

    version: str
    architecture: str
    schema: int
    schema_readable_by: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a release: what its maker has signed.

    Attributes:
        program: the version that the release brings.
        minimum_version: a device that runs an older one does not take it.
        downgrade: a device that runs a newer one takes it.
        archive: all files, as they travel.
        files: path below the release's folder -> the file.
    """

    program: Program
    minimum_version: str
    downgrade: bool
    archive: Content
    files: Mapping[str, Content]

    @property
    def unpacked_bytes(self) -> int:
        """The size of all files."""
        return sum(each.size for each in self.files.values())


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions: numbers from left to right, missing ones count as 0."""
    numbers = [int(each) for each in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def is_version(text: object) -> bool:
    """Whether it is a version that :func:`version_key` takes."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def parse_manifest(data: bytes) -> Manifest:
    """The manifest out of its bytes. Call it only for bytes whose signature holds.

    Raises:
        ReleaseRefused: ``unknown_format``, ``other_product`` or ``malformed``.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed("it is no JSON text") from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise _malformed(f"its kind is not {KIND!r}")
    if found.get("format") != FORMAT:
        text = f"it has format {found.get('format')!r:.20}, and this device reads {FORMAT}"
        raise ReleaseRefused("unknown_format", f"{text}: install the newer package by apt")
    if found.get("product") != PRODUCT:
        raise ReleaseRefused("other_product", f"it is for {found.get('product')!r:.60}, and this is {PRODUCT}")
    if set(found) != _MEMBERS:
        strange = min(set(found) ^ _MEMBERS)
        raise _malformed(f"the member {strange[:40]!r} is missing or unknown")
    if not isinstance(found["downgrade"], bool):
        raise _malformed("'downgrade' is neither true nor false")
    return Manifest(
        program=parse_program(found),
        minimum_version=_version_of(found, "minimum_version"),
        downgrade=found["downgrade"],
        archive=_content_of("content", found["content"]),
        files=_files_of(found["files"]),
    )


def parse_program(members: Mapping[str, Any]) -> Program:
    """Version, architecture and schema out of a manifest, or out of the package's ``release.json``.

    Raises:
        ReleaseRefused: ``malformed``.
    """
    schema, architecture = members.get("schema"), members.get("architecture")
    if not isinstance(schema, dict) or set(schema) != {"store", "store_readable_by"}:
        raise _malformed("'schema' has not the members 'store' and 'store_readable_by'")
    numbers = (schema["store"], schema["store_readable_by"])
    if not all(type(each) is int and each > 0 for each in numbers):
        raise _malformed("a number in 'schema' is no positive whole number")
    if not isinstance(architecture, str) or not architecture.isalnum():
        raise _malformed("'architecture' is no word")
    return Program(_version_of(members, "version"), architecture, *numbers)


def judge(manifest: Manifest, running: Program) -> None:
    """Whether a device that runs this program takes the release.

    Raises:
        ReleaseRefused: ``wrong_architecture``, ``too_old``, ``downgrade``, ``newer_schema`` or ``older_schema``.
    """
    new = manifest.program
    if new.architecture != running.architecture:
        text = f"it is for {new.architecture}, and this device is {running.architecture}"
        raise ReleaseRefused("wrong_architecture", f"{text}: take the file for {running.architecture}")
    if version_key(running.version) < version_key(manifest.minimum_version):
        text = f"version {running.version} is too old to update to {new.version}"
        raise ReleaseRefused("too_old", f"{text}: install {manifest.minimum_version} first")
    if version_key(new.version) < version_key(running.version) and not manifest.downgrade:
        text = f"it is {new.version}, and {running.version} runs; its manifest allows no way back"
        raise ReleaseRefused("downgrade", f"{text}: build it with --downgrade, or take a newer one")
    if new.schema_readable_by > running.schema:
        text = f"version {running.version} could not read the store any more if the update were taken back"
        raise ReleaseRefused(
            "newer_schema", f"{text} (schema {new.schema}, and it has {running.schema}): install the package by apt"
        )
    if running.schema_readable_by > new.schema:
        text = f"it has schema {new.schema} and cannot read the store of version {running.version}"
        raise ReleaseRefused("older_schema", f"{text} (schema {running.schema}): take a newer one")


def _version_of(members: Mapping[str, Any], name: str) -> str:
    version = members.get(name)
    if not is_version(version):
        raise _malformed(f"{name!r} is no version such as 1.2.3")
    return str(version)


def _content_of(name: str, members: object) -> Content:
    if not isinstance(members, dict) or set(members) != {"size", "sha256"}:
        raise _malformed(f"{name[:80]!r} has not the members 'size' and 'sha256'")
    size, sha256 = members["size"], members["sha256"]
    if type(size) is not int or not 0 <= size <= _MOST_BYTES:
        raise _malformed(f"the size of {name[:80]!r} is no number of bytes")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _malformed(f"the sha256 of {name[:80]!r} is none")
    return Content(size, sha256)


def _files_of(members: object) -> dict[str, Content]:
    if not isinstance(members, dict) or not 0 < len(members) <= _MOST_FILES:
        raise _malformed(f"'files' has not 1 to {_MOST_FILES} files")
    for path in members:
        if not _PATH.fullmatch(path):
            raise _malformed(f"the path {path[:80]!r} is not allowed")
    files = {path: _content_of(path, content) for path, content in members.items()}
    if sum(each.size for each in files.values()) > _MOST_BYTES:
        raise _malformed(f"its files are larger than {_MOST_BYTES} bytes")
    return files


def _malformed(why: str) -> ReleaseRefused:
    return ReleaseRefused("malformed", f"its manifest cannot be read: {why}; build it again")
