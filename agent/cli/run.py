"""``device-agent run``: the agent's process from its configuration to its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import click

from agent.app.run import HANDLED, run_agent
from agent.cli.options import config_option, load, state_dir
from agent.errors import EXIT_CRASHED, EXIT_REPLACE, EXIT_RESTART, StorageError
from agent.text import bounded


@click.command()
@config_option
def run(config_path: Path) -> None:
    """Run the agent until SIGTERM or Ctrl-C; SIGHUP reads the configuration again.

    A command restart_agent ends it with exit code 75 under a service manager (NOTIFY_SOCKET is set), which starts it
    again; started by hand it replaces itself by a new process image with the same process id. So it does, however it
    was started, for a configuration that only a restart brings into force.
    """
    # A signal that comes while the agent starts is handled as soon as its handler is there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    # As it was: what the agent sets for itself must not reach the process image after it.
    environ = dict(os.environ)
    try:
        exit_code = run_agent(state_dir(config_path), environ, lambda: load(config_path))
    except StorageError as error:  # whoever started this starts it again
        click.echo(bounded(f"error: {error}"), err=True)
        exit_code = EXIT_CRASHED
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if exit_code == EXIT_REPLACE or (exit_code == EXIT_RESTART and not environ.get("NOTIFY_SOCKET")):
        exit_code = EXIT_RESTART
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # the program is not where it was: whoever started this starts it anew
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)  # noqa: S606 - this very program
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    sys.exit(exit_code)
