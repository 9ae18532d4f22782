"""A program's standard input as a file that is complete before the program starts.

A pipe is written after the start: when the agent is killed between the two, the program reads an empty or a cut input
and acts on it. A file that holds everything and has no name any more outlives the agent for as long as the program
has it open.

Source: ``memfd_create(2)`` on Linux; elsewhere, or where the system forbids it, an unlinked temporary file.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NAME: Final = "stdin"


@contextlib.contextmanager
def input_file(content: bytes) -> Iterator[int]:
    """A descriptor of a nameless file with this content, at its beginning.

    Raises:
        OSError: there is neither memory nor disk for it.
    """
    if not content:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    else:
        descriptor = _in_memory(content)
        if descriptor < 0:
            descriptor = _on_disk(content)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _in_memory(content: bytes) -> int:
    """-1 where the system has no such files, or forbids them."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return -1
    try:
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    except OSError:
        return -1
    return _filled(descriptor, content)


def _on_disk(content: bytes) -> int:
    descriptor, path = tempfile.mkstemp()
    Path(path).unlink()
    return _filled(descriptor, content)


def _filled(descriptor: int, content: bytes) -> int:
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
