"""An ext4 in a file whose power can be cut: what was not synced is gone, and its journal is played back.

``EXT4_IOC_SHUTDOWN`` without a flush of the journal ends it at once: the way of xfstests. The options make Linux keep
as little as ext4 may: no flush of a file that replaces another, data after its name, no commit by time.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from typing import Final

_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSH: Final = 2
_OPTIONS: Final = "loop,noauto_da_alloc,data=writeback,commit=600"


class Ext4Disk:
    """The file system, mounted at a place until :meth:`unmount`. Needs root.

    Args:
        image: the file, which is made.
        place: a folder.
        size: as ``mke2fs`` takes it.

    Raises:
        OSError: it could not be made or mounted.
    """

    def __init__(self, image: Path, place: Path, size: str = "128M") -> None:
        self._image = image
        self._place = place
        _run("mke2fs", "-q", "-t", "ext4", str(image), size)
        self._mount()

    def cut_power(self) -> None:
        """Drop what was not synced, and mount what is left.

        What is left is copied: whatever still holds the dead file system, such as a container that was started
        meanwhile, does not hold the new one.

        Raises:
            OSError: it could not be done.
        """
        folder = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(folder)
        self.unmount()
        left = self._image.with_name(f"{self._image.name}.left")
        _run("cp", "--sparse=always", str(self._image), str(left))
        self._image.unlink()
        self._image = left
        self._mount()

    def unmount(self) -> None:
        """Take it away, also from under processes that have files open there.

        Raises:
            OSError: it could not be done.
        """
        _run("umount", "--lazy", str(self._place))

    def _mount(self) -> None:
        _run("mount", "-o", _OPTIONS, str(self._image), str(self._place))


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
