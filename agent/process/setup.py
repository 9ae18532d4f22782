"""Settings that a program makes for its own process before anything else: umask, memory arenas of the allocator."""

from __future__ import annotations

import ctypes
import os
import stat
from typing import Final

_M_ARENA_MAX: Final = -8
_VARIABLE: Final = "MALLOC_ARENA_MAX"


def use_one_arena() -> bool:
    """Make all threads of this process share one memory area (arena) of the C library; call it before they start.

    glibc gives threads arenas of their own, up to eight for each core, and each keeps what it once needed. In a program
    that runs for months with some twenty threads this looks like a leak: every busy minute fills another arena. Threads
    of Python hold the interpreter's lock while they allocate, so one arena costs no speed.

    Source: ``mallopt(3)``, ``M_ARENA_MAX``. ``device-agent.service`` sets the same by ``MALLOC_ARENA_MAX``.

    Returns:
        Whether it was done: not where ``MALLOC_ARENA_MAX`` says otherwise, nor with another allocator than glibc's.
    """
    if _VARIABLE in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # no glibc: musl, macOS, Windows
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))


def restrict_umask() -> None:
    """Let nobody but the owner write what this process and its children make, where the mask says nothing about it.

    A mask that lets everybody write (000, as some containers and init scripts have it) is nobody's wish. Any other one
    is left alone: 002 lets a group share a folder, 077 keeps everybody out.
    """
    before = os.umask(0o077)
    os.umask(before if before & stat.S_IWOTH else before | stat.S_IWGRP | stat.S_IWOTH)
