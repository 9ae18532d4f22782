"""A folder of labels: written file by file without ever leaving half of one, and never over somebody else's."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from simulator.labels.batch.journal import BatchJournal
from simulator.labels.batch.manifest import read_manifest
from simulator.labels.errors import LabelError, LabelsExist
from simulator.whole_files import cannot_write

MANIFEST_JSON: Final = "manifest.json"
MANIFEST_CSV: Final = "manifest.csv"
JOURNAL: Final = ".labels.journal"
_STEM_MAX: Final = 120
_TEMPORARY: Final = re.compile(r"\..*\.[0-9]+\.tmp")


def file_stem(identifier: str) -> str:
    """A file name for an identifier on any file system, without its ending.

    Letters, digits and ``-_.+=,@()`` stay; the rest is percent-encoded. A long one is cut, with a hash to tell it
    from its neighbours.
    """
    stem = quote(identifier, safe="+=,@()")
    if stem.startswith("."):
        stem = "%2E" + stem[1:]
    if len(stem) <= _STEM_MAX:
        return stem
    return stem[:_STEM_MAX] + "~" + hashlib.sha256(identifier.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the files of one batch into its folder; it may go to another process.

    Attributes:
        path: the folder.
        replace: overwrite what another batch left here.
        ours: names of files that may be overwritten anyway, since this batch wrote them.
    """

    path: Path
    replace: bool
    ours: frozenset[str]

    def write(self, name: str, data: bytes) -> Path:
        """Write one file of the batch and return its path; the same bytes are left alone.

        Raises:
            LabelsExist: the file is there with other content and may not be overwritten.
            LabelError: it cannot be written.
        """
        target = self.path / name
        try:
            if target.exists():
                if target.read_bytes() == data:
                    return target
                self._require_ours(target)
            with _temporary(target) as temporary:
                temporary.write_bytes(data)
                temporary.replace(target)
        except OSError as problem:
            raise _unwritable(target, problem) from None
        return target

    def write_stream(self, name: str, data: Iterable[bytes]) -> Path:
        """Write one file of the batch that comes in pieces and may be larger than the memory."""
        target = self.path / name
        try:
            with _temporary(target) as temporary:
                with temporary.open("wb") as file:
                    file.writelines(data)
                if target.exists():
                    if filecmp.cmp(target, temporary, shallow=False):
                        return target
                    self._require_ours(target)
                temporary.replace(target)
        except OSError as problem:
            raise _unwritable(target, problem) from None
        return target

    def _require_ours(self, target: Path) -> None:
        if not self.replace and target.name not in self.ours:
            raise LabelsExist(
                f"{target} exists with other content: choose another --out, or pass --replace to overwrite it"
            )


class LabelFolder:
    """Where one batch goes, from the first label to the manifest; one process at a time.

    A file is written under a temporary name and renamed: what lacks its final name does not exist. A file that is
    there already with the same bytes is left alone. A journal says which labels are proven, so that a batch that was
    interrupted goes on behind the last of them.

    Args:
        path: the folder; made when missing.
        header: what the batch is made from (``batch``), by whom it is proven, with which versions; equal headers
            mean the same labels.
        replace: overwrite what another batch left here.
        endings: format -> what the names of its files end with, such as ``.png``; nothing else is ever removed.

    Raises:
        LabelsExist: the folder holds another batch and ``replace`` is false.
        LabelError: the folder cannot be made or written, or another process is at work in it.
    """

    def __init__(self, path: Path, header: dict[str, Any], *, replace: bool, endings: Mapping[str, str]) -> None:
        self.path = path
        self._replace = replace
        self._endings = dict(endings)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise _unwritable(path, problem) from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise LabelError(f"cannot write into {path}: permission denied; choose another --out")
        before = self._finished_before(header["batch"])
        self.journal = BatchJournal.open(path / JOURNAL, header, replace=replace)
        try:
            for leftover in path.glob(".*.tmp"):  # of a process that was killed; the journal's lock says it is gone
                if _TEMPORARY.fullmatch(leftover.name):
                    leftover.unlink(missing_ok=True)
            journaled = {name for kind, name in self.journal.file_names() if self._may_be_ours(kind, name)}
            self._before = before | journaled
            ours = frozenset(self._before | {MANIFEST_JSON, MANIFEST_CSV}) if before else frozenset(self._before)
            self.files = FileWriter(path, replace, ours)
        except BaseException:
            self.journal.close()
            raise

    def _finished_before(self, batch: dict[str, Any]) -> set[str]:
        """The files of the finished batch that is here, after making sure that they may be overwritten."""
        path = self.path / MANIFEST_JSON
        try:
            before = read_manifest(path)
            named = [(kind, name) for kind, names in before.files.items() for name in names]
            count = 0
            for label in before.labels():
                count += 1
                named += [(kind, label[kind]) for kind in self._endings if kind in label]
            product_id = before.batch.get("product_id")
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if self._replace:
                return set()
            raise LabelsExist(
                f"{path} is no manifest of labels: choose another --out, or pass --replace to overwrite it"
            ) from None
        if before.batch != batch and not self._replace:
            raise LabelsExist(
                f"{self.path} holds another batch ({count} labels of product {product_id!r}): choose another --out, "
                "or pass --replace to overwrite it"
            )
        return {name for kind, name in named if self._may_be_ours(kind, name)} | {MANIFEST_JSON, MANIFEST_CSV}

    def _may_be_ours(self, kind: str, name: object) -> bool:
        """Whether a word out of a manifest may name a file of a batch: in this folder, with its format's ending."""
        ending = self._endings.get(kind)
        return ending is not None and isinstance(name, str) and name.endswith(ending) and Path(name).name == name

    def finish(self, kept: Iterable[str], manifest_json: Iterable[bytes]) -> Path:
        """Remove what the batch before left and this one lacks, then write the manifest: the batch exists.

        Args:
            kept: the names of this batch's files.
            manifest_json: the manifest; once it has its name, all labels it names are on the disk.
        """
        try:
            for name in sorted(self._before.difference(kept, {MANIFEST_JSON, MANIFEST_CSV})):
                (self.path / name).unlink(missing_ok=True)
            os.sync()  # once, instead of once per label: the manifest must not outlive its labels in a power cut
        except OSError as problem:
            raise _unwritable(self.path, problem) from None
        written = self.files.write_stream(MANIFEST_JSON, manifest_json)
        self.journal.remove()
        return written

    def close(self) -> None:
        """Let another process work here; the journal stays unless the batch is finished."""
        self.journal.close()


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _unwritable(path: Path, problem: OSError) -> LabelError:
    return LabelError(cannot_write(path, problem, "another --out"))
