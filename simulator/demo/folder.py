"""The demo's output folder: made anew by each run, and never at the cost of a folder that the demo did not make."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file
from simulator.whole_files import cannot_write

MARKER: Final = ".fleet-simulator-demo"
_MARKER_TEXT: Final = "This folder was made by 'fleet-simulator demo', which deletes and rewrites it at each run.\n"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where everything of one run lies.

    Attributes:
        root: the folder itself.
    """

    root: Path

    @property
    def labels(self) -> Path:
        """The labels' pictures and manifest."""
        return self.root / "labels"

    @property
    def sheet(self) -> Path:
        """The true-size PDF of all labels."""
        return self.root / "sheet.pdf"

    @property
    def report(self) -> Path:
        """The report for people."""
        return self.root / "report.html"

    @property
    def proofs(self) -> Path:
        """The report for machines."""
        return self.root / "proofs.json"

    @property
    def agent(self) -> Path:
        """The real agent's configuration, token, state and programs."""
        return self.root / "agent"

    @property
    def service(self) -> Path:
        """The service's data."""
        return self.root / "service"

    @property
    def gateway(self) -> Path:
        """The gateway's configuration, keys and state."""
        return self.root / "gateway"

    @property
    def logs(self) -> Path:
        """The logs of the processes."""
        return self.root / "logs"


@contextlib.contextmanager
def open_folder(root: Path) -> Iterator[DemoFolder]:
    """Make the folder, empty but for its parts, and keep other demos out of it while the block lasts.

    What an earlier demo left there is deleted first.

    Raises:
        ConfigurationError: it is there and not the demo's, another demo works in it, or it cannot be written.
    """
    root = root.absolute()
    _claim(root)
    with (root / MARKER).open("rb") as marker:
        try:
            lock_file(marker.fileno())
        except OSError:
            raise ConfigurationError(
                [f"another demo is working in {root}: end it, or give another folder with --out"], "--out"
            ) from None
        yield _make_parts(DemoFolder(root))


def _claim(root: Path) -> None:
    """See that the folder is there and ours; the marker is the first thing that is written into it."""
    try:
        if root.is_symlink() or (root.exists() and not root.is_dir()):
            raise ConfigurationError([f"{root} is not a folder: give another one with --out"], "--out")
        if root.exists() and any(root.iterdir()):
            if not (root / MARKER).is_file():
                raise ConfigurationError(
                    [f"{root} has files in it that the demo did not make: give an empty or new folder with --out"],
                    "--out",
                )
            return
        # The folder holds keys: nobody else looks into it.
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        (root / MARKER).write_text(_MARKER_TEXT)
    except OSError as error:
        raise ConfigurationError([cannot_write(root, error, "another --out")], "--out") from None


def _make_parts(folder: DemoFolder) -> DemoFolder:
    try:
        _empty(folder.root)
        for part in (folder.agent, folder.service, folder.gateway):
            part.mkdir(mode=0o700)
        for part in (folder.labels, folder.logs):
            part.mkdir()
    except OSError as error:
        raise ConfigurationError([cannot_write(folder.root, error, "another --out")], "--out") from None
    return folder


def _empty(root: Path) -> None:
    """Delete what is in the folder, but for its marker."""
    for entry in root.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
