"""``device-agent run``."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.options import config_option
from agent.cli.running import run_until_the_end


@click.command()
@config_option
def run(config_path: Path) -> None:
    """Run the agent until SIGTERM or Ctrl-C; SIGHUP reads the configuration again.

    A command restart_agent ends it with exit code 75 under a service manager (NOTIFY_SOCKET is set), which starts it
    again; started by hand it replaces itself by a new process image with the same process id. So it does, however it
    was started, for a configuration that only a restart brings into force.
    """
    run_until_the_end(config_path)
