"""``device-agent run``."""

from __future__ import annotations

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
    from agent.app.run import EXIT_RESTART, run_agent

    with configuration_faults_end_it():
        exit_code = run_agent(load(config_path), os.environ)
    if exit_code == EXIT_RESTART and not os.environ.get("NOTIFY_SOCKET"):
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the very program that runs now
    sys.exit(exit_code)
