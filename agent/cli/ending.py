"""How a program ends when its reader goes away or Ctrl-C comes before there is anything to stop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def end_quietly() -> Iterator[None]:
    """End the process without a traceback: 0 when the reader of its output went away, 1 after Ctrl-C."""
    try:
        yield
    except BrokenPipeError:  # as under head
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        sys.exit(1)
