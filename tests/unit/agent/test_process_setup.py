"""One arena of the allocator, as glibc's own ``malloc_info`` counts them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_TWENTY_THREADS = """
import ctypes, os, threading
{call}
barrier = threading.Barrier(21)
def work():
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    for _ in range(100):
        library.malloc(1000)  # ctypes lets go of the interpreter's lock, so that the threads contend
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(20)]
for thread in threads: thread.start()
barrier.wait()
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(library.fdopen(1, b"w"))
library.malloc_info(0, stream)
library.fflush(stream)
"""


def _arenas(call: str, environment: dict[str, str]) -> int:
    kept = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", _TWENTY_THREADS.format(call=call)],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts the arenas of glibc")
class TestArenas:
    def test_twenty_threads_share_one(self) -> None:
        assert _arenas("", {}) > 1
        assert _arenas("from agent.process.setup import use_one_arena; assert use_one_arena()", {}) == 1

    def test_the_environment_variable_has_the_last_word(self) -> None:
        call = "from agent.process.setup import use_one_arena; assert not use_one_arena()"
        assert _arenas(call, {"MALLOC_ARENA_MAX": "3"}) > 1
