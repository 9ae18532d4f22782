"""``device-agent``: the agent's program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agent.files import restrict_umask
from agent.terminal import protect_terminal


def main() -> None:
    """The program ``device-agent``; returns its exit code."""
    restrict_umask()
    protect_terminal()
    with end_quietly():
        from agent.cli.program import device_agent

        device_agent(prog_name="device-agent")


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
