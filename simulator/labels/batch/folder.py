"""A folder of labels: written file by file without ever leaving half of one, and never over somebody else's."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from simulator.labels.errors import LabelError, LabelsExist

MANIFEST_JSON: Final = "manifest.json"
MANIFEST_CSV: Final = "manifest.csv"
_STEM_MAX: Final = 120


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


class LabelFolder:
    """Where one batch goes.

    A file is written under a temporary name and renamed: what lacks its final name does not exist. A file that is
    there already with the same bytes is left alone, so a batch that was interrupted is completed by running it again.

    Args:
        path: the folder; made when missing.
        batch: what describes the batch, as in the manifest; equal means the same labels.
        endings: format -> what the names of its files end with, such as ``.png``; nothing else is ever removed.
        replace: overwrite what another batch left here.

    Raises:
        LabelsExist: the folder holds another batch and ``replace`` is false.
        LabelError: the folder cannot be made or written.
    """

    def __init__(
        self, path: Path, batch: dict[str, Any], *, replace: bool, endings: Mapping[str, str] | None = None
    ) -> None:
        self.path = path
        self._endings = dict(endings or {})
        self._replace = replace
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise _unwritable(path, problem) from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise LabelError(f"cannot write into {path}: permission denied; choose another --out")
        self._files_before = self._read_manifest(batch)

    def _read_manifest(self, batch: dict[str, Any]) -> set[str]:
        """The files that the batch before left, after making sure that they may be overwritten."""
        manifest = self.path / MANIFEST_JSON
        try:
            before = json.loads(manifest.read_bytes())
            named = [(kind, label.get(kind)) for label in before["labels"] for kind in self._endings]
            named += [(kind, name) for kind, names in before.get("files", {}).items() for name in names]
            files = {name for kind, name in named if self._may_be_ours(kind, name)}
            described, product_id = before["batch"], before["batch"].get("product_id")
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if self._replace:
                return set()
            raise LabelsExist(
                f"{manifest} is no manifest of labels: choose another --out, or pass --replace to overwrite it"
            ) from None
        if described != batch and not self._replace:
            raise LabelsExist(
                f"{self.path} holds another batch ({len(before['labels'])} labels of product "
                f"{product_id!r}): choose another --out, or pass --replace to overwrite it"
            )
        return files | {MANIFEST_JSON, MANIFEST_CSV}

    def _may_be_ours(self, kind: str, name: object) -> bool:
        """Whether a word out of a manifest may name a file of a batch: in this folder, with its format's ending."""
        ending = self._endings.get(kind)
        return ending is not None and isinstance(name, str) and name.endswith(ending) and Path(name).name == name

    def write(self, name: str, data: bytes) -> Path:
        """Write one file of the batch and return its path.

        Raises:
            LabelsExist: the file is there with other content and ``replace`` is false.
            LabelError: it cannot be written.
        """
        target = self.path / name
        try:
            if target.exists():
                if target.read_bytes() == data:
                    return target
                if not self._replace and name not in self._files_before:
                    raise LabelsExist(
                        f"{target} exists with other content: choose another --out, or pass --replace to overwrite it"
                    )
            _replace_file(target, data)
        except OSError as problem:
            raise _unwritable(target, problem) from None
        return target

    def finish(self, kept: set[str], manifest_json: bytes) -> Path:
        """Remove what the batch before left and this one lacks, then write the manifest: the batch exists.

        Args:
            kept: the names of this batch's files.
            manifest_json: the manifest; once it has its name, all labels it names are on the disk.
        """
        try:
            for name in sorted(self._files_before - kept - {MANIFEST_JSON, MANIFEST_CSV}):
                (self.path / name).unlink(missing_ok=True)
            os.sync()  # once, instead of once per label: the manifest must not outlive its labels in a power cut
        except OSError as problem:
            raise _unwritable(self.path, problem) from None
        return self.write(MANIFEST_JSON, manifest_json)


def _replace_file(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _unwritable(path: Path, problem: OSError) -> LabelError:
    return LabelError(f"cannot write {path}: {problem.strerror or problem}; free it, or choose another --out")
