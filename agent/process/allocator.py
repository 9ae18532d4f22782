"""A limit on the memory areas (arenas) of the C library's allocator.

glibc gives threads arenas of their own, up to eight for each core, and each keeps what it once needed. In a program
that runs for months with some twenty threads this looks like a leak: every busy minute fills another arena. Threads of
Python hold the interpreter's lock while they allocate, so one arena costs no speed.

Source: ``mallopt(3)``, ``M_ARENA_MAX``. ``device-agent.service`` sets the same by ``MALLOC_ARENA_MAX``.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_ARENA_MAX: Final = -8
_VARIABLE: Final = "MALLOC_ARENA_MAX"


def use_one_arena() -> bool:
    """Make all threads of this process share one arena; call it before the first of them starts.

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
