"""A folder of labels: written file by file without ever leaving half of one, and never over somebody else's."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from simulator.file_lock import lock_file
from simulator.labels.errors import LabelError, LabelsExist
from simulator.whole_files import UNFINISHED, cannot_write, write_whole

MANIFEST_JSON: Final = "manifest.json"
MANIFEST_CSV: Final = "manifest.csv"
_STEM_MAX: Final = 120


def file_stem(identifier: str) -> str:
    """A file name for an identifier, without its ending.

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
        may_overwrite: what is there is of the same batch, or may be lost.
    """

    path: Path
    may_overwrite: bool

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
                if not self.may_overwrite:
                    raise LabelsExist(
                        f"{target} exists with other content: choose another --out, or pass --replace to overwrite it"
                    )
            return write_whole(target, data)
        except OSError as problem:
            raise LabelError(cannot_write(target, problem, "another --out")) from None


class LabelFolder:
    """Where one batch goes, from the first label to the manifest; one process at a time.

    What a batch is made from stands in an unfinished folder's mark, and in a finished one's manifest: the same batch
    may be made there again, and another one only with ``replace``.

    Args:
        path: the folder; made when missing.
        batch: what the batch is made from and proven by; equal ones mean the same labels.
        replace: overwrite what another batch left here.
        endings: of the names of files that a batch makes; nothing else is ever removed.

    Raises:
        LabelsExist: the folder holds another batch and ``replace`` is false.
        LabelError: the folder cannot be made or written, or another process is at work in it.
    """

    def __init__(self, path: Path, batch: dict[str, Any], *, replace: bool, endings: tuple[str, ...]) -> None:
        self.path = path
        self._endings = endings
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._mark = _lock_mark(path)
        except OSError as problem:
            raise LabelError(cannot_write(path, problem, "another --out")) from None
        try:
            same = self._look_at_what_is_there(batch, replace=replace)
            self.files = FileWriter(path, may_overwrite=replace or same)
            if not same:
                (path / MANIFEST_JSON).unlink(missing_ok=True)  # of another batch, which is about to be overwritten
            self._mark.truncate(0)
            self._mark.write(json.dumps(batch).encode())
            self._mark.flush()
        except BaseException:
            self.close()
            raise

    def _look_at_what_is_there(self, batch: dict[str, Any], *, replace: bool) -> bool:
        """Whether the batch that is here, finished or not, is this one.

        Raises:
            LabelsExist: it is another, and may not be overwritten.
        """
        self._before: set[str] = set()
        before = self._mark.read()
        manifest = self.path / MANIFEST_JSON
        try:
            if before:
                found = json.loads(before)
            elif manifest.exists():
                document = json.loads(manifest.read_bytes())
                found = document["batch"]
                self._before = set(self._names(document))
            else:
                return False
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if not replace:
                raise LabelsExist(
                    f"{manifest} is no manifest of labels: choose another --out, or pass --replace to overwrite it"
                ) from None
            return False
        if found == batch:
            return True
        if not replace:
            product = found.get("product_id") if isinstance(found, dict) else None
            raise LabelsExist(
                f"{self.path} holds another batch, of product {product!r}: choose another --out, or pass --replace to "
                "overwrite it"
            )
        return False

    def _names(self, document: dict[str, Any]) -> Iterator[str]:
        """The files that a manifest names, as far as they may be of a batch: in this folder, with one's ending."""
        listed = [document["files"], *document["labels"]]
        for value in (value for members in listed for value in members.values()):
            if isinstance(value, str) and value.endswith(self._endings) and Path(value).name == value:
                yield value

    def finish(self, kept: Iterable[str], manifest_json: bytes) -> Path:
        """Remove what the batch before left and this one lacks, then write the manifest: the batch exists.

        Args:
            kept: the names of this batch's files.
            manifest_json: the manifest.
        """
        try:
            for name in sorted(self._before.difference(kept)):
                (self.path / name).unlink(missing_ok=True)
            written = self.files.write(MANIFEST_JSON, manifest_json)
            (self.path / UNFINISHED).unlink(missing_ok=True)
        except OSError as problem:
            raise LabelError(cannot_write(self.path, problem, "another --out")) from None
        return written

    def close(self) -> None:
        """Let another process work here; the mark stays unless the batch is finished."""
        with contextlib.suppress(OSError):
            if os.fstat(self._mark.fileno()).st_size == 0:
                (self.path / UNFINISHED).unlink(missing_ok=True)
        self._mark.close()


def _lock_mark(folder: Path) -> BinaryIO:
    path = folder / UNFINISHED
    mark = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666), "r+b")
    try:
        lock_file(mark.fileno())
    except OSError:
        mark.close()
        raise LabelError(f"another process makes labels in {folder}: wait for it, or choose another --out") from None
    return mark
