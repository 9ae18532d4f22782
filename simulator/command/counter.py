"""The sender's counter: a number that only grows, kept beside the private key."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.errors import ConfigurationError
from agent.wire.limits import INT_MAX
from simulator.file_lock import lock_file


class CounterFile:
    """The highest counter that was given out, in a file of its own.

    A counter is the time in nanoseconds, or one more than the last one where the clock says less. So it grows when the
    clock was set back, and it also grows, by the clock, when the file was lost or another machine sends with the same
    key. Several processes may take counters at the same time.

    Args:
        path: the file; it is made with mode 600 when it is missing, and a file ``.lock`` beside it.
        now_ns: nanoseconds since the epoch.
    """

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self._path = path
        self._now_ns = now_ns

    def take(self) -> int:
        """The next counter; it is on the disk before it is returned.

        Raises:
            ConfigurationError: the file cannot be read or written, or holds something else.
        """
        try:
            with self._locked():
                counter = max(self._last() + 1, self._now_ns())
                if counter > INT_MAX:
                    raise self._fault("is at its end; make a new key with device-agent keys make")
                self._write(counter)
                return counter
        except OSError as error:
            raise self._fault(f"cannot be kept: {error.strerror}; give another --counter-file") from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def _last(self) -> int:
        try:
            text = self._path.read_text("ascii").strip()
        except FileNotFoundError:
            return 0
        except UnicodeDecodeError:
            text = ""
        if not (text.isdecimal() and len(text) <= len(str(INT_MAX))):
            raise self._fault("holds no counter; give another --counter-file, or remove it and let the clock decide")
        return int(text)

    def _write(self, counter: int) -> None:
        new = self._path.with_name(f".{self._path.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{counter}\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _fault(self, sentence: str) -> ConfigurationError:
        return ConfigurationError([f"{self._path}: {sentence}"], "--counter-file")
