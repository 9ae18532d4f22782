"""A folder of damaged labels: never over somebody else's files, never half a file."""

from __future__ import annotations

import io
import json
from pathlib import Path, PurePosixPath
from typing import Final

from PIL import Image

from simulator.labels.damage.documents import FORMAT
from simulator.labels.damage.pixels import Pixels
from simulator.labels.errors import LabelError, LabelsExist
from simulator.whole_files import UNFINISHED, cannot_write, write_whole

MANIFEST_JSON: Final = "manifest.json"


class DamageFolder:
    """Where a run writes. What an earlier run left is replaced; anything else is refused.

    Args:
        path: the folder; made when missing.

    Raises:
        LabelsExist: there are files in it and no manifest of an earlier run.
        LabelError: it cannot be made or read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._before = self._files_before() if any(path.iterdir()) else set()
            (path / UNFINISHED).touch()
            (path / MANIFEST_JSON).unlink(missing_ok=True)  # until it is written anew, nothing here is whole
        except OSError as problem:
            raise self._unwritable(path, problem) from None

    def _files_before(self) -> set[str]:
        """The files of the run before, also of one that was ended early."""
        if (self.path / UNFINISHED).exists():
            return {path.relative_to(self.path).as_posix() for path in self.path.rglob("*.png")}
        try:
            document = json.loads((self.path / MANIFEST_JSON).read_bytes())
            if document["format"] == FORMAT:
                return {str(picture["file"]) for picture in document["pictures"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        raise LabelsExist(f"{self.path} holds other files: choose another --out")

    def write_picture(self, name: str, pixels: Pixels) -> None:
        """Write a picture; ``name`` is relative to the folder.

        Raises:
            LabelError: it cannot be written.
        """
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        self.write(name, file.getvalue())

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all.

        Raises:
            LabelError: it cannot be written.
        """
        target = self.path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, data)
        except OSError as problem:
            raise self._unwritable(target, problem) from None
        self._before.discard(name)

    def finish(self, manifest: bytes) -> Path:
        """Remove what the run before left and this one did not write, then write the manifest."""
        try:
            for name in sorted(self._before):
                # The name comes out of a file: nothing outside this folder, and nothing but pictures.
                parts = PurePosixPath(name)
                if not parts.is_absolute() and ".." not in parts.parts and parts.suffix == ".png":
                    (self.path / name).unlink(missing_ok=True)
        except OSError as problem:
            raise self._unwritable(self.path, problem) from None
        self.write(MANIFEST_JSON, manifest)
        (self.path / UNFINISHED).unlink(missing_ok=True)
        return self.path / MANIFEST_JSON

    def _unwritable(self, path: Path, problem: OSError) -> LabelError:
        return LabelError(cannot_write(path, problem, "another --out"))
