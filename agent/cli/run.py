"""``device-agent run``."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import click

from agent.cli.options import config_option, configuration_faults_end_it, load


@click.command()
@config_option
def run(config_path: Path) -> None:
    """Run the agent until SIGTERM or Ctrl-C.

    A command restart_agent ends it with exit code 75 under a service manager (NOTIFY_SOCKET is set), which starts it
    again; started by hand it replaces itself by a new process image with the same process id.
    """
    with configuration_faults_end_it():
        loaded = load(config_path)
        # What reading the file left behind is given back first: what is loaded from here on takes its place.
        gc.collect()
        from agent.app.run import EXIT_RESTART, run_agent

        exit_code = run_agent(loaded, os.environ)
    if exit_code == EXIT_RESTART and not os.environ.get("NOTIFY_SOCKET"):
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the very program that runs now
    sys.exit(exit_code)
