"""The demo's output folder: made anew by each run, and never at the cost of a folder that the demo did not make."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file
from simulator.whole_files import cannot_write

_MARKER: Final = ".fleet-simulator-demo"


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[Path]:
    """The folder, empty but for a marker, and locked for this process while the block lasts.

    Raises:
        ConfigurationError: it has files that the demo did not make, another demo works in it, or it cannot be written.
    """
    root = path.absolute()
    marker = root / _MARKER
    with contextlib.ExitStack() as held:
        try:
            if root.is_symlink() or (root.is_dir() and any(root.iterdir()) and not marker.is_file()):
                fault = f"{root} has files in it that the demo did not make: give an empty or new folder with --out"
                raise ConfigurationError([fault], "--out")
            root.mkdir(parents=True, exist_ok=True, mode=0o700)  # keys go into it
            lock = held.enter_context(marker.open("w"))
            try:
                lock_file(lock.fileno())
            except OSError:
                fault = f"another demo is working in {root}: end it, or give another folder with --out"
                raise ConfigurationError([fault], "--out") from None
            for entry in root.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry != marker:
                    entry.unlink()
        except OSError as error:
            raise ConfigurationError([cannot_write(root, error, "another --out")], "--out") from None
        yield root
